"""What each format has to do: go on anywhere, be read in any order, and say what is wrong with a file."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.formats.table import FORMATS, Format

SOME = 40
"""Places where a file is damaged, at least."""
AT_ONCE = 50
"""Files that are read by one pipeline, as most of the time is its start."""
MOST = 10_000
"""More elements and errors than they have."""

NUMBERS = range(8)
FEW = range(4)
"""Elements of a file that is cut at every byte: of Parquet and Arrow two groups of rows."""
LATER = range(8, 13)


def parametrized(*names: str, slow: bool = False) -> pytest.MarkDecorator:
    """Return the formats with these names, those that need packages marked as such."""
    params = []
    for name in names or FORMATS:
        marks = [pytest.mark.formats] if FORMATS[name].needs else []
        params.append(pytest.param(name, id=name, marks=[*marks, pytest.mark.slow] if slow else marks))
    return pytest.mark.parametrize("name", params)


def outcomes(ds: ad.Dataset[Any]) -> list[Any]:
    """Read to the end; errors stand in their places, and one that ends the pipeline comes again and again."""

    def each() -> Iterator[Any]:
        with ds.iterate() as elements:
            for _ in range(MOST):
                try:
                    yield next(elements)
                except StopIteration:
                    return
                except Exception as error:
                    yield error

    found = [*each()]
    assert len(found) < MOST
    return found


def told(elements: Iterable[Any]) -> list[Any]:
    """Return elements as what JSON has, and bytes, whose values can be compared."""
    return [value_of(element) for element in elements]


def value_of(element: Any) -> Any:
    if isinstance(element, dict):
        return {name: value_of(value) for name, value in element.items()}
    return element.tolist() if isinstance(element, (np.ndarray, np.generic)) else element


def expected(form: Format, numbers: range) -> list[Any]:
    return [form.element(number) for number in numbers]


@pytest.fixture
def files(name: str, tmp_path: Path) -> list[Path]:
    """Two files of a format."""
    form = FORMATS[name]
    return [form.write(tmp_path / f"{place}.{name}", some) for place, some in enumerate((NUMBERS, LATER))]


@parametrized()
def test_goes_on_at_every_element(name: str, files: list[Path]) -> None:
    form = FORMATS[name]
    assert told(form.read(files)) == told(expected(form, range(13)))
    check_resumes(lambda: form.read(files), places=100)


@parametrized(*(name for name, form in FORMATS.items() if form.indexed))
def test_any_order(name: str, files: list[Path]) -> None:
    form = FORMATS[name]
    ds = form.read(files, index=True)
    whole = told(expected(form, range(13)))
    assert len(ds) == 13
    assert told(ds) == told(ds[place] for place in range(13)) == whole
    shuffled = told(form.read(files, index=True).shuffle(seed=3))
    assert shuffled != whole
    assert sorted(map(str, shuffled)) == sorted(map(str, whole))
    assert told(form.read(files, index=True).shuffle(seed=4)) != shuffled
    check_resumes(lambda: form.read(files, index=True).shuffle(seed=3), places=100)
    check_resumes(lambda: form.read(files, index=True).shuffle(seed=3).batch(4).unbatch(), places=100)


DAMAGED = [name for name in FORMATS if name not in ("datasets", "pytorch")]
"""Those whose files are read here. Hugging Face opens its files itself, and tells what is wrong with them."""


EXPECTED = "expect|end marker|bytes too early|is not valid JSON|ends within the member"
"""How messages say what should have been there."""


Check = Callable[[Format, Path, list[Any]], None]
"""Checks what was read of a damaged file."""


def check_each(form: Format, whole: Path, damaged: list[Path], index: bool, check: Check) -> None:
    """Check what is read of damaged files, and of a whole one behind each of them."""
    found = outcomes(form.read([path for one in damaged for path in (one, whole)], index=index))
    after = told(expected(form, LATER))
    for path in damaged:
        end = next((place for place, one in enumerate(found) if value_of(one) == after[0]), len(found))
        assert told(found[end : end + len(after)]) == after, f"the file behind {path.name}"
        check(form, path, found[:end])
        found = found[end + len(after) :]
    assert not found


def check_cut(form: Format, cut: Path, found: list[Any]) -> None:
    """Check what is read of a file that is cut short."""
    errors = [one for one in found if isinstance(one, Exception)]
    before = [*takewhile(lambda one: not isinstance(one, Exception), found)]
    assert told(before) == told(expected(form, NUMBERS))[: len(before)], "what came before"
    if not errors:  # it ends where an element does, which such a format cannot tell from a whole file
        return
    assert len(before) == len(found) - 1
    (error,) = errors
    assert isinstance(error, ad.DataLossError)
    assert re.search(rf"{re.escape(cut.name)}: .*\bbyte \d+", str(error)), str(error)
    assert re.search(EXPECTED, str(error), re.IGNORECASE), str(error)


def places(content: bytes, apart: int) -> list[int]:
    """Return where to damage a file: at each byte, but only at some of those between zeros, as there is padding; of
    these each one that is `apart` from the last, or more if they would be fewer than `SOME`."""
    found = [end for end in range(len(content)) if end % 97 == 0 or any(content[max(0, end - 2) : end + 2])]
    return found[:: max(1, min(apart, len(found) // SOME))]


def cut(content: bytes, place: int) -> bytes:
    return content[:place]


def changed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :]


def damage_everywhere(
    name: str, files: list[Path], apart: int, damage: Callable[[bytes, int], bytes], check: Check
) -> int:
    """Check what is read of files that were damaged, each at one place; return how many there were."""
    form, (first, second) = FORMATS[name], files
    content = first.read_bytes()
    ends = places(content, apart)
    for some in (ends[begin : begin + AT_ONCE] for begin in range(0, len(ends), AT_ONCE)):
        damaged = [first.with_name(f"at-{end}.{name}") for end in some]
        for end, path in zip(some, damaged, strict=True):
            path.write_bytes(damage(content, end))
        for index in (False, True) if form.indexed else (False,):
            check_each(form, second, damaged, index, check)
        for path in damaged:
            path.unlink()
    return len(ends)


def cut_everywhere(name: str, files: list[Path], apart: int) -> int:
    return damage_everywhere(name, files, apart, cut, check_cut)


@parametrized(*DAMAGED)
def test_cut_short_at_some_bytes(name: str, files: list[Path]) -> None:
    assert cut_everywhere(name, files, files[0].stat().st_size) >= SOME


@parametrized(*DAMAGED, slow=True)
def test_cut_short_at_every_byte(name: str, files: list[Path]) -> None:
    FORMATS[name].write(files[0], FEW)
    assert cut_everywhere(name, files, 1) >= SOME


def check_changed(form: Format, path: Path, found: list[Any], numbers: range = NUMBERS) -> None:
    """Check what is read of a file in which one byte was changed: where checksums are, no other elements."""
    errors = [one for one in found if isinstance(one, Exception)]
    for error in errors:
        if not isinstance(error, ad.DataLossError):  # of a decoder of WebDataset
            assert isinstance(error, ValueError)
            assert any(str(path) in note for note in error.__notes__), error.__notes__
        else:
            assert str(error).startswith(f"{path}: "), str(error)
    place = int(path.name.split(".")[0].removeprefix("at-"))
    if form.checksums is not None and place in form.checksums(changed(path.read_bytes(), place)):
        whole, same = told(expected(form, numbers)), told(found)
        others = [one for one in same if one not in whole and not isinstance(one, Exception)]
        assert same == whole or errors, "elements were lost"
        assert not others or (form.checked_at_end and errors), "other elements"


@parametrized(*DAMAGED)
def test_a_byte_changed_at_some_places(name: str, files: list[Path]) -> None:
    assert damage_everywhere(name, files, 97, changed, check_changed) >= SOME


@parametrized(*DAMAGED, slow=True)
def test_each_byte_changed(name: str, files: list[Path]) -> None:
    FORMATS[name].write(files[0], FEW)
    assert damage_everywhere(name, files, 1, changed, partial(check_changed, numbers=FEW)) >= SOME


def foreign() -> dict[str, bytes]:
    """Contents that are of no format, or of another one than a reader's."""
    found = {
        "text": b"Some text, and not a word of it is data.\n" * 30,
        "zeros": bytes(4096),
        "noise": random.Random(0).randbytes(5000),
        "picture": b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 4,
        "pickle": b"cos\nsystem\n(S'touch was-here'\ntR.",
        "gzip of text": gzip.compress(b"Some text\n" * 300),
    }
    for name in ("jsonl", "tfrecord", "tar", "npy", "npz"):
        found[name] = FORMATS[name].content(NUMBERS)
    with suppress(pytest.skip.Exception):
        found |= {name: FORMATS[name].content(NUMBERS) for name in ("parquet", "arrow", "arrows", "array_record")}
    return found


OWN = {"jsonl": ["jsonl"], "tar": ["tar", "zeros"], "npy": ["npy", "npz"], "arrow": ["arrow", "arrows"]}
"""Contents that readers are for. Zeros are the mark of an archive's end."""


@parametrized(*DAMAGED)
def test_foreign_bytes_are_errors_and_the_next_file_goes_on(
    name: str, files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files[0].parent)
    form, other = FORMATS[name], files[0].with_name(f"other.{name}")
    own = next((kinds for kinds in OWN.values() if name.partition(".")[0] in kinds), [name])
    for kind, content in foreign().items():
        if kind in own:
            continue
        other.write_bytes(content)
        for index in (False, True) if form.indexed else (False,):
            found = outcomes(form.read([other, files[1]], index=index))
            assert told(found[-len(LATER) :]) == told(expected(form, LATER)), kind
            errors = found[: -len(LATER)]
            assert errors, kind
            for error in errors:
                assert isinstance(error, ad.DataLossError), (kind, error)
                assert re.search(rf"{re.escape(other.name)}: ", str(error)), (kind, str(error))
                assert re.search(r"byte \d+|is compressed", str(error)), (kind, str(error))
    assert not Path("was-here").exists(), "a pickle was executed"


@parametrized()
def test_empty_files(name: str, files: list[Path]) -> None:
    """What a writer makes of no elements is read as such."""
    form = FORMATS[name]
    form.write(files[0], range(0))
    assert told(form.read(files)) == told(expected(form, LATER))
    if form.indexed:
        assert len(form.read(files, index=True)) == len(LATER)
