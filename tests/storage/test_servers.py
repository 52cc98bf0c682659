"""Which server and account a store asks: objects of one are never given for those of another."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.storage import StorageOptions, store_for
from asyncdata.storage.servers import identity_of
from tests.remote.web import web

pytest.importorskip("obstore")

PROVIDER = SimpleNamespace(config={"account_name": "x"})
QUICK = {"retry_config": {"max_retries": 0}}


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment says nothing of stores."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "STORAGE_EMULATOR_")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("root", "options", "around", "identity"),
    [
        # the names of objects in cache folders depend on these, which stay
        ("s3://b", {}, {}, " s3://b"),
        ("s3://b", {"region": "x", "secret_access_key": "secret"}, {"AWS_REGION": "y"}, " s3://b"),
        ("s3://b", {"endpoint": "http://h"}, {"AWS_ENDPOINT_URL": "http://other"}, "http://h s3://b"),
        ("gs://b", {"base_url": "http://h"}, {}, "http://h gs://b"),
        ("http://h?signature=secret", {}, {"AWS_ENDPOINT_URL": "http://other"}, " http://h"),
        # what the environment says, and other names
        ("s3://b", {}, {"AWS_ENDPOINT_URL": "http://h"}, "http://h s3://b"),
        ("s3a://b", {}, {"AWS_ENDPOINT": "http://h"}, "http://h s3a://b"),
        ("s3://b", {"AWS_ENDPOINT_URL": "http://h"}, {}, "http://h s3://b"),
        (
            "s3://b",
            {"endpoint": "http://h"},
            {"AWS_ENDPOINT_URL_S3": "http://used"},
            "http://h s3://b aws_endpoint_url_s3=http://used",
        ),
        (
            "s3://b",
            {"sts_endpoint": "http://sts", "endpoint": "http://h"},
            {},
            "http://sts s3://b endpoint_url=http://h",
        ),
        ("gs://b", {}, {"GOOGLE_BASE_URL": "http://h"}, "http://h gs://b"),
        ("gcs://b", {}, {"STORAGE_EMULATOR_HOST": "http://h"}, "http://h gcs://b"),
        # accounts
        ("az://c", {"account_name": "one", "account_key": "secret"}, {}, " az://c account_name=one"),
        ("az://c", {}, {"AZURE_STORAGE_ACCOUNT_NAME": "two"}, " az://c account_name=two"),
        ("az://c", {"azure_storage_account_name": "x"}, {"AZURE_STORAGE_ACCOUNT_NAME": "y"}, " az://c account_name=x"),
        ("az://c", {"credential_provider": PROVIDER}, {}, " az://c account_name=x"),
        ("abfs://c", {"use_emulator": True}, {}, " abfs://c use_emulator=True"),
        ("az://c", {"account_name": "x"}, {"AZURITE_BLOB_STORAGE_URL": "http://h"}, " az://c account_name=x"),
    ],
)
def test_identities(
    root: str, options: dict[str, Any], around: dict[str, str], identity: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in around.items():
        monkeypatch.setenv(name, value)
    assert identity_of(root, options) == identity


@pytest.mark.parametrize("by", ["option", "environment"])
def test_objects_of_two_accounts_are_kept_apart(by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with web() as server:
        server.modified = "Sat, 01 Aug 2026 12:00:00 GMT"
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", server.url)
        for account in ("one", "two", "one"):
            server.put(f"{account}/train/a.txt", b"of the same size: " + account.encode())
            options: dict[str, Any] = {**QUICK, "use_emulator": True, "skip_signature": True}
            if by == "option":
                options["account_name"] = account
            monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", account if by == "environment" else "other")
            (line,) = ad.TextLineDataset("az://train/a.txt", storage_options=options, cache_dir=tmp_path)
            assert line == b"of the same size: " + account.encode()


@pytest.mark.parametrize("is_cached", [False, True])
def test_the_server_that_the_environment_says_is_asked(
    is_cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**QUICK, "skip_signature": True, "region": "us-east-1"}
    folder = tmp_path if is_cached else None

    def read() -> list[bytes]:
        return list(ad.TextLineDataset("s3://bucket/a.txt", storage_options=options, cache_dir=folder))

    with web() as one:
        with web() as two:
            for server, content in ((one, b"one"), (two, b"two")):
                server.put("bucket/a.txt", content)
                monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
                assert read() == [content]
        monkeypatch.setenv("AWS_ENDPOINT_URL", one.url)
        assert read() == [b"one"]


def test_what_is_kept_of_one_server_is_not_read_for_another_that_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {**QUICK, "skip_signature": True, "region": "us-east-1"}
    with web() as two:
        pass
    with web() as one:
        one.put("bucket/a.txt", b"one")
        monkeypatch.setenv("AWS_ENDPOINT_URL", one.url)
        assert list(ad.TextLineDataset("s3://bucket/a.txt", storage_options=options, cache_dir=tmp_path)) == [b"one"]
        monkeypatch.setenv("AWS_ENDPOINT_URL", two.url)
        with pytest.raises(ConnectionRefusedError):
            list(ad.TextLineDataset("s3://bucket/a.txt", storage_options=options, cache_dir=tmp_path))


@pytest.mark.parametrize(
    ("url", "options", "environment", "message"),
    [
        ("s3://bucket/a", {"endpoint": "127.0.0.1:9"}, {}, "endpoint in storage_options must begin with http"),
        ("s3://bucket/a", {"AWS_ENDPOINT_URL": "minio"}, {}, "aws_endpoint_url in storage_options must begin"),
        ("s3://bucket/a", {}, {"AWS_ENDPOINT_URL": ""}, "aws_endpoint_url in the environment must begin"),
        ("az://box/a", {"account_name": "x", "endpoint": "azurite:1"}, {}, "endpoint in storage_options must begin"),
    ],
)
def test_endpoints_that_are_no_urls_are_refused(
    url: str, options: dict[str, Any], environment: dict[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """obstore 0.12 panics for most of them, with no `Exception`."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ad.PlanError, match=message):
        list(ad.Dataset.list_files(f"{url}/*", storage_options=options))
    with pytest.raises(ad.PlanError, match=message):
        list(ad.TextLineDataset(url, storage_options=options))


def test_an_option_that_ends_like_an_endpoint_is_none() -> None:
    options = StorageOptions.of("read_file", {"account_name": "x", "use_fabric_endpoint": "true"})
    store, path = store_for("az://box/a", options)
    assert store.url(path) == "az://box/a"
