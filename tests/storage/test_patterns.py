"""Patterns of objects mean what patterns of files do."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.storage.local import LocalStore
from asyncdata.storage.patterns import Pattern

NAMES = [
    "a",
    "ab",
    "b",
    ".a",
    "a*",
    "a?",
    "x[1]",
    "-",
    "!",
    "^",
    "d/a",
    "d/ab",
    "d/.a",
    "d/e/a",
    "d/e/b",
    ".d/a",
    "e-f/1",
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tree")
    for name in NAMES:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).touch()
    return folder


@given(
    st.lists(
        st.sampled_from(
            [
                "a",
                "b",
                "d",
                "e",
                ".",
                "/",
                "/",
                "*",
                "**/",
                "/**",
                "?",
                "[ab]",
                "[!a]",
                "[^a]",
                "[a-c]",
                "[",
                "\\*",
                "\\[",
            ]
        ),
        max_size=6,
    ).map("".join)
)
def test_the_same_files_are_found(tree: Path, pattern: str) -> None:
    pattern = pattern.strip("/")
    if "//" in pattern or "./" in f"{pattern}/" or "***" in pattern:
        return
    found = [os.path.relpath(entry.path, tree) for entry in LocalStore().list(f"{tree}/{pattern}")]
    files = sorted({name for name in found if (tree / name).is_file()})
    matcher = Pattern(pattern)
    assert [name for name in sorted(NAMES) if matcher.matches(name)] == files, pattern
    assert all(name.startswith(matcher.prefix) for name in files)


def test_what_is_below_a_file_is_nothing(tree: Path) -> None:
    """Before Python 3.13 the module `glob` gives the file with a slash."""
    assert [entry.path for entry in LocalStore().list(f"{tree}/a/**")] == []
