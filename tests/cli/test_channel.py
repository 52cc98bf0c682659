"""`asyncdata channel` says what a channel holds, and trims it by a saved state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import asyncdata as ad
from asyncdata.__main__ import main


def fill(path: Path, end: bool = False) -> None:
    async def send() -> None:
        channel = ad.DurableChannel(path, segment_bytes=200)
        for number in range(12):
            await channel.send(b"%d" % number, version=number % 3, content_type="application/json")
        await channel.send(b"raw")
        channel.end() if end else channel.close()

    asyncio.run(send())


def test_inspect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path, end=True)
    assert main(["channel", "inspect", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    for words in (", ended", "records   13 (12 json, 1 bytes)", "versions  0 to 2", "from 0 to ", "came      20"):
        assert words in told
    segment = sorted(tmp_path.glob("*.tfrecord"))[1]
    data = bytearray(segment.read_bytes())
    data[-6] ^= 1
    segment.write_bytes(data)
    assert main(["channel", "inspect", str(tmp_path)]) == 1
    assert "is corrupt" in capsys.readouterr().out


def test_trim_by_a_saved_state(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, saved = tmp_path / "spool", tmp_path / "saved.json"
    fill(path)
    with ad.Dataset.from_channel(path, decode=bytes, follow=False).iterate() as items:
        for _ in range(10):
            next(items)
        saved.write_text(json.dumps({"step": 10, "data": [items.state_dict()]}))
    assert main(["channel", "trim", str(path), "--state", str(saved)]) == 0
    freed = int(capsys.readouterr().out.split()[0].replace(",", ""))
    assert freed > 300
    state = json.loads(saved.read_text())["data"][0]
    assert list(ad.Dataset.from_channel(path, decode=bytes, follow=False).iterate(state=state)) == [
        b"10",
        b"11",
        b"raw",
    ]


def test_what_cannot_be_done_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["channel", "inspect", str(tmp_path)]) == 2
    assert "is no channel" in capsys.readouterr().err
    fill(tmp_path)
    for text, status, words in (("{}", 2, "has no offset in the channel"), ("{", 1, "is not JSON")):
        (tmp_path / "saved").write_text(text)
        assert main(["channel", "trim", str(tmp_path), "--state", str(tmp_path / "saved")]) == status
        assert words in capsys.readouterr().err
