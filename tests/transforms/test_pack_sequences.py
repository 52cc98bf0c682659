from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.testing import check_resumes, check_transform
from tests import reference
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import results
from tests.states import edited

HOW: list[dict[str, Any]] = [
    {},
    {"open_rows": 1},
    {"open_rows": 3, "overlong": "truncate"},
    {"open_rows": 2, "overlong": "split"},
    {"open_rows": 2, "overlong": "split", "max_sequences": 2},
    {"strategy": "best_fit", "open_rows": 3, "overlong": "split"},
    {"strategy": "concat_then_split"},
]


def sequences(sizes: list[int]) -> list[Any]:
    """Sequence i has tokens 100 i + 1, 100 i + 2 and so on, so that each token says where it is from."""
    return [np.arange(size) + 100 * number + 1 for number, size in enumerate(sizes)]


def packed(items: list[Any], length: int, **how: Any) -> list[Any]:
    return list(ad.Dataset.from_iterable(items).pack_sequences(length, **how))


def inputs(rows: list[Any]) -> list[list[int]]:
    return [row["inputs"].tolist() for row in rows]


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("length", first_by_default([8, 1, 50]))
def test_keeps_its_contract(length: int, how: dict[str, Any]) -> None:
    ragged = [np.arange(i * 7 % 11) for i in range(60)]
    check_transform(
        lambda ds: ds.filter(lambda x: how.get("overlong") or len(x) <= length).pack_sequences(length, **how),
        lambda items: reference.pack_sequences(
            [x for x in items if how.get("overlong") or len(x) <= length], length, **how
        ),
        [(), ([1],), [[1, 2], [3]], ragged],
    )


@given(
    sizes=st.lists(st.integers(0, 40), max_size=40),
    length=st.integers(1, 30),
    how=st.sampled_from([how for how in HOW if how.get("overlong") == "split" or "strategy" in how]),
)
def test_every_token_comes_once_and_in_order_within_its_sequence(
    sizes: list[int], length: int, how: dict[str, Any]
) -> None:
    given = sequences(sizes)
    rows = packed(given, length, **how)
    found: dict[int, list[int]] = {number: [] for number in range(len(given))}
    for row in rows:
        tokens, segments, positions = row["inputs"], row["inputs_segment_ids"], row["inputs_positions"]
        assert tokens.shape == segments.shape == positions.shape == (length,)
        used = int((segments > 0).sum())
        assert (segments[:used] > 0).all()
        assert not tokens[used:].any()
        assert not positions[used:].any()
        assert np.unique(segments[:used]).tolist() == list(range(1, segments.max() + 1))
        for segment in range(1, segments.max() + 1):
            mine = segments == segment
            (number,) = set(((tokens[mine] - 1) // 100).tolist())  # a segment is of one sequence
            assert positions[mine].tolist() == list(range(mine.sum()))
            found[number] += tokens[mine].tolist()
    assert found == {number: tokens.tolist() for number, tokens in enumerate(given)}


@given(
    sizes=st.lists(st.integers(1, 20), max_size=60),
    open_rows=st.integers(1, 8),
    strategy=st.sampled_from(["first_fit", "best_fit"]),
)
def test_fitting_cuts_no_sequence_and_keeps_no_more_rows_open_than_asked_for(
    sizes: list[int], open_rows: int, strategy: Any
) -> None:
    given = sequences(sizes)
    read = 0

    def counted(x: Any) -> Any:
        nonlocal read
        read += 1
        return x

    options = ad.Options(optimize=False, placement="current")
    ds = ad.Dataset.from_iterable(given).map(counted).pack_sequences(20, strategy=strategy, open_rows=open_rows)
    whole = {tuple(tokens.tolist()) for tokens in given}
    given_out = 0
    for row in ds.with_options(options):
        for segment in range(1, row["inputs_segment_ids"].max() + 1):
            assert tuple(row["inputs"][row["inputs_segment_ids"] == segment].tolist()) in whole
            given_out += int((row["inputs_segment_ids"] == segment).sum())
        assert sum(sizes[:read]) - given_out <= open_rows * 20
    assert given_out == sum(sizes)


def test_one_next_reads_no_more_than_it_needs() -> None:
    read: list[int] = []
    ds = ad.Dataset.range(100).map(lambda i: read.append(i) or [i] * 4).pack_sequences(8, open_rows=2)
    with ds.with_options(ad.Options(optimize=False)).iterate() as rows:
        next(rows)
        assert read == [0, 1]
        next(rows)
        assert read == [0, 1, 2, 3]


def test_a_row_is_given_out_when_it_is_full_and_the_fullest_when_there_is_no_room() -> None:
    given = sequences([6, 5, 4, 2, 7])
    rows = packed(given, 8, open_rows=2)
    assert [sorted({token // 100 for token in row if token}) for row in inputs(rows)] == [[0], [1, 3], [2], [4]]
    rows = packed(given, 8, open_rows=3)
    assert [sorted({token // 100 for token in row if token}) for row in inputs(rows)] == [[0, 3], [1], [2], [4]]


def test_best_fit_takes_the_fullest_row_that_has_space() -> None:
    given = sequences([3, 7, 2, 5, 1])
    found = {
        strategy: [
            sorted({token // 100 for token in row if token}) for row in inputs(packed(given, 9, strategy=strategy))
        ]
        for strategy in ("first_fit", "best_fit")
    }
    assert found == {"first_fit": [[0, 2, 4], [1], [3]], "best_fit": [[1, 2], [0, 3, 4]]}


def test_a_row_has_no_more_sequences_than_asked() -> None:
    found = inputs(packed(sequences([2, 1, 0, 1, 5, 1]), 8, max_sequences=2))
    assert [[token // 100 for token in row if token] for row in found] == [[0, 0, 1], [3, *[4] * 5], [5]]


def test_a_stream_is_cut_where_a_row_ends() -> None:
    rows = packed(sequences([5, 1, 7]), 4, strategy="concat_then_split", padding_values=-1)
    assert inputs(rows) == [[1, 2, 3, 4], [5, 101, 201, 202], [203, 204, 205, 206], [207, -1, -1, -1]]
    assert [row["inputs_positions"].tolist() for row in rows[1:3]] == [[0, 0, 0, 1], [0, 1, 2, 3]]


def test_features_lie_side_by_side_each_with_its_own_padding() -> None:
    element = {"inputs": np.array([1, 2], np.uint16), "labels": [2, 3]}
    (row,) = packed([element] * 2, 5, padding_values={"inputs": 7, "labels": -100})
    assert {name: array.tolist() for name, array in row.items()} == {
        "inputs": [1, 2, 1, 2, 7],
        "inputs_segment_ids": [1, 1, 2, 2, 0],
        "inputs_positions": [0, 1, 0, 1, 0],
        "labels": [2, 3, 2, 3, -100],
        "labels_segment_ids": [1, 1, 2, 2, 0],
        "labels_positions": [0, 1, 0, 1, 0],
    }
    assert row["inputs"].dtype == np.uint16
    assert row["inputs_segment_ids"].dtype == np.int32
    row["inputs_segment_ids"][:] = 9
    assert row["labels_segment_ids"].max() == 2  # arrays of their own


@pytest.mark.parametrize(
    ("element", "message"),
    [
        (None, "got NoneType"),
        ("text", "got str"),
        (b"text", "got bytes"),
        (3, "got int"),
        (np.zeros((2, 2)), r"one dimension, got one of float64 and shape \(2, 2\)"),
        (np.array(3), r"shape \(\)"),
        (["a"], "numbers with one dimension, got one of <U1"),
        ([[1], [2, 3]], "is not an array"),
        (([1], [2]), "got tuple"),
        ({}, "must have the same length"),
        ({"inputs": [1], "labels": [1, 2]}, "must have the same length, got {'inputs': 1, 'labels': 2}"),
        ({"inputs": [1], "label": 3}, "feature 'label' of a sequence must be an array"),
        ({"tokens": [1]}, r"features \['tokens'\], but those in open rows have others"),
        (np.arange(9), r"9 tokens and a row 8: give overlong='truncate'"),
        (np.array([1], np.uint8), "-1 does not fit uint8"),
    ],
)
def test_what_is_no_sequence_fails_alone(element: Any, message: str) -> None:
    ds = ad.Dataset.from_iterable([[1, 2], element, [3]]).pack_sequences(8, padding_values=-1)
    with ds.iterate() as rows:
        with pytest.raises(ad.StructureError, match=message) as caught:
            next(rows)
        assert next(rows)["inputs"].tolist() == [1, 2, 3, -1, -1, -1, -1, -1]
        with pytest.raises(StopIteration):
            next(rows)
    assert caught.value.__notes__ == ["in pack_sequences(8), element 1"]


def test_a_failed_element_passes_and_what_lies_in_open_rows_stays() -> None:
    def fail_at_2(x: int) -> Any:
        if x == 2:
            raise Boom(x)
        return [x] * 3

    found = results(ad.Dataset.range(5).map(fail_at_2).pack_sequences(6))
    assert found[1] == Failed("Boom(2)")
    assert [row["inputs"].tolist() for row in (found[0], found[2])] == [[0, 0, 0, 1, 1, 1], [3, 3, 3, 4, 4, 4]]


def test_empty_sequences_leave_no_trace() -> None:
    assert inputs(packed([[], [1], [], [2], []], 4)) == [[1, 2, 0, 0]]
    assert packed([[], []], 4) == []


def test_an_endless_input_is_packed_as_it_comes() -> None:
    rows = ad.Dataset.counter().map(lambda n: [n] * 3).pack_sequences(6).take(2)
    assert inputs(list(rows)) == [[0, 0, 0, 1, 1, 1], [2, 2, 2, 3, 3, 3]]


def test_says_what_rows_look_like() -> None:
    ds = ad.Dataset.from_tensor_slices(np.zeros((4, 3), np.uint16)).pack_sequences(8)
    spec = {"inputs": ad.TensorSpec((8,), "uint16")}
    numbers = {f"inputs_{name}": ad.TensorSpec((8,), "int32") for name in ("segment_ids", "positions")}
    assert ds.element_spec == {**spec, **numbers}
    assert ds.cardinality() == ad.UNKNOWN_CARDINALITY
    assert ds.skip(9).pack_sequences(2).cardinality() == ad.UNKNOWN_CARDINALITY
    assert ad.Dataset.range(0).pack_sequences(2).cardinality() == 0


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"length": 0}, r"length=\) must be at least 1, got 0"),
        ({"length": -3}, r"length=\) must be at least 1"),
        ({"length": 2.5}, r"length=\) must be an integer"),
        ({"length": 4, "open_rows": 0}, r"open_rows=\) must be at least 1"),
        (
            {"length": 4, "strategy": "best"},
            r"strategy=\) must be one of 'first_fit', 'best_fit', 'concat_then_split', got 'best'",
        ),
        ({"length": 4, "padding_values": None}, r"padding_values=\) is a number or a dict of numbers, got None"),
        ({"length": 4, "padding_values": {"inputs": "0"}}, r"padding_values=\) is a number or a dict of numbers"),
        ({"length": 4, "overlong": "drop"}, r"overlong=\) must be one of 'error', 'truncate', 'split'"),
        ({"length": 4, "max_sequences": 0}, r"max_sequences=\) must be at least 1"),
        (
            {"length": 4, "strategy": "concat_then_split", "max_sequences": 2},
            r"max_sequences=\) is for 'first_fit'",
        ),
        (
            {"length": 4, "strategy": "concat_then_split", "open_rows": 2},
            r"open_rows=\) is for 'first_fit' and 'best_fit'",
        ),
        ({"length": 4, "strategy": "concat_then_split", "overlong": "split"}, "cuts sequences at its end"),
    ],
)
def test_wrong_arguments_are_refused_at_once(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ad.Dataset.range(3).pack_sequences(**how)


def one(x: int) -> Any:
    if x % 11 == 7:
        raise Boom(x)
    return {"inputs": np.full(x * 7 % 19, x), "labels": np.full(x * 7 % 19, -x)}


@pytest.mark.parametrize("how", first_by_default(HOW))
def test_goes_on_as_if_nothing_had_happened(how: dict[str, Any]) -> None:
    check_resumes(lambda: ad.Dataset.range(80).map(one).pack_sequences(12, **how), places=80)
    check_resumes(lambda: ad.Dataset.range(80).map(one).pack_sequences(12, **how).shuffle(6, seed=1).batch(2))
    check_resumes(lambda: ad.Dataset.range(40).map(one).shuffle(9, seed=1).pack_sequences(12, **how).repeat(2))


def test_a_batch_that_is_cut_into_several_held_rows_is_made_once_for_each() -> None:
    """Rows that a shuffle holds may have parts of the same batch: the state lists its ticket in each of them."""
    batches = ad.Dataset.range(40).batch(2).map(lambda batch: np.arange(5) + batch[0])
    check_resumes(lambda: batches.pack_sequences(8, strategy="concat_then_split").shuffle(6, seed=1))


def test_a_state_tells_where_sequences_lie_and_no_tokens() -> None:
    ds = ad.Dataset.from_iterable(sequences([5, 4, 30, 2])).pack_sequences(8, overlong="split")
    with ds.iterate() as rows:
        assert [next(rows)["inputs"][0] for _ in range(2)] == [201, 209]
        assert rows.state_dict()["position"] == {
            "rows": [1, 1],
            "begun": [16],
            "input": {"from": 3, "back": [0, 1, 2]},
        }
        next(rows)
        assert rows.state_dict()["position"] == {"rows": [1, 1], "begun": [24], "input": {"from": 3, "back": [0, 1, 2]}}


def test_a_sequence_that_changed_is_a_refusal() -> None:
    def build(size: int) -> ad.Dataset[Any]:
        sizes = [3, size, *[6] * 20]
        return ad.Dataset.range(22).map(lambda x: [x] * sizes[x]).pack_sequences(8, open_rows=3)

    with build(2).iterate() as rows:
        next(rows)
        state = json.loads(json.dumps(rows.state_dict()))
    with pytest.raises(ad.ResumeError, match="more tokens than 8"):
        list(build(8).iterate(state=state))
    with pytest.raises(ad.ResumeError, match="element 1 was a sequence that fits when the state was saved"):
        list(build(9).iterate(state=state))


@pytest.mark.parametrize(
    "how", [{"length": 24, "open_rows": 2}, {"length": 40}, {"length": 24, "strategy": "concat_then_split"}]
)
def test_another_packing_takes_over_what_lies_in_open_rows(how: dict[str, Any]) -> None:
    source = ad.Dataset.from_iterable(sequences([x * 7 % 23 for x in range(60)]))
    with source.pack_sequences(24, open_rows=6).iterate() as rows:
        for _ in range(5):
            next(rows)
        state = rows.state_dict()
        left = sorted(token for row in rows for token in row["inputs"].tolist() if token)
    others = source.pack_sequences(**how).iterate(state=state, strict=False)
    assert sorted(token for row in others for token in row["inputs"].tolist() if token) == left


@pytest.mark.parametrize(("most", "found"), [(3, [3, 3, 1]), (2, None)])
def test_a_row_of_a_state_gets_no_more_sequences_than_another_packing_allows(
    most: int, found: list[int] | None
) -> None:
    source = ad.Dataset.from_iterable([[1]] * 3 + [[1] * 9] + [[2]] * 4)
    with source.pack_sequences(9).iterate() as rows:
        next(rows)
        state = rows.state_dict()
    others = source.pack_sequences(9, max_sequences=most).iterate(state=state, strict=False)
    if found is None:
        with pytest.raises(ad.ResumeError, match="more tokens than 9, or sequences"):
            list(others)
    else:
        assert [row["inputs_segment_ids"].max() for row in others] == found


def test_states_of_several_processes_are_dealt_to_another_number() -> None:
    def share(count: int, index: int) -> ad.Dataset[Any]:
        tokens = ad.Dataset.range(120).shuffle(seed=3).shard(count, index).map(lambda x: [x + 1] * (x * 7 % 30 + 1))
        return tokens.pack_sequences(12, overlong="split", open_rows=3)

    tokens: list[int] = []
    states: list[Any] = []
    for index in range(4):
        with share(4, index).iterate() as rows:
            tokens += [token for _ in range(3 * index + 1) for token in next(rows)["inputs"].tolist()]
            states.append(rows.state_dict())
    merged = merge_states(states)
    for index in range(3):
        tokens += [token for row in share(3, index).iterate(state=merged) for token in row["inputs"].tolist()]
    assert sorted(filter(None, tokens)) == sorted(x + 1 for x in range(120) for _ in range(x * 7 % 30 + 1))


def test_a_state_of_fewer_members_than_its_rows_have_is_refused() -> None:
    ds = ad.Dataset.from_iterable([[1] * size for size in (3, 7, 2, 6, 5)]).pack_sequences(8, open_rows=2)
    with ds.iterate() as rows:
        next(rows)
        state = edited(rows.state_dict())
    state["position"]["rows"][0] += 2
    with pytest.raises(ad.ResumeError, match="pack_sequences"), ds.iterate(state=state) as rows:
        next(rows)


FIELDS = ("input_ids", "labels", "position_ids", "cu_seqlens", "attention_mask")


@pytest.mark.parametrize("how", HOW)
@given(sizes=st.lists(st.integers(0, 12), max_size=12), length=st.integers(12, 15), own=st.booleans())
def test_fields_say_what_segments_and_positions_do(
    how: dict[str, Any], sizes: list[int], length: int, own: bool
) -> None:
    given = [{"input_ids": one, "labels": -one} if own else one for one in sequences(sizes)]
    ds = ad.Dataset.from_iterable(given)
    name = "input_ids" if own else "inputs"
    rows, plain = list(ds.pack_sequences(length, fields=FIELDS, **how)), list(ds.pack_sequences(length, **how))
    assert len(rows) == len(plain)
    for row, expected in zip(rows, plain, strict=True):
        tokens, segments = expected[name], expected[f"{name}_segment_ids"]
        positions = expected[f"{name}_positions"]
        assert {*row} == {*FIELDS}
        assert row["input_ids"].tolist() == tokens.tolist()
        assert row["position_ids"].tolist() == positions.tolist()
        first = positions == 0
        assert row["labels"].tolist() == np.where(first, -100, -tokens if own else tokens).tolist()
        begins = [place for place in range(length) if not place or segments[place] != segments[place - 1]]
        assert row["cu_seqlens"].tolist() == [*begins, length]
        same = (segments[:, None] == segments) & (segments > 0) & np.tri(length, dtype=bool)
        assert (row["attention_mask"] == (same | np.eye(length, dtype=bool))).all()


def test_fields_are_in_the_signature_and_the_plan_and_stay_after_a_resume() -> None:
    ds = ad.Dataset.from_tensor_slices(np.ones((9, 3), np.uint16)).pack_sequences(8, fields=FIELDS)
    for name, spec in ds.element_spec.items():
        value = next(iter(ds))[name]
        assert (spec.dtype, len(spec.shape)) == (value.dtype, value.ndim)
    assert "fields=" in ds.plan.label()
    check_resumes(lambda: ds)


@pytest.mark.parametrize(
    ("fields", "items", "error", "message"),
    [
        (["inputs"], [[1]], ad.PlanError, "must be some of 'input_ids'"),
        ([], [[1]], ad.PlanError, "must be some of"),
        (["labels", "labels"], [[1]], ad.PlanError, "must be some of"),
        (["labels"], [{"tokens": [1]}], ad.StructureError, "has a feature 'input_ids'"),
        (["labels"], [{"input_ids": [1], "labels": [0.5]}], ad.StructureError, "labels must be integers"),
    ],
)
def test_fields_that_cannot_be_are_refused(fields: Any, items: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        packed(items, 4, fields=fields)


@pytest.mark.parametrize("bad", [np.array([1.5, 2.5]), [0.5], np.array([1, 2**63], np.uint64)], ids=str)
@pytest.mark.parametrize("strategy", ["first_fit", "concat_then_split"])
def test_tokens_that_cannot_be_labels_are_an_error_in_their_place(bad: Any, strategy: Any) -> None:
    ds = ad.Dataset.from_iterable([bad, np.array([7, 8], np.uint64)])
    rows = iter(ds.pack_sequences(3, fields=["labels"], strategy=strategy))
    with pytest.raises(ad.StructureError, match="labels"):
        next(rows)
    assert [row["labels"].tolist() for row in rows] == [[-100, 8, -100]]
