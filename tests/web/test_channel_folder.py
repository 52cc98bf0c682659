"""A channel's folder where others may write: nothing but its own files is opened, followed, counted or replaced."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

import asyncdata as ad

pytestmark = pytest.mark.usefixtures("nothing_left")


def send(path: Path, *bodies: bytes) -> None:
    async def serve() -> None:
        async with ad.DurableChannel(path, segment_bytes=1) as channel:
            for body in bodies:
                await channel.send(body)

    asyncio.run(serve())


def read(path: Path) -> list[bytes]:
    return list(ad.Dataset.from_channel(path, follow=False))


def place(path: Path, kind: str, target: Path) -> None:
    """Put something that is no file at a path."""
    path.unlink(missing_ok=True)
    make: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(target),
        "hard link": lambda: os.link(target, path),
        "pipe": lambda: os.mkfifo(path),
        "folder": path.mkdir,
    }
    make[kind]()


@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["committed", "writer.lock", "channel.json", "00000000000000000000.tfrecord"])
def test_what_is_not_its_own_file_is_an_error_and_stays(tmp_path: Path, kind: str, name: str) -> None:
    channel, other = tmp_path / "channel", tmp_path / "other"
    send(channel, b"one")
    other.write_bytes(b"mine")
    place(channel / name, kind, other)
    if (kind, name) == ("hard link", "00000000000000000000.tfrecord"):  # it is damaged, and never written to
        send(channel, b"two")
    else:
        with pytest.raises(ad.DataLossError, match=name):
            send(channel, b"two")
    assert other.read_bytes() == b"mine"


@pytest.mark.parametrize("kind", ["link", "pipe"])
@pytest.mark.parametrize("name", ["committed", "channel.json", "reading", "00000000000000000000.tfrecord"])
def test_a_reader_is_not_led_elsewhere_and_does_not_wait(tmp_path: Path, kind: str, name: str) -> None:
    channel, other = tmp_path / "channel", tmp_path / "other"
    send(channel, b"one")
    assert read(channel) == [b"one"]
    (channel / name).rename(other)
    place(channel / name, kind, other)
    with pytest.raises(ad.DataLossError, match="should be a file: remove it"):
        read(channel)


def test_other_names_are_nothing_of_the_channel(tmp_path: Path) -> None:
    send(tmp_path, b"one", b"two")
    for name in (
        "notes.tfrecord",
        "1.tfrecord",
        "²" * 20 + ".tfrecord",
        "0" * 21 + ".tfrecord",
        "a",
        "channel.new",
    ):
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "wake" / "notes").write_bytes(b"mine")
    send(tmp_path, b"three")
    assert read(tmp_path) == [b"one", b"two", b"three"]
    assert (tmp_path / "notes.tfrecord").read_bytes() == b"mine"


def test_only_pipes_are_woken(tmp_path: Path) -> None:
    channel, other = tmp_path / "channel", tmp_path / "other"
    other.write_bytes(b"")
    send(channel, b"one")
    for number, kind in enumerate(["link", "hard link", "folder"]):
        place(channel / "wake" / f"{number}-01234567", kind, other)
    send(channel, b"two")
    assert other.read_bytes() == b""
    assert read(channel) == [b"one", b"two"]


def test_a_link_in_place_of_the_folder_of_pipes_is_refused(tmp_path: Path) -> None:
    channel, other = tmp_path / "channel", tmp_path / "other"
    channel.mkdir()
    other.mkdir()
    (channel / "wake").symlink_to(other)
    with pytest.raises(ad.PlanError, match="wake is a link"):
        send(channel, b"one")
    assert not os.listdir(other)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0])
def test_files_are_as_the_umask_says_and_never_executable(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        send(tmp_path / "channel", b"one", b"two")
    finally:
        os.umask(before)
    modes = {
        path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "channel").iterdir() if path.is_file()
    }
    assert len(modes) >= 3
    assert set(modes.values()) == {0o666 & ~umask}, modes


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "7",
        "{}",
        '{"format": 1, "id": 7}',
        '{"format": 99, "id": "a"}',
        '{"format": [], "id": "a"}',
        "[" * 200_000,
    ],
    ids=lambda content: content[:30],
)
def test_a_description_that_is_none_of_ours_is_an_error(tmp_path: Path, content: str) -> None:
    send(tmp_path, b"one")
    (tmp_path / "channel.json").write_text(content)
    with pytest.raises(ad.DataLossError, match=r"channel\.json"):
        read(tmp_path)


def test_a_description_without_a_format_is_of_the_first_one(tmp_path: Path) -> None:
    send(tmp_path, b"one")
    description = json.loads((tmp_path / "channel.json").read_text())
    (tmp_path / "channel.json").write_text(json.dumps({"id": description["id"]}))
    assert read(tmp_path) == [b"one"]


def test_a_url_is_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for url in ("s3://bucket/channel", "https://example.com/channel"):
        for make in (ad.DurableChannel, ad.DurableChannel.for_worker, ad.Dataset.from_channel):
            with pytest.raises(ad.PlanError, match="a channel must be on this machine"):
                make(url)
    assert not os.listdir(tmp_path)
