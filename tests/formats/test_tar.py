"""Headers of tar archives, as Python's own package writes them."""

from __future__ import annotations

import tarfile
from typing import Any

import pytest

from asyncdata.formats.tar import BLOCK, Member, long_name, member_of, padded, pax_fields

FORMATS = [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]


def header(**fields: Any) -> bytes:
    info = tarfile.TarInfo(fields.pop("name", "a.txt"))
    for name, value in fields.items():
        setattr(info, name, value)
    return info.tobuf(tarfile.GNU_FORMAT)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", ["a.txt", "b" * 100, "d/" * 60 + "c.txt", "\u00fc.txt"])
def test_what_is_written_is_read(name: str, form: int) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mtime = 123, 1e9
    data = info.tobuf(form)
    blocks = [data[start : start + BLOCK] for start in range(0, len(data), BLOCK)]
    told: str | None = None
    while len(blocks) > 1:
        before = member_of(blocks[0])
        assert before is not None
        content = b"".join(blocks[1:-1])[: before.size]
        told = long_name(content) if before.kind == b"L" else pax_fields(content)[0]
        blocks = blocks[-1:]
    member = member_of(blocks[0])
    assert member is not None
    assert (told or member.name, member.size, member.regular) == (name, 123, True)


def test_sizes_that_octal_digits_do_not_hold() -> None:
    assert member_of(header(size=1 << 40)) == Member("a.txt", 1 << 40, b"0")
    assert pax_fields(b"20 size=1099511627776\n"[:0] + b"22 size=1099511627776\n") == (None, 1 << 40)


def test_folders_and_links_have_no_content() -> None:
    for kind in (tarfile.DIRTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE):
        member = member_of(header(type=kind, size=99))
        assert member is not None
        assert (member.size, member.regular) == (0, False)


def test_zeros_are_the_end() -> None:
    assert member_of(bytes(BLOCK)) is None


@pytest.mark.parametrize("place", range(0, BLOCK, 7))
def test_a_byte_that_changed_is_noticed(place: int) -> None:
    data = bytearray(header(size=5, mtime=1e9, uname="me"))
    data[place] ^= 0x41
    try:
        assert member_of(bytes(data)) == member_of(header(size=5))
        assert 148 <= place < 156  # where spaces and zeros end a number alike
    except ValueError:
        pass


def test_a_checksum_of_signed_bytes() -> None:
    data = bytearray(header(name="\udcff.txt"))
    data[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(data))[1]
    assert member_of(bytes(data)) == Member("\udcff.txt", 0, b"0")


def test_sparse_files_are_refused() -> None:
    with pytest.raises(ValueError, match="sparse"):
        member_of(header(type=tarfile.GNUTYPE_SPARSE))
    with pytest.raises(ValueError, match="sparse"):
        pax_fields(b"22 GNU.sparse.major=1\n")


@pytest.mark.parametrize("fields", [b"11 path=a\n", b"99 path=a\n", b"x path=a\n", b"1", b"8 path=a\n", b"10 size=x\n"])
def test_damaged_fields(fields: bytes) -> None:
    with pytest.raises(ValueError):
        pax_fields(fields)


def test_contents_are_filled_up() -> None:
    assert [padded(size) for size in (0, 1, 512, 513)] == [0, 512, 512, 1024]
