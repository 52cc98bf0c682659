"""Pictures as arrays, by each package that is installed."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.formats import audio, images
from asyncdata.formats.images import DECODERS, is_installed, jpeg_components

Image = pytest.importorskip("PIL.Image")

SMALL = np.random.default_rng(0).integers(0, 256, (9, 12, 3), np.uint8)

PICTURE = np.asarray(Image.fromarray(SMALL).resize((120, 90)))
"""Smooth, as photos are."""

WAYS: list[dict[str, Any]] = [{}, {"subsampling": 0}, {"progressive": True}, {"quality": 30}, {"optimize": True}]


def encoded(picture: Any, kind: str, **how: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **how)
    return file.getvalue()


def jpeg(**how: Any) -> bytes:
    return encoded(Image.fromarray(PICTURE), "JPEG", **how)


def test_pictures_without_loss_are_what_was_stored() -> None:
    for kind in ("PNG", "BMP", "TIFF"):
        found = ad.decode_image(encoded(Image.fromarray(PICTURE), kind))
        assert np.array_equal(found, PICTURE)
        found[...] = 0  # it may be changed
    grey = Image.fromarray(PICTURE[:, :, 0])
    assert np.array_equal(ad.decode_image(encoded(grey, "PNG"), channels=1), PICTURE[:, :, :1])
    assert np.array_equal(ad.decode_image(encoded(grey, "PNG")), np.repeat(PICTURE[:, :, :1], 3, axis=2))
    clear = np.dstack([PICTURE, np.zeros((90, 120), np.uint8)])
    assert np.array_equal(ad.decode_image(encoded(Image.fromarray(clear), "PNG")), PICTURE)


def test_a_picture_is_not_turned() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    assert ad.decode_image(jpeg(exif=exif)).shape == (90, 120, 3)
    assert np.array_equal(ad.decode_image(jpeg(exif=exif)), ad.decode_image(jpeg()))


def test_components_of_jpeg() -> None:
    for mode, count in (("L", 1), ("RGB", 3), ("CMYK", 4)):
        content = encoded(Image.fromarray(PICTURE).convert(mode), "JPEG", progressive=True)
        assert jpeg_components(content) == count
        assert ad.decode_image(content).shape == (90, 120, 3)
    assert [jpeg_components(content) for content in (b"", b"\xff\xd8\xff", encoded(Image.fromarray(SMALL), "PNG"))] == [
        0
    ] * 3


def test_each_package_gives_the_same() -> None:
    names = [name for name in DECODERS if is_installed(name)]
    for how in WAYS:
        for channels, most in ((3, 0), (1, 1)):
            found = [DECODERS[name](jpeg(**how), channels).astype(int) for name in names]
            assert {one.shape for one in found} == {(90, 120, channels)}
            assert max(np.abs(one - found[0]).max() for one in found) <= most


def test_explain_names_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    def sample(row: Any) -> Any:
        return ad.decode_image(row[0]), ad.decode_audio(row[1])

    monkeypatch.setattr(images, "decoder_name", lambda: "simplejpeg")
    monkeypatch.setattr(audio, "decoder_name", lambda: "soundfile")
    files = ad.Dataset.from_list([b""])
    shown = "\ndecoders   decode_image: JPEG by simplejpeg, other pictures by PIL"
    assert f"{shown}\n" in str(files.map(ad.decode_image).explain())
    assert f"{shown}; decode_audio: soundfile, what it does not know by av\n" in str(files.map(sample).explain())
    assert "decoders" not in str(files.map(len).explain())


def test_versions_that_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "find_spec", lambda _: True)
    for name, version, used in (
        ("torchcodec", "0.15.0", False),
        ("torchcodec", "0.16.0+cpu", True),
        ("torchcodec", "1.0", True),
        ("torchvision", "0.28.1+cu130", True),
        ("torchvision", "0.29.0", False),
    ):
        monkeypatch.setattr(images.metadata, "version", lambda _, found=version: found)
        assert is_installed(name) == used


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_pictures_cut_anywhere_are_errors(kind: str) -> None:
    content = encoded(Image.fromarray(PICTURE), kind)
    whole, failed = ad.decode_image(content), 0
    sizes = range(0, len(content) - 20, 97)
    for size in sizes:
        try:
            assert np.array_equal(ad.decode_image(content[:size]), whole)  # only a checksum is missing
        except ad.DataLossError as error:
            assert str(error).startswith(f"decode_image: {size} bytes are no picture")  # noqa: PT017
            failed += 1
    assert failed >= len(sizes) - 2


def test_what_is_no_picture_is_shown() -> None:
    with pytest.raises(ad.DataLossError, match=r"11 bytes are no picture: they begin with b'no pictu'"):
        ad.decode_image(b"no picture!")


def png(pixels: Any, color: int) -> bytes:
    """A picture of 16 bits per value, which Pillow writes in grey alone."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 16, color, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "contents",
    [
        *(png(np.ones((3, 4, values)), color) for color, values in ((0, 1), (2, 3), (4, 2), (6, 4))),
        b"P6 2 2 65535\n" + bytes(24),
        b"P6 2 2 1023\n" + bytes(24),
        b"P5 2 2 65535\n" + bytes(8),
    ],
    ids=["grey", "RGB", "grey and alpha", "RGBA", "PPM", "PPM of 10 bits", "PGM"],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_values_of_more_than_8_bits_are_not_cut_off(contents: bytes, channels: int) -> None:
    with pytest.raises(ad.StructureError, match="8 bits per value are decoded, got the mode"):
        ad.decode_image(contents, channels=channels)


def test_unusual_pictures_are_what_was_stored() -> None:
    picture = Image.fromarray(PICTURE)
    grey = np.asarray(picture.convert("L"))
    assert np.array_equal(ad.decode_image(encoded(picture.convert("LA"), "PNG"), channels=1)[:, :, 0], grey)
    palette = picture.quantize(16)
    colours = np.asarray(palette.convert("RGB"))
    assert np.array_equal(ad.decode_image(encoded(palette, "PNG", transparency=0)), colours)
    assert np.array_equal(ad.decode_image(encoded(palette, "GIF", save_all=True, append_images=[palette])), colours)
    other = Image.fromarray(PICTURE[::-1])
    moving = encoded(picture, "WEBP", lossless=True, save_all=True, append_images=[other])
    assert np.array_equal(ad.decode_image(moving), PICTURE)
    small = encoded(Image.fromarray(SMALL[:2, :2]), "PPM")
    assert np.array_equal(ad.decode_image(small), SMALL[:2, :2])
    assert ad.decode_image(b"P1 2 1\n1 0\n", channels=1).tolist() == [[[0], [255]]]


def test_what_is_refused() -> None:
    with pytest.raises(ad.StructureError, match="8 bits per value are decoded, got the mode I"):
        ad.decode_image(encoded(Image.fromarray(np.zeros((2, 2), np.uint16)), "PNG"))
    with pytest.raises(ad.PlanError, match=r"decode_image\(channels=\) must be 1 or 3, got 4"):
        ad.decode_image(b"", channels=4)
    with pytest.raises(ad.PlanError, match=r"takes the bytes of a file, got 'a\.jpg': read it by"):
        ad.decode_image("a.jpg")  # type: ignore[arg-type]
    labelled = ad.Dataset.from_tensors((b"", 1))  # a label is no number of channels
    with pytest.raises(ad.PlanError, match=r"map\(decode_image\)"):
        labelled.map(ad.decode_image)  # type: ignore[arg-type]
