"""Secrets in texts are hidden, and nothing else."""

from __future__ import annotations

import copy
import pickle

import pytest

import asyncdata as ad
from asyncdata.errors import AsyncDataError, annotate
from asyncdata.redaction import redacted

SECRET = "Zx9secret7Q"

HIDDEN = {
    f"https://ann:{SECRET}@h.example/a": "https://h.example/a",
    f"https://{SECRET}@h.example/a": "https://h.example/a",
    f"https://ann:a@{SECRET}@h.example/a": "https://h.example/a",
    f"https://ann:{SECRET}?{SECRET}@h.example/a": "https://h.example/a",
    f"https://ann:{SECRET}#@h.example/a": "https://h.example/a",
    f"https://ann:{SECRET}/x@h.example/a": "https://h.example/a",
    f"https://h.example:80/a?token={SECRET}": "https://h.example:80/a?…",
    f"https://h.example/a?{SECRET}": "https://h.example/a?…",
    f"https://h.example/a?x=[1]&token=){SECRET}": "https://h.example/a?…",
    f"https://h.example/a#access_token={SECRET}": "https://h.example/a#…",
    f"wss://h.example?key={SECRET}, then": "wss://h.example?…, then",
    f"(see https://h.example/a?sig={SECRET}).": "(see https://h.example/a?…).",
    f"got 'https://ann:{SECRET}@h.example': give": "got 'https://h.example': give",
    f"got 'https://ann:{SECRET}": "got 'https://…",
    f"got 'https://{SECRET}: give": "got 'https://…: give",
    f'got "https://ann:{SECRET}\'x@h.example"': 'got "https://h.example"',
    f"redis://:{SECRET}@h.example:6379/0": "redis://h.example:6379/0",
    f"rediss://:{SECRET}/{SECRET}@h.example:6379/0": "rediss://h.example:6379/0",
    f"nats://{SECRET}@h.example:4222": "nats://h.example:4222",
    f"nats://a:{SECRET}@h1.example,nats://b:{SECRET}@h2.example": "nats://h1.example,nats://h2.example",
    f"amqp://ann:{SECRET}@h.example//x": "amqp://h.example//x",
    f"postgresql+psycopg://ann:{SECRET}@h.example/db?sslmode=require": "postgresql+psycopg://h.example/db?…",
    f"sftp://ann:{SECRET}@h.example/a?.txt": "sftp://h.example/a?.txt",
    f"https:/ann:{SECRET}@h.example/a": "https:/h.example/a",
    f"host=h user=ann password={SECRET} dbname=d": "host=h user=ann password=… dbname=d",
    f"AccountName=a;AccountKey={SECRET};EndpointSuffix=e": "AccountName=a;AccountKey=…;EndpointSuffix=e",
    f"{{'Authorization': 'Bearer {SECRET}', 'X': 'y'}}": "{'Authorization': …, 'X': 'y'}",
    f"Authorization: Bearer {SECRET}\r\nX: y": "Authorization: …\r\nX: y",
    f"{{'aws_secret_access_key': '{SECRET}'}}": "{'aws_secret_access_key': …}",
    f"{{'sas_token': '{SECRET}": "{'sas_token': …",
    f'"cookie": "a={SECRET}; b=2"': '"cookie": …',
}

KEPT = [
    "",
    "nothing to hide: 5 of 7, is it so? yes",
    "https://h.example:8080/a/b@c.txt",
    "http://[::1]:80/a",
    "http://127.0.0.1:43121/",
    "s3://bucket/train-*/a?.[0-9].parquet",
    "s3://bucket/who@where.txt",
    "abfss://container@account.dfs.core.windows.net/a",
    "file:///home/ann@work/x?y",
    "/home/ann:x@work/a",
    "C:/Users/ann@work",
    "'https://h.example/a' and \"s3://b\"",
    "bucket_by_token_count(max_tokens=512, pad_token=0)",
    "token counts: [1, 2]; signature: TensorSpec(shape=(), dtype=int64)",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_secrets_are_hidden(text: str) -> None:
    assert redacted(text) == HIDDEN[text]
    assert redacted(redacted(text)) == redacted(text)
    assert f"{redacted(f'one {text} two')}" == f"one {HIDDEN[text]} two" or "got" in text or "{" in text


@pytest.mark.parametrize("text", KEPT)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redacted(text) == text


@pytest.mark.parametrize("cut", range(8, 60))
def test_a_text_that_was_shortened_tells_nothing(cut: int) -> None:
    url = f"https://ann:{SECRET}{SECRET}@h.example/a?token={SECRET}"
    assert SECRET[:3] not in redacted(f"got {url!r:.{cut}}")
    assert SECRET[:3] not in redacted(f"got {url!r:.{cut}}: give another")


@pytest.mark.parametrize("kind", AsyncDataError.__subclasses__(), ids=lambda kind: kind.__name__)
def test_errors_tell_no_secrets(kind: type[AsyncDataError]) -> None:
    error = kind(f"cannot read https://ann:{SECRET}@h.example")
    annotate(error, f"in list_files(https://h.example/?token={SECRET})")
    for one in (error, copy.copy(error), pickle.loads(pickle.dumps(error))):
        assert str(one) == "cannot read https://h.example"
    assert error.__notes__ == ["in list_files(https://h.example/?…)"]


def test_long_texts_take_no_long_time() -> None:
    for text in ("a" * 100_000, "a_" * 50_000, "https://" * 10_000, "https://" + "@" * 100_000, ":/" * 50_000):
        assert redacted(text)


def test_arguments_that_are_wrong_are_shown_without_secrets() -> None:
    with pytest.raises(ad.PlanError) as caught:
        ad.Dataset.range(3).map(f"https://ann:{SECRET}@h.example")  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)
