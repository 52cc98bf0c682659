"""`asyncdata channel` says what a channel holds, and trims it by a saved state."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

import asyncdata as ad
from asyncdata.__main__ import main
from asyncdata.web.dead_letters import DeadLetters, ItemPlace
from asyncdata.web.folder import ChannelFolder


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


def test_dead_letters_are_listed_shown_and_put_back_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(tmp_path)
    letters = DeadLetters(ChannelFolder(tmp_path))
    with ad.Dataset.from_channel(tmp_path, decode=int, follow=False).iterate() as numbers:
        for _ in range(12):
            next(numbers)
        with pytest.raises(ValueError, match="raw") as caught:
            next(numbers)
    ids = "".join(note for note in caught.value.__notes__ if "at byte" in note).split("at byte ")[1].split()[0]
    letters.add([ItemPlace(letters.folder.id, int(ids), 0)], caught.value, whole=True)
    assert main(["channel", "dead-letters", str(tmp_path)]) == 0
    assert f"{ids}-0 " in (told := capsys.readouterr().out)
    assert "UndecodableError" in told
    assert main(["channel", "dead-letters", str(tmp_path), f"{ids}-0"]) == 0
    assert "  application/octet-stream\n  raw\n" in capsys.readouterr().out
    assert main(["channel", "inspect", str(tmp_path)]) == 0
    assert "failed    1 items" in capsys.readouterr().out
    assert main(["channel", "put-back", str(tmp_path), f"{ids}-0"]) == 0
    assert main(["channel", "put-back", str(tmp_path)]) == 0
    assert "1 of 1 items put back\n0 of 0 items" in capsys.readouterr().out
    assert list(ad.Dataset.from_channel(tmp_path, decode=bytes, follow=False))[12:] == [b"raw", b"raw"]
    assert main(["channel", "put-back", str(tmp_path), "7-7"]) == 2
    assert "has no item 7-7" in capsys.readouterr().err
