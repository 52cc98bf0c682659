"""Files of tokens as users read them: those in tests/data were written by megatron-core."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.testing import check_resumes
from tests.data.write_tokens import DOCUMENTS, DTYPES, FOLDER
from tests.reference import Failed
from tests.remote.web import web
from tests.running import WAYS, results

PATH = FOLDER / "uint16.bin"

SEQUENCES = [*chain.from_iterable(DOCUMENTS)]

TOKENS = [*chain.from_iterable(SEQUENCES)]

ELEMENTS: dict[Any, list[list[int]]] = {
    "document": [[*chain.from_iterable(document)] for document in DOCUMENTS],
    "sequence": SEQUENCES,
    7: [TOKENS[begin : begin + 7] for begin in range(0, len(TOKENS) - 6, 7)],
}


def told(ds: ad.Dataset[Any]) -> list[Any]:
    return [one if isinstance(one, Failed) else one.tolist() for one in results(ds)]


@pytest.mark.parametrize("window", ELEMENTS)
def test_elements_are_those_that_were_written(window: Any) -> None:
    for dtype in DTYPES:
        found = [*ad.TokenDataset(FOLDER / f"{dtype}.bin", window)]
        assert [element.tolist() for element in found] == ELEMENTS[window]
        assert {element.dtype for element in found} == {np.dtype(dtype)}
        for element in found:
            element[...] = 0  # it may be changed, and is in no other
        assert told(ad.TokenDataset(FOLDER / f"{dtype}.bin", window)) == ELEMENTS[window]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("window", ELEMENTS)
def test_any_element_by_its_number(window: Any, way: Any) -> None:
    elements = ELEMENTS[window] * 2
    ds = ad.TokenDataset([PATH, PATH], window)
    assert len(ds) == len(elements)
    assert [element.tolist() for element in way(ds)] == elements
    assert ds[len(elements) - 3].tolist() == ds[-3].tolist() == elements[-3]
    shuffled = [element.tolist() for element in way(ds.shuffle(seed=1))]
    assert sorted(shuffled) == sorted(elements) != shuffled


@pytest.mark.parametrize("window", ELEMENTS)
def test_resumes(window: Any) -> None:
    check_resumes(lambda: ad.TokenDataset(PATH, window), places=len(ELEMENTS[window]))
    check_resumes(lambda: ad.TokenDataset([PATH, FOLDER / "int8.bin"], window).shuffle(seed=1).shard(2, 1), places=7)


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize(("length", "overlap"), [(1, 0), (4, 1), (9, 7), (200, 100)])
def test_windows_share_their_ends(length: int, overlap: int, drop: bool, tmp_path: Path) -> None:
    path, step = tmp_path / "a.bin", length - overlap
    for count in (0, 1, 9, 50, 300)[: 4 if length < 9 else 5]:
        tokens = np.arange(count, dtype=np.uint32)
        path.write_bytes(b"header" + tokens.tobytes())
        how: dict[str, Any] = {"overlap": overlap, "drop_remainder": drop, "header_bytes": 6}
        ds = ad.TokenDataset(path, length, dtype=np.uint32, **how)
        windows = [tokens[begin : begin + length].tolist() for begin in range(0, max(1, count - overlap), step)]
        expected = [window for window in windows if len(window) == length or (window and not drop)]
        assert told(ds) == expected == sorted(told(ds.shuffle(seed=1)))


def test_batches_of_windows() -> None:
    (batch,) = ad.TokenDataset(PATH, 9, overlap=1).batch(100)
    assert batch.dtype == np.uint16
    assert batch.tolist() == [TOKENS[begin : begin + 9] for begin in range(0, len(TOKENS) - 8, 8)]


@pytest.mark.parametrize("window", ELEMENTS)
def test_a_file_cut_anywhere_is_one_error(window: Any, tmp_path: Path) -> None:
    paths = [tmp_path / f"cut{suffix}" for suffix in (".bin", ".idx")]
    contents = [PATH.with_suffix(path.suffix).read_bytes() for path in paths]
    for path, content in zip(paths, contents, strict=True):
        for one, whole in zip(paths, contents, strict=True):
            one.write_bytes(whole)
        for size in range(0, len(content), 11):
            path.write_bytes(content[:size])
            ds = ad.TokenDataset([paths[0], PATH], window)
            assert told(ds) == [Failed("DataLossError"), *ELEMENTS[window]]
            assert told(ds.shuffle(seed=0)).count(Failed("DataLossError")) == 1
            with pytest.raises(ad.DataLossError, match=r"cut\.idx: "):
                list(ds)


@pytest.mark.parametrize("window", ["document", "sequence"])
def test_what_an_index_says_twice_is_compared(window: Any, tmp_path: Path) -> None:
    path, index = tmp_path / "a.bin", tmp_path / "a.idx"
    content, places = PATH.with_suffix(".idx").read_bytes(), 34 + 12 * len(SEQUENCES)
    path.write_bytes(PATH.read_bytes())
    for place in range(0, places, 37):  # the bounds of documents are there once
        index.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1 :])
        found = told(ad.TokenDataset(path, window))
        assert Failed("DataLossError") in found
        if len(found) > 1:
            wrong = [(one, other) for one, other in zip(found, ELEMENTS[window], strict=True) if one != other]
            assert {type(one) for one, _ in wrong} == {Failed}
            assert len(wrong) <= 2
        assert sorted(map(str, told(ad.TokenDataset(path, window).shuffle(seed=1)))) == sorted(map(str, found))


def test_raw_files_of_no_whole_tokens(tmp_path: Path) -> None:
    for size, header in ((7, 0), (4, 6)):
        (tmp_path / "a.bin").write_bytes(bytes(size))
        ds = ad.TokenDataset([tmp_path / "a.bin", tmp_path / "none.bin", PATH], 7, dtype="uint16", header_bytes=header)
        assert told(ds)[:2] == [Failed("DataLossError"), Failed("FileNotFoundError")]
        assert len(told(ds)) == len(ds) == 2 + len(ELEMENTS[7])
        with pytest.raises(ad.DataLossError, match=rf"a\.bin: {size} bytes are no tokens of uint16"):
            list(ds)


def test_a_file_that_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(20))
    ds = ad.TokenDataset(path, 5, dtype="uint16")
    assert len(ds) == 2
    path.write_bytes(bytes(10))
    assert told(ds) == [Failed("DataLossError")]
    with pytest.raises(ad.DataLossError, match=r"a\.bin: the file has changed"):
        ds[0]


def test_a_state_of_a_file_whose_index_was_damaged_since(tmp_path: Path) -> None:
    path, index = tmp_path / "a.bin", tmp_path / "a.idx"
    path.write_bytes(PATH.read_bytes())
    index.write_bytes(content := PATH.with_suffix(".idx").read_bytes())
    with iter(ad.TokenDataset(path)) as documents:
        next(documents)
        state = documents.state_dict()
    index.write_bytes(b"?" + content[1:])
    with ad.TokenDataset(path).iterate(state=state) as rest, pytest.raises(ad.ResumeError, match=r"a\.idx: "):
        list(rest)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"dtype": "uint16"}, "'document'.* needs an index, which raw files do not have"),
        ({"window": 0}, "must be at least 1"),
        ({"window": 5, "overlap": 5}, "must be at least 6"),
        ({"window": "word"}, "must be a number of tokens, 'document' or 'sequence', got 'word'"),
        ({"overlap": 1}, "has no overlap"),
        ({"window": 5, "dtype": "str"}, "must be a dtype of numbers"),
        ({"window": 5, "header_bytes": 4}, "for raw files"),
        ({"filenames": "a.tokens"}, r"a\.tokens is no \.bin file.*'uint16'"),
        ({"filenames": "https://host/a.bin"}, "remote files need cache_dir="),
    ],
)
def test_what_is_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ad.TokenDataset(**{"filenames": PATH} | how)


def test_files_on_a_web_server(tmp_path: Path) -> None:
    with web() as server:
        url = server.put("a/tokens.bin", PATH.read_bytes())
        server.put("a/tokens.idx", PATH.with_suffix(".idx").read_bytes())
        ds = ad.TokenDataset(url, cache_dir=tmp_path)
        assert told(ds) == ELEMENTS["document"]
        assert ds[7].tolist() == ELEMENTS["document"][7]
        check_resumes(lambda: ad.TokenDataset(url, cache_dir=tmp_path), places=5)
