"""What a state tells of a list of files."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from asyncdata.sources.file_list_digest import Files, names_and_sizes


def hashed(value: object, size: int) -> str:
    return blake2b(repr(value).encode(), digest_size=size).hexdigest()


@pytest.mark.parametrize("count", [0, 1, 2, 32, 33, 100])
def test_a_digest_is_that_of_the_text_of_the_list(count: int) -> None:
    files = Files.of([f"s3://bucket/a/{number}'é.txt" for number in range(count)])
    told = [(f"{number}'é.txt", -1) for number in range(count)]
    assert (files.count, files.digest) == (count, hashed(told, 4))
    size = max(1, -(-count // 32))
    assert files.groups == [hashed(told[place : place + size], 2) for place in range(0, count, size)]


@pytest.mark.parametrize(
    ("names", "folder"),
    [
        ([], ""),
        (["data/a.txt"], "data/"),
        (["data/b1.txt", "data/b2.txt", "data/a.txt"], "data/"),
        (["data/part", "data/part/1"], "data/"),
        (["data1/a.txt", "data2/a.txt"], ""),
        (["s3://bucket/a/1", "s3://bucket/b/1"], "s3://bucket/"),
        (["/data/a.txt", "https://host/a.txt"], ""),
    ],
)
def test_the_folder_of_all_files_is_left_out(names: list[str], folder: str) -> None:
    """Without a function that Python 3.15 deprecates, which would warn."""
    assert names_and_sizes(names) == [(name.removeprefix(folder), -1) for name in names]
