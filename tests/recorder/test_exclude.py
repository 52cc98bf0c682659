"""Records that are left out: in every epoch, after each resume, on each rank; and no others."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.recorder.audit import leaves_of
from tests.recorder.test_origins import write_files

Records = list[dict[str, Any]]


def of_range(size: int, *numbers: int) -> Records:
    return [{"source": f"range({size})", "index": number} for number in numbers]


def flat(batches: Any) -> list[int]:
    return [int(value) for batch in batches for value in np.ravel(batch)]


def shuffled(count: int = 1, index: int = 0) -> ad.Dataset[Any]:
    ds = ad.Dataset.range(60).shuffle(10, seed=1).shard(count, index).map(abs, num_parallel_calls=2)
    return ds.batch(4)


@pytest.mark.parametrize("placement", ["thread", "current", "process"])
def test_records_are_left_out_in_every_epoch_and_the_hole_is_closed(placement: Any) -> None:
    ds = shuffled().exclude(of_range(60, 3, 17, 44)).with_options(ad.Options(placement=placement))
    for _ in range(2):
        with ds.iterate() as batches:
            found = [batch.tolist() for batch in batches]
            stats = batches.stats()
        assert sorted(flat(found)) == [x for x in range(60) if x not in (3, 17, 44)]
        assert [len(batch) for batch in found] == [4] * 14 + [1]
        assert sum(step.excluded for step in stats.steps) == 3
        assert ": 3 left out" in str(stats)


def test_with_keep_steps_each_batch_is_as_before_without_them() -> None:
    whole = [batch.tolist() for batch in shuffled()]
    gone = {whole[2][1], *whole[5], whole[14][0]}
    found = [batch.tolist() for batch in shuffled().exclude(of_range(60, *gone), keep_steps=True)]
    expected = [[x for x in batch if x not in gone] for batch in whole]
    assert found == [batch for batch in expected if batch]


@pytest.mark.parametrize("keep_steps", [False, True])
def test_a_state_from_before_goes_on_without_them(keep_steps: bool) -> None:
    with shuffled().iterate() as batches:
        before = [next(batches).tolist() for _ in range(3)]
        state = batches.state_dict()
        bad = next(batches)
        origin = json.loads(json.dumps(batches.origin()))
    ds = shuffled().exclude([origin], keep_steps=keep_steps)
    after = [batch.tolist() for batch in ds.iterate(state=state)]
    assert Counter(flat(before + after)) == Counter(set(range(60)) - set(bad.tolist()))
    assert after == [batch.tolist() for batch in shuffled().iterate(state=state)][1:]
    assert [batch.tolist() for batch in ds.replay([origin])] == [bad.tolist()]


def test_batches_in_a_buffer_from_before_are_made_without_them() -> None:
    ds = ad.Dataset.range(40).batch(4).shuffle(3, seed=2)
    with ds.iterate() as batches:
        before = [next(batches).tolist() for _ in range(3)]
        state = batches.state_dict()
    whole = [batch.tolist() for batch in ds.iterate(state=state)]
    gone = {*whole[0], whole[1][2], whole[-1][0]}
    after = [batch.tolist() for batch in ds.exclude(of_range(40, *gone), keep_steps=True).iterate(state=state)]
    assert after == [kept for batch in whole if (kept := [x for x in batch if x not in gone])]
    closed = [batch.tolist() for batch in ds.exclude(of_range(40, *gone)).iterate(state=state)]
    assert Counter(flat(before + closed)) == Counter(set(range(40)) - gone)


def test_records_of_files_may_be_named_in_a_file_without_their_folder(tmp_path: Path) -> None:
    write_files(tmp_path)
    files = ad.Dataset.list_files(str(tmp_path / "*.tfrecord"), shuffle=False)
    ds = ad.TFRecordDataset(files, num_parallel_reads=2).repeat(2).shuffle(4, seed=1).batch(2)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"file": "1.tfrecord", "record": 2}\n\n[{"file": "2.tfrecord", "record": 0}]\n')
    found = [record for batch in ds.exclude(bad) for record in batch.tolist()]
    left = [b"%d-%d" % (a, b) for a in range(3) for b in range(5) if (a, b) not in ((1, 2), (2, 0))]
    assert Counter(found) == Counter(dict.fromkeys(left, 2))


@pytest.mark.parametrize("how", [{}, {"num_parallel_reads": 2}, {"index": True}])
def test_all_of_a_file_is_left_out_and_one_that_is_not_read_is_an_error(tmp_path: Path, how: dict[str, Any]) -> None:
    write_files(tmp_path)
    files = ad.Dataset.list_files(str(tmp_path / "*.tfrecord"), shuffle=False)
    ds = ad.TFRecordDataset(files, **how).shuffle(4, seed=1).batch(2)
    for name in ("1.tfrecord", str(tmp_path / "1.tfrecord")):
        found = [record for batch in ds.exclude([{"file": name}]) for record in batch.tolist()]
        assert sorted(found) == [b"%d-%d" % (a, b) for a in (0, 2) for b in range(5)]
    with pytest.raises(ad.PlanError, match="does not read 7.tfrecord"):
        ds.exclude([{"file": "7.tfrecord"}])
    whole = files.shuffle(3, seed=1).map(ad.read_file)
    with whole.iterate() as contents:
        first = next(contents)
        (bad,) = whole.locate(contents.origin())
    assert Path(bad["file"]).read_bytes() == first
    for gone in (bad, {"file": Path(bad["file"]).name}):
        assert {*whole.exclude([gone])} == {path.read_bytes() for path in tmp_path.iterdir()} - {first}


def odd(x: int) -> bool:
    return x % 2 == 1


KINDS: list[Callable[[], ad.Dataset[Any]]] = [
    lambda: ad.Dataset.range(20).map(lambda x: x),
    lambda: ad.Dataset.range(20).filter(odd).padded_batch(3),
    lambda: ad.Dataset.range(20).map(lambda x: x, num_parallel_calls=2, deterministic=False).batch(3),
    lambda: ad.Dataset.range(20).cache().repeat(2).batch(3),
    lambda: ad.Dataset.range(20).enumerate().map(lambda _, x: x).batch(3),
    lambda: ad.Dataset.range(20).batch(4).unbatch().batch(3),
    lambda: ad.Dataset.range(20).batch(2).padded_batch(3),
    lambda: ad.Dataset.range(20).window(4, drop_remainder=False).flat_map(lambda window: window.batch(2)),
    lambda: ad.Dataset.range(20).group_by_window(odd, lambda _, window: window.batch(3), window_size=3),
    lambda: ad.Dataset.range(20).map(lambda x: np.full(x % 3 + 1, x)).bucket_by_sequence_length(len, [2], [2, 2]),
    lambda: ad.Dataset.range(20).batch(3).concatenate(ad.Dataset.range(20).batch(3)),
    lambda: ad.Dataset.zip((ad.Dataset.range(20), ad.Dataset.range(20))).map(lambda x, _: x).batch(3),
    lambda: ad.Dataset.range(20).map(lambda x: x, vectorized=True).batch(3),
    lambda: ad.Dataset.range(20).batch(3).prefetch(2).take(5),
    lambda: ad.Dataset.range(20).shuffle(seed=3).scan(0, lambda n, x: (n + 1, x)).batch(3),
]


@pytest.mark.parametrize("build", KINDS)
def test_through_each_kind_of_step(build: Callable[[], ad.Dataset[Any]]) -> None:
    gone = {2, 7, 11}
    found = Counter(flat(build().exclude(of_range(20, *gone))))
    whole = Counter(flat(build()))
    if "take" in str(build().plan):
        whole |= Counter({15: 1, 16: 1, 17: 1})
    del found[0], whole[0]  # padding
    assert found == Counter({x: count for x, count in whole.items() if x not in gone})


def test_one_dataset_of_a_mixture_is_told_from_another_of_the_same_name() -> None:
    ds = ad.Dataset.sample_from_datasets([ad.Dataset.range(6).batch(2), ad.Dataset.range(6).batch(2)], seed=1)
    with ds.iterate() as batches:
        first, origin = next(batches).tolist(), batches.origin()
    assert Counter(flat(ds.exclude([origin]))) == Counter({x: 1 if x in first else 2 for x in range(6)})
    both = [{name: value for name, value in one.items() if name != "dataset"} for one in ds.locate(origin)]
    assert Counter(flat(ds.exclude(both))) == Counter({x: 2 for x in range(6) if x not in first})


def test_an_element_that_fails_does_not_matter_if_it_is_left_out() -> None:
    ds = ad.Dataset.range(6).map(lambda x: 1 // (x - 2)).batch(2)
    assert flat(ds.exclude(of_range(6, 2))) == [-1, -1, 1, 0, 0]


@pytest.mark.parametrize(
    ("ds", "records", "message"),
    [
        (ad.Dataset.range(5), of_range(6, 1), "no source range"),
        (ad.Dataset.range(5), [{"index": 1}], "a record to leave out is"),
        (ad.Dataset.range(5), [{**of_range(5, 1)[0], "note": "bad"}], "not by 'note'"),
        (ad.TextLineDataset("a.txt"), [{"file": "a.txt", "records": 1}], "not by 'records'"),
        (ad.TextLineDataset("a.txt"), [{"file": "a.txt", "index": 1}], "as 'record', not as 'index'"),
        (ad.TextLineDataset("a.txt"), [{"file": "a.txt", "record": -1}], "a record to leave out is"),
        (ad.Dataset.range(5), [{"source": "range(5)", "record": 1}], "a record to leave out is"),
        (ad.Dataset.range(5), of_range(5, 5), "has 5 elements"),
        (ad.Dataset.range(5), of_range(5, -1), "a record to leave out is"),
        (ad.Dataset.range(5), {"source": "range(5)", "index": 1}, "put it into a list"),
        (ad.Dataset.range(5), ["x"], "takes origins"),
        (ad.Dataset.range(5), [{"unknown": "scan(f)"}], "does not tell"),
        (ad.TextLineDataset("a.txt"), [{"file": "b.txt", "record": 1}], "does not read b.txt"),
        (ad.Dataset.zip((ad.Dataset.range(5).batch(2), ad.Dataset.range(5).batch(2))), of_range(5, 1), "pairs batches"),
    ],
)
def test_what_cannot_be_left_out_is_an_error(ds: ad.Dataset[Any], records: Any, message: str) -> None:
    with pytest.raises(ad.PlanError, match=message):
        ds.exclude(records)


def test_a_stored_batch_cannot_lose_a_record_and_holes_need_batches(tmp_path: Path) -> None:
    with pytest.raises(ad.PlanError, match="stores batches"):
        ad.Dataset.range(5).batch(2).cache(tmp_path / "kept").exclude(of_range(5, 1))
    with pytest.raises(ad.PlanError, match=r"call it after batch"):
        ad.Dataset.range(5).exclude(of_range(5, 1), keep_steps=True)
    (tmp_path / "bad.jsonl").write_text("{}\n{")
    with pytest.raises(ad.PlanError, match="line 2 is no JSON"):
        ad.Dataset.range(5).exclude(tmp_path / "bad.jsonl")


def test_a_cache_in_a_file_is_of_what_was_left_in_it(tmp_path: Path) -> None:
    def cached(*gone: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(8).batch(2).exclude(of_range(8, *gone)).cache(tmp_path / "kept")

    assert flat(cached(1, 2)) == flat(cached(1, 2)) == [0, 3, 4, 5, 6, 7]
    with pytest.raises(ad.ResumeError, match="leaves out other records now"):
        flat(cached(1))


def test_a_step_that_counts_what_is_left_out_refuses_a_state_from_before() -> None:
    ds = ad.Dataset.range(20).batch(2).shard(2, 0)
    with ds.iterate() as batches:
        next(batches)
        state = batches.state_dict()
    with pytest.raises(ad.ResumeError, match=r"shard\(2, index=0\) counts or repeats what is left out"):
        ds.exclude(of_range(20, 9)).iterate(state=state)
    assert flat(ds.exclude(of_range(20, 9), keep_steps=True).iterate(state=state)) == [4, 5, 8, 12, 13, 16, 17]
    with ds.exclude(of_range(20, 9)).iterate() as batches:
        next(batches)
        after = batches.state_dict()
    assert flat(ds.exclude(of_range(20, 9)).iterate(state=after)) == [4, 5, 8, 10, 13, 14, 17, 18]
    with pytest.raises(ad.ResumeError, match="would be given again"):
        ds.iterate(state=after)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_over_stops_resumes_and_ranks_each_other_record_comes_once(data: st.DataObject) -> None:
    """Records are excluded on the way: those that were not delivered before never come, and all others once."""
    keep_steps, gone, before = data.draw(st.booleans()), set[int](), set[int]()
    ranks, states, given_ = 1, [None], list[int]()
    while any(state is not None for state in states) or ranks == 1:
        built = [shuffled(ranks, index).exclude(of_range(60, *gone), keep_steps=keep_steps) for index in range(ranks)]
        last, states = states, []
        for index, ds in enumerate(built):
            most = data.draw(st.integers(0, 6))
            with ds.iterate(state=last[index], epoch=None) as batches:
                for _ in range(most):
                    batch = next(batches, None)
                    if batch is None:
                        break
                    given_ += batch.tolist()
                    assert [leaf[-1] for leaf in leaves_of(batches.origin()["ticket"])] == batch.tolist()
                states.append(batches.state_dict())
        new = data.draw(st.sets(st.integers(0, 59), max_size=3))
        before |= new & set(given_) - gone
        gone |= new
        if data.draw(st.integers(0, 2)) == 0:
            break
        merged, ranks = merge_states(states), data.draw(st.integers(2, 3))
        states = [merged] * ranks
    for index in range(len(states)):
        ds = shuffled(len(states), index).exclude(of_range(60, *gone), keep_steps=keep_steps)
        given_ += flat(ds.iterate(state=states[index]))
    assert Counter(given_) == Counter((set(range(60)) - gone) | before)
