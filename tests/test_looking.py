"""Looking at a dataset without changing what it gives: head, peek, to_list, get_single_element, fingerprint."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from asyncdata.testing import leaves_nothing
from tests.reference import Boom


def fail_at_1(x: int) -> int:
    if x == 1:
        raise Boom(x)
    return x


def test_to_list_is_all_of_one_epoch() -> None:
    ds = ad.Dataset.range(20).shuffle(20, seed=1)
    first, second = ds.to_list(), ds.to_list()
    assert sorted(first) == sorted(second) == list(range(20))
    assert first != second
    assert first == list(ad.Dataset.range(20).shuffle(20, seed=1))


def test_to_list_raises_the_first_failure_and_leaves_nothing() -> None:
    with leaves_nothing(), pytest.raises(Boom):
        ad.Dataset.range(3).map(fail_at_1).to_list()


@pytest.mark.parametrize(("n", "expected"), [(0, []), (2, [0, 1]), (9, [0, 1, 2])])
def test_head_is_the_beginning(n: int, expected: list[int]) -> None:
    assert ad.Dataset.range(3).head(n) == expected


def test_head_of_many_is_five_and_of_an_endless_dataset_too() -> None:
    assert ad.Dataset.counter().head() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("n", [-1, 1.5, None])
def test_what_is_no_number_is_refused(n: Any) -> None:
    with pytest.raises(ad.PlanError, match=r"head\(n=\)"):
        ad.Dataset.range(3).head(n)


def test_looking_takes_no_epoch() -> None:
    ds = ad.Dataset.range(50).shuffle(50)
    head, first = ds.head(3), ds.peek()
    assert list(ds)[:3] == head
    assert first == head[0]
    assert ds.head(3) == head


def test_what_can_be_read_only_once_is_not_looked_at() -> None:
    ds = ad.Dataset.from_iterable(iter([1, 2]))
    for look in (ds.head, ds.peek):
        with pytest.raises(ad.StructureError, match="iterator"):
            look()
    assert list(ds) == [1, 2]


def test_the_first_element_of_nothing() -> None:
    with pytest.raises(ad.StructureError, match="empty"):
        ad.Dataset.range(0).peek()


def test_the_only_element() -> None:
    assert ad.Dataset.from_iterable(["x"]).get_single_element() == "x"
    with pytest.raises(ad.StructureError, match="empty"):
        ad.Dataset.range(0).get_single_element()
    with leaves_nothing(), pytest.raises(ad.StructureError, match="more than one"):
        ad.Dataset.counter().get_single_element()


@pytest.mark.parametrize("placement", ["thread", "current"])
def test_an_iterator_gives_again_what_was_looked_at(placement: Any) -> None:
    ds = ad.Dataset.range(7).map(lambda x: x * x).with_options(ad.Options(placement=placement))
    with ds.iterate() as elements:
        found = []
        for _ in range(7):
            assert elements.peek() == elements.peek()
            state = elements.state_dict()
            found.append(elements.peek())
            assert next(ds.iterate(state=state)) == next(elements) == found[-1]
        with pytest.raises(StopIteration):
            elements.peek()
        with pytest.raises(StopIteration):
            next(elements)
    assert found == [x * x for x in range(7)]


def test_an_iterator_is_looked_at_with_await_too() -> None:
    async def body() -> None:
        async with ad.Dataset.range(2).iterate() as elements:
            assert [await elements.apeek(), await anext(elements), await elements.apeek()] == [0, 0, 1]
            assert await anext(elements) == 1
            with pytest.raises(StopAsyncIteration):
                await elements.apeek()

    asyncio.run(body())


def test_a_failure_that_was_looked_at_is_raised_in_its_place() -> None:
    with ad.Dataset.range(4).map(fail_at_1).iterate() as elements:
        assert next(elements) == 0
        for look in (elements.peek, elements.peek, elements.__next__):
            with pytest.raises(Boom):
                look()
        assert elements.state_dict()["delivered"] == 2
        assert [elements.peek(), *elements] == [2, 2, 3]


def test_what_was_looked_at_can_be_skipped() -> None:
    with ad.Dataset.range(9).map(fail_at_1).iterate() as elements:
        assert elements.peek() == 0
        elements.skip(1)
        with pytest.raises(Boom):
            elements.peek()
        elements.skip(3)
        assert next(elements) == 4


def test_the_end_of_a_closed_iterator_is_not_looked_at() -> None:
    elements = ad.Dataset.range(3).iterate()
    elements.peek()
    elements.close()
    with pytest.raises(ad.ClosedError):
        elements.peek()


PIPELINE = "ad.Dataset.range(9).shuffle(4, seed=3).map(abs).shard(3, {index}).batch(2)"


def test_a_fingerprint_is_the_same_in_every_process_and_share() -> None:
    program = f"import asyncdata as ad; print({PIPELINE.format(index=2)}.fingerprint())"
    other = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    here = eval(PIPELINE.format(index=0))
    assert other.stdout.strip() == here.fingerprint()
    assert merge_states([eval(PIPELINE.format(index=i)).iterate().state_dict() for i in range(3)])


def test_a_fingerprint_tells_pipelines_apart() -> None:
    base = ad.Dataset.range(9)
    different = [
        base,
        ad.Dataset.range(8),
        base.map(abs),
        base.map(str),
        base.batch(2),
        base.batch(3),
        base.shuffle(2, seed=1),
        base.shuffle(2, seed=2),
        base.shuffle(2),
    ]
    assert len({ds.fingerprint() for ds in different}) == len(different)


def test_a_fingerprint_does_not_tell_what_a_state_does_not() -> None:
    base = ad.Dataset.range(9)
    assert base.shuffle(2).fingerprint() == base.shuffle(2).fingerprint()
    assert base.map(abs).fingerprint() == base.map(abs, num_parallel_calls=2).prefetch(3).fingerprint()


@pytest.mark.parametrize("waits", [False, True])
def test_few_elements_are_made_in_this_thread_unless_options_say_otherwise_or_a_loop_runs(waits: bool) -> None:
    async def same(name: str) -> str:
        return name

    ds = ad.Dataset.range(1).map(lambda _: threading.current_thread().name)
    ds = ds.map(same) if waits else ds
    here = threading.current_thread().name
    assert [ds.get_single_element(), ds.peek(), *ds.head()] == [here] * 3

    async def on_a_loop() -> str:
        return ds.get_single_element()

    assert asyncio.run(on_a_loop()) == ("asyncdata-engine" if waits else here)
    assert ds.with_options(ad.Options(placement="thread")).get_single_element() == "asyncdata-engine"


def test_looking_at_nothing_says_who_looked() -> None:
    empty = ad.Dataset.range(0)
    for method in ("peek", "get_single_element"):
        with pytest.raises(ad.StructureError, match=f"^{method}: the dataset is empty$"):
            getattr(empty, method)()


def test_an_iterator_tells_what_its_elements_look_like_and_takes_none() -> None:
    with ad.Dataset.range(2).batch(2).iterate() as batches:
        assert batches.element_spec == ad.experimental.get_structure(batches) == ad.TensorSpec((None,), "int64")
    with ad.Dataset.range(2).map(float).iterate() as numbers:
        assert numbers.element_spec == ad.TensorSpec((), "float64")
        assert list(numbers) == [0.0, 1.0]
        with pytest.raises(ad.StructureError, match="no next element to describe"):
            _ = numbers.element_spec


@pytest.mark.parametrize("reads", [None, 2, ad.AUTOTUNE])
def test_a_reader_of_several_files_is_shown_by_its_own_name(reads: int | None) -> None:
    ds = ad.TextLineDataset(["a.txt", "b.txt"], num_parallel_reads=reads)
    assert "→ TextLineDataset(filenames" in str(ds.explain())
    assert "partial(" not in str(ds.explain())
