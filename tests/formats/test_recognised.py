"""Compression that nobody tells: what a file begins with."""

from __future__ import annotations

import bz2
import gzip
import zlib

import pytest

from asyncdata.errors import MissingDependencyError
from asyncdata.formats import compression as compression_module
from asyncdata.formats.compression import HEAD_BYTES, decompressor, recognised

ZSTD = bytes.fromhex("28b52ffd2403190000616263990977ad")  # "abc"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (gzip.compress(b"", mtime=0), "GZIP"),
        (bz2.compress(b""), "BZ2"),
        (bz2.compress(b"text", 1), "BZ2"),
        (ZSTD, "ZSTD"),
        (b"\x5f\x2a\x4d\x18\x00\x00\x00\x00" + ZSTD, "ZSTD"),  # a frame to be skipped comes first
        (zlib.compress(b"text"), None),
        (b"BZh91 or the like", None),
        (b"\x1f\x8b\x08\xffabcdefgh", None),
        (b"\x28\xb5\x2f", None),
        (b"\x50", None),
        (b"", None),
    ],
)
def test_recognised(data: bytes, kind: str | None) -> None:
    assert recognised(data[:HEAD_BYTES]) == kind


@pytest.mark.formats
def test_what_zstd_wrote() -> None:
    expand = decompressor("ZSTD", "file.zst")
    assert expand.feed(ZSTD) == b"abc"
    expand.finish()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(name, name=name)

    monkeypatch.setattr(compression_module, "import_module", missing)
    monkeypatch.setattr("asyncdata.system.optional_packages.import_module", missing)
    with pytest.raises(MissingDependencyError, match=r"needs backports.*pip install 'asyncdata\[formats\]'"):
        decompressor("ZSTD")
