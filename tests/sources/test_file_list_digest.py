"""What a state tells of a list of files."""

from __future__ import annotations

from hashlib import blake2b

import pytest

from asyncdata.sources.file_list_digest import Files


def hashed(value: object, size: int) -> str:
    return blake2b(repr(value).encode(), digest_size=size).hexdigest()


@pytest.mark.parametrize("count", [0, 1, 2, 32, 33, 100])
def test_a_digest_is_that_of_the_text_of_the_list(count: int) -> None:
    files = Files.of([f"s3://bucket/a/{number}'é.txt" for number in range(count)])
    told = [(f"{number}'é.txt", -1) for number in range(count)]
    assert (files.count, files.digest) == (count, hashed(told, 4))
    size = max(1, -(-count // 32))
    assert files.groups == [hashed(told[place : place + size], 2) for place in range(0, count, size)]
