"""Where files go that can be made again; how they are written is tested with asyncdata.checkpoint.save."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncdata.storage import cache_folder


def test_cache_folder_can_be_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASYNCDATA_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("ASYNCDATA_CACHE")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "asyncdata"
    monkeypatch.setattr("sys.platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache_folder() == tmp_path / "local" / "asyncdata" / "Cache"
