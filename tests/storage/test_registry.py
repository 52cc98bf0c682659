from __future__ import annotations

from pathlib import Path

import pytest

from asyncdata.errors import PlanError
from asyncdata.storage import LocalStore, read_file, store_for


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("data/a.txt", "data/a.txt"),
        ("/data/*.txt", "/data/*.txt"),
        (Path("data") / "a b%20.txt", str(Path("data") / "a b%20.txt")),
        ("file:///data/a%20b.txt", "/data/a b.txt"),
        ("FILE:///data/a.txt", "/data/a.txt"),
        ("file://localhost/data/a.txt", "/data/a.txt"),
        ("file:///data/a?[0-9]#.txt", "/data/a?[0-9]#.txt"),
        ("a:b", "a:b"),
        ("c://windows", "c://windows"),
    ],
)
def test_local(url: str | Path, path: str) -> None:
    store, found = store_for(url)
    assert isinstance(store, LocalStore)
    assert found == path


@pytest.mark.parametrize("scheme", ["s4", "FTPX", "web-dav"])
def test_unknown_scheme(scheme: str) -> None:
    with pytest.raises(PlanError, match=f"no store for {scheme}:// .* file://"):
        store_for(f"{scheme}://bucket/key")


def test_file_url_of_another_machine() -> None:
    with pytest.raises(PlanError, match="host 'elsewhere'"):
        store_for("file://elsewhere/data")


def test_bytes_are_no_path() -> None:
    with pytest.raises(PlanError, match="must be a str or a PathLike of str"):
        store_for(b"data")  # type: ignore[arg-type]


@pytest.mark.parametrize("form", [str, Path, Path.as_uri])
async def test_read_file(tmp_path: Path, form) -> None:
    (tmp_path / "a file").write_bytes(b"content")
    assert await read_file(form(tmp_path / "a file")) == b"content"
