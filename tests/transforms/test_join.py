"""join as users see it: pairs by key, whatever is on the other side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.sources import key_index
from asyncdata.testing import check_resumes, check_transform
from asyncdata.transforms import join
from tests.formats.test_webdataset import archive
from tests.reference import Boom, Failed
from tests.running import WAYS, read_plain

STRINGS = getattr(np.dtypes, "StringDType", lambda: "U40")()

HALF = ad.Dataset.range(0, 100, 2)
"""Of the numbers below 100 every other one."""


def itself(x: int) -> int:
    return x


def rows(**columns: Any) -> ad.Dataset[Any]:
    return ad.Dataset.from_list([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])


@pytest.mark.parametrize("how", ["inner", "left", "exact"])
def test_keeps_its_contract(how: Any) -> None:
    check_transform(
        lambda ds: ds.join(ad.Dataset.range(1000).map(lambda x: 999 - x), itself, how=how),
        lambda items: [(item, item) for item in items],
    )


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("inner", [(4, 4), (2, 2), (4, 4)]),
        ("left", [(4, 4), (3, None), (2, 2), (4, 4)]),
        ("exact", [(4, 4), Failed("KeyError"), (2, 2), (4, 4)]),
    ],
)
def test_what_has_no_match(how: Any, expected: list[Any], way: Any) -> None:
    assert way(ad.Dataset.from_list([4, 3, 2, 4]).join(HALF, itself, how)) == expected


@pytest.mark.parametrize("placement", ["current", "process"])
def test_what_has_no_match_is_counted(placement: Any) -> None:
    ds = ad.Dataset.range(40).join(HALF, itself).with_options(ad.Options(placement=placement))
    with ds.iterate() as pairs:
        assert len([*pairs]) == 20
        assert sum(step.excluded for step in pairs.stats().steps) == 20
        assert ": 20 left out" in str(pairs.stats())


def test_fields_and_functions() -> None:
    images, texts = rows(id=[3, 1, 2], size=[5, 6, 7]), rows(name=["1", "2"], text=["one", "two"])
    pairs = images.join(texts, on=(lambda image: str(image["id"]), "name"))
    assert [(image["size"], text["text"]) for image, text in pairs] == [(6, "one"), (7, "two")]
    tuples = ad.Dataset.from_list([("a", 1), ("b", 2)])
    assert list(tuples.join(ad.Dataset.from_list([("b", 3)]), on=0)) == [(("b", 2), ("b", 3))]
    assert list(tuples.join(ad.Dataset.from_list([(2, "b")]), on=(lambda name, number: (number, name), lambda *x: x)))
    twice = images.join(texts, (lambda image: str(image["id"]), "name")).join(images, (lambda one, _: one["id"], "id"))
    assert [(one["id"], other["size"]) for (one, _), other in twice] == [(1, 6), (2, 7)]


def test_equal_values_are_one_key_and_others_are_not() -> None:
    own = ad.Dataset.range(6)
    keys = [1.0, True, "1", b"1", None, (1, "x")]
    others = [1, "1", None, [1, "x"]]
    pairs = own.join(ad.Dataset.range(4), (keys.__getitem__, others.__getitem__), "left")
    assert [other for _, other in pairs] == [0, 0, 1, None, 2, 3]


@pytest.mark.parametrize("how", ["inner", "left", "exact"])
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ([1, 2], "key is a number, and in .* is text"),
        ([b"1"], "is bytes,"),
        ([np.array(["1", "2"])], "is an array of dtype <U1,"),
    ],
)
def test_keys_of_another_kind_are_an_error(how: Any, keys: list[Any], message: str) -> None:
    texts = rows(id=["1", None], text=["one", "none"])
    own = ["1", *keys, None]
    pairs = ad.Dataset.range(len(own)).join(texts, (own.__getitem__, "id"), how)
    with pairs.iterate() as elements:
        assert next(elements)[1]["text"] == "one"
        for _ in keys:
            with pytest.raises(TypeError, match=message):
                next(elements)
        assert next(elements)[1]["text"] == "none"


def test_a_field_that_is_not_there_is_named_with_those_that_are() -> None:
    ds = ad.Dataset.range(2).map(lambda x: {"image_id": x})
    for pairs in (ds.join(ds, ("id", "image_id")), ds.join(ds, ("image_id", "id"))):
        with pytest.raises(KeyError) as caught:
            list(pairs)
        assert "names the field 'id', and the element is ['image_id']: on=(this, other)" in caught.value.__notes__[0]


def test_arrays_are_keys_by_their_values() -> None:
    names = [np.array([name * 40], STRINGS) for name in "abc"]
    pairs = ad.Dataset.range(3).join(ad.Dataset.range(3), (names[::-1].__getitem__, names.__getitem__))
    assert list(pairs) == [(0, 2), (1, 1), (2, 0)]
    numbers = ad.Dataset.range(3).join(ad.Dataset.range(3), (lambda x: np.array(int(x)), int))
    assert list(numbers) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("dtype", ["int32", "float64", ">i8", "U4", [("a", "i8")]])
def test_arrays_of_another_dtype_are_an_error(dtype: Any) -> None:
    """They match none of the other dataset, and an inner join left all of them out."""
    own, other = np.zeros(2, dtype), np.zeros(2, "int64")
    ds = ad.Dataset.range(1)
    with pytest.raises(TypeError, match="the key is an array.*each key is an array of dtype <i8, which is never equal"):
        list(ds.join(ds, (lambda _: own, lambda _: other)))
    assert list(ds.join(ds, (lambda _: other, lambda _: other.copy()))) == [(0, 0)]
    several = ad.Dataset.range(2)
    assert not list(ds.join(several, (lambda _: own, [other, np.zeros(1, "int8")].__getitem__)))


def test_equal_keys_of_the_other_dataset_are_an_error() -> None:
    ds = ad.Dataset.range(3).join(ad.Dataset.from_list([7, 8, 9, 8]), itself)
    with pytest.raises(ad.PlanError, match=r"elements 1 and 3 of the other dataset have the same key"):
        list(ds)


def test_hashes_that_are_equal_by_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "key_hash", lambda key: len(key))
    numbers = ad.Dataset.range(60).join(HALF.skip(3), itself)
    assert list(numbers) == [(x, x) for x in range(6, 60, 2)]
    with pytest.raises(ad.PlanError, match="elements 2 and 5 "):
        list(numbers.join(ad.Dataset.from_list([11, 12, 13, 4, 15, 13]), (lambda one, _: one, itself)))


def test_many_keys_are_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "PART", 64)
    monkeypatch.setattr(join, "READ", 10)
    odd = ad.Dataset.range(3000).map(lambda x: 3 * x)
    ds = ad.Dataset.range(9000).join(odd, itself)
    assert list(ds) == [(x, x) for x in range(0, 9000, 3)]
    check_resumes(lambda: ds, places=2)
    assert isinstance(ds.plan.keys.index.rows, np.memmap)  # type: ignore[attr-defined]
    same = ad.Dataset.range(5).join(odd.map(lambda x: min(x, 8994)), itself)
    with pytest.raises(ad.PlanError, match="elements 2998 and 2999 "):
        list(same)


def test_resumes_also_from_what_was_held() -> None:
    check_resumes(
        lambda: (
            ad.Dataset.range(40)
            .shuffle(seed=1)
            .join(HALF.map(lambda x: 98 - x), itself)
            .shuffle(7, seed=2)
            .batch(3)
            .repeat(2)
        )
    )
    check_resumes(lambda: ad.Dataset.range(20).join(HALF, itself, "left").shuffle(seed=3).batch(3))


def test_other_keys_than_those_of_the_state_are_an_error() -> None:
    with ad.Dataset.range(9).join(ad.Dataset.from_list([*range(9)]), itself).iterate() as elements:
        next(elements)
        state = json.loads(json.dumps(elements.state_dict()))
    for other in ([*range(1, 10)], [*range(8, -1, -1)]):
        ds = ad.Dataset.range(9).join(ad.Dataset.from_list(other), itself)
        with ds.iterate(state=state) as elements, pytest.raises(ad.ResumeError, match="has other keys, or in other"):
            list(elements)


def test_keys_that_change_after_they_were_read_are_errors() -> None:
    keys = [*range(5)]
    ds = ad.Dataset.range(5).join(ad.Dataset.from_source(range(5)).map(keys.__getitem__), itself)
    assert len(list(ds)) == 5
    keys[3] = 7
    assert read_plain(ds) == [(0, 0), (1, 1), (2, 2), Failed("DataLossError"), (4, 4)]


def test_what_fails() -> None:
    def fail_at_4(x: int) -> int:
        if x == 4 and failing:
            raise Boom(x)
        return x

    failing, numbers = False, ad.Dataset.range(7)
    ds = numbers.join(HALF.map(fail_at_4), itself)
    assert len(read_plain(ds)) == 4
    failing = True
    assert read_plain(ds) == [(0, 0), (2, 2), Failed("Boom(4)"), (6, 6)]
    assert read_plain(numbers.join(HALF, (fail_at_4, itself))) == [(0, 0), (2, 2), Failed("Boom(4)"), (6, 6)]
    with pytest.raises(Boom) as caught:
        list(numbers.join(HALF.map(fail_at_4), itself))
    assert "while join(itself) read the keys of the other dataset" in caught.value.__notes__
    with pytest.raises(KeyError, match="with the key 1") as missing:
        list(numbers.join(HALF, itself, how="exact"))
    assert "in join(itself, how=exact), element 1" in missing.value.__notes__


def test_an_element_has_the_origin_of_both_records_and_is_left_out_with_either() -> None:
    ds = ad.Dataset.range(50, 60).join(HALF, itself, how="left").batch(2)
    with ds.iterate() as elements:
        batch = next(elements)
        origin = json.loads(json.dumps(elements.origin()))
    assert ds.locate(origin) == [
        {"source": "range(50, 60)", "index": 0, "dataset": 0},
        {"source": "range(0, 100, 2)", "index": 25, "dataset": 1},
        {"source": "range(50, 60)", "index": 1, "dataset": 0},
    ]
    with ds.replay([origin]) as again:
        assert str(next(again)) == str(batch)
    rest = ds.exclude([{"source": "range(0, 100, 2)", "index": 26}, {"source": "range(50, 60)", "index": 1}]).unbatch()
    assert [int(one) for one, _ in rest] == [50, *range(53, 60)]
    with pytest.raises(ad.PlanError, match="batch after join"):
        ad.Dataset.range(4).batch(2).join(HALF, len).exclude([{"source": "range(4)", "index": 1}])


def test_archives(tmp_path: Path) -> None:
    for name, extension, keys in (("images", "jpg", "cabd"), ("texts", "txt", "dbxa")):
        (tmp_path / f"{name}.tar").write_bytes(archive(*((f"{key}.{extension}", key.encode()) for key in keys)))
    images = ad.WebDataset(tmp_path / "images.tar", index=True)
    texts = ad.WebDataset(tmp_path / "texts.tar", index=True)
    ds = images.shuffle(seed=0).join(texts, on="__key__")
    assert sorted((one["jpg"], other["txt"]) for one, other in ds) == [(b"a", "a"), (b"b", "b"), (b"d", "d")]
    check_resumes(lambda: ds)
    with pytest.raises(ad.PlanError, match="open its files with index=True"):
        images.join(ad.WebDataset(tmp_path / "texts.tar"), on="__key__")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((3, "id"), "join needs a Dataset"),
        ((HALF, "id", "outer"), r"join\(how=\) must be one of"),
        ((HALF, 0.5), r"join\(on=\) must be a field"),
        ((HALF, ("a", "b", "c")), r"join\(on=\) must be a field, a function that returns a key, or two of these"),
        ((ad.Dataset.from_tensor_slices({"a": [1]}), (itself, "b")), "elements have no field 'b'"),
        ((HALF, lambda x, y: x), "is called with one argument"),
        ((HALF.filter(bool), itself), "put filters and shuffles after the join"),
        ((HALF.shuffle(seed=1), itself), "put filters and shuffles after the join"),
        ((ad.Dataset.counter(), itself), "reads elements of the other dataset by number"),
    ],
)
def test_wrong_arguments(arguments: Any, message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ad.Dataset.range(3).join(*arguments)
