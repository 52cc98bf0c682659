"""Parallel calls on a cluster give what they give here: elements, order, errors and states."""

from __future__ import annotations

import gc
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.cluster import handle, parcel, ray_transport
from asyncdata.cluster.actor import CallActor
from asyncdata.cluster.transport import CALLS
from asyncdata.errors import StageError
from asyncdata.testing import leaves_nothing
from tests.cluster.fake import Faults, die, on_fake, until
from tests.reference import failed
from tests.running import impatient, read_plain

CLUSTER = ad.Options(cluster=ad.Cluster(calls=3))


def square(x: Any) -> Any:
    return x * x


def odd(x: Any) -> bool:
    return x % 2 == 1


def fails_at_seven(x: Any) -> Any:
    if x == 7:
        raise ValueError("seven")
    return x


def noisy(x: Any, rng: Any) -> tuple[Any, float]:
    return x, float(rng.random())


def rows(x: Any) -> Any:
    return np.full((64, 64), x, np.float64)


def pipelines() -> dict[str, ad.Dataset[Any]]:
    numbers = ad.Dataset.range(60)
    return {
        "map": numbers.map(square, num_parallel_calls=4),
        "filter": numbers.filter(odd, num_parallel_calls=4).map(square, num_parallel_calls=ad.AUTOTUNE),
        "batches": numbers.map(square, batch=8, num_parallel_calls=4),
        "whole batches": numbers.map(rows, num_parallel_calls=4).batch(16),
        "failing": numbers.map(fails_at_seven, num_parallel_calls=4).batch(4),
        "random": numbers.shuffle(20, seed=3).map(noisy, num_parallel_calls=4, rng=True, seed=5).repeat(2),
        "processes": numbers.map(square, executor="process").shard(2, 1),
        "nested": ad.Dataset.range(4).interleave(lambda n: ad.Dataset.range(n).map(square), 2).map(square, 2),
    }


def plain(elements: list[Any]) -> str:
    return repr([one.tolist() if isinstance(one, np.ndarray) else one for one in elements])


@pytest.mark.parametrize("name", pipelines())
def test_elements_and_order_are_those_of_a_local_run(name: str) -> None:
    with on_fake(faults=Faults(results=9, nodes=9)) as made:
        assert plain(read_plain(pipelines()[name].with_options(CLUSTER))) == plain(read_plain(pipelines()[name]))
        assert made[0].calls


@pytest.mark.parametrize("name", pipelines())
def test_states_pass_from_here_to_the_cluster_and_back(name: str) -> None:
    whole = read_plain(pipelines()[name])
    with on_fake(faults=Faults(nodes=5)):
        found, state = list[Any](), None
        for leg in range(0, len(whole) + 5, 5):
            options = CLUSTER if leg % 2 else ad.Options()
            with pipelines()[name].with_options(options).iterate(state=state) as elements:
                for _ in range(5):
                    found += read_one(elements)
                state = json.loads(json.dumps(elements.state_dict()))
    assert plain(found) == plain(whole)


def read_one(elements: Any) -> list[Any]:
    """Read an element, or the failure in its place; nothing at the end."""
    try:
        return [next(elements)]
    except StopIteration:
        return []
    except Exception as error:
        return [failed(error)]


def test_states_are_the_same_bytes_as_local_ones() -> None:
    ds = ad.Dataset.range(60).map(square, num_parallel_calls=4).batch(4)
    with on_fake():
        states = []
        for options in (ad.Options(), CLUSTER):
            with ds.with_options(options).iterate() as elements:
                next(elements)
                states.append(elements.state_dict())
    assert states[0] == states[1]


def test_without_order_each_element_comes_once() -> None:
    ds = ad.Dataset.range(300).map(square, num_parallel_calls=4, deterministic=False)
    with on_fake(faults=Faults(results=5, nodes=9)):
        assert sorted(ds.with_options(CLUSTER)) == [n * n for n in range(300)]


def test_explain_says_what_goes_to_the_cluster_and_what_stays() -> None:
    async def fetch(x: Any) -> Any:
        return x

    threads = ThreadPoolExecutor(1)
    ds = ad.Dataset.range(9).map(square, 4).map(odd).map(fetch, 4).map(square, 2, executor=threads).map(square, 1)
    with on_fake() as made:
        text = ds.with_options(CLUSTER).explain()
    assert not made
    assert "Ray, at most 3 actors of 1 CPUs" in text
    assert "map(square, num_parallel_calls=3, executor=cluster)  on the cluster" in text
    assert "map(odd)  here: its calls are made one after the other" in text
    assert "map(fetch, num_parallel_calls=4)  here: a coroutine function" in text
    assert "executor=ThreadPoolExecutor)  here: it has an executor of its own" in text
    assert "map(square, num_parallel_calls=1)  here: one call at a time" in text
    assert "cluster" not in ds.explain()


def test_a_function_goes_to_each_actor_once() -> None:
    ds = ad.Dataset.range(200).map(rows, num_parallel_calls=4).with_options(CLUSTER)
    with on_fake() as made:
        for _ in range(3):
            assert len(list(ds)) == 200
        assert len(made) == 1
        assert len(made[0].shared) == 1
        assert made[0].started == 3


def test_large_arrays_that_a_function_holds_are_one_read_only_copy() -> None:
    """They travel beside the function, as they were when the iteration began."""
    table = np.arange(1 << 18)
    ds = ad.Dataset.range(3).map(lambda x: (int(table[x]), table.flags.writeable), num_parallel_calls=4)
    with on_fake() as made:
        assert list(ds.with_options(CLUSTER)) == [(0, False), (1, False), (2, False)]
        table[:] = -1
        assert list(ds.with_options(CLUSTER)) == [(-1, False)] * 3
        (parcel, later) = made[0].shared
        assert len(parcel.head) < 10_000
        assert [[buffer.nbytes for buffer in one.buffers] for one in (parcel, later)] == [[table.nbytes]] * 2


def test_arrays_are_writable_unless_views_were_asked_for() -> None:
    ds = ad.Dataset.range(4).map(lambda x: np.full(1 << 16, x, np.float64), num_parallel_calls=4)
    with on_fake():
        assert all(array.flags.writeable for array in ds.with_options(CLUSTER))
        views = ad.Options(cluster=ad.Cluster(calls=3, copy=False))
        found = list(ds.with_options(views))
        assert not any(array.flags.writeable for array in found)
        assert [array[5] for array in found] == [0, 1, 2, 3]
        mapped = ad.Dataset.range(4).map(lambda x: np.full(1 << 16, x, np.float64), num_parallel_calls=4, shrinks=True)
        held = list(mapped.shuffle(4, seed=1).with_options(views))  # what is held for long is copied
        assert all(array.flags.writeable for array in held)


class Holder:
    """An object that holds an array, which a batch of such objects holds, too."""

    def __init__(self, array: Any) -> None:
        self.array = array


@pytest.mark.parametrize("of", [lambda array: array, lambda array: {"a": array, "b": (array, 1)}, Holder])
def test_arrays_are_copied_once_where_the_next_step_copies_them(of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    monkeypatch.setattr(parcel, "copy_of", lambda buffer: copied.append(buffer) or np.array(buffer))

    def build() -> ad.Dataset[Any]:
        made = ad.Dataset.range(8).map(lambda n: of(np.full(1 << 16, n, np.float64)), num_parallel_calls=2)
        return made.with_options(CLUSTER.merge(ad.Options(disabled_rules=("map_and_batch_fusion",))))

    with on_fake():
        batches = [*build().batch(4), *build().batch(1)]
        assert bool(copied) is (of is Holder)
        arrays = [one.array for one in batches[0]] if of is Holder else leaves(batches)
        assert all(array.flags.writeable for array in arrays)
        copied.clear()
        assert all(array.flags.writeable for array in leaves(list(build().padded_batch(4)) if of is not Holder else []))
        assert not copied
        alone = list(build())
        assert len(copied) >= 8
        assert all(
            array.flags.writeable for array in leaves(alone if of is not Holder else [one.array for one in alone])
        )


def leaves(value: Any) -> list[Any]:
    """Return the arrays in a structure."""
    if isinstance(value, (list, tuple)):
        return [leaf for part in value for leaf in leaves(part)]
    if isinstance(value, dict):
        return leaves([*value.values()])
    return [value] if isinstance(value, np.ndarray) else []


def test_functions_may_write_into_what_they_are_given() -> None:
    def change(x: Any) -> Any:
        x += 1
        return x

    ds = ad.Dataset.range(4).map(lambda x: np.full(1 << 16, x, np.float64)).map(change, num_parallel_calls=2)
    with on_fake():
        assert [array[0] for array in ds.with_options(CLUSTER)] == [1, 2, 3, 4]


# what goes wrong


def kills_at_five(x: Any) -> Any:
    if x == 5:
        die()
    return x


def test_an_element_that_kills_twice_alone_fails_in_its_place() -> None:
    with on_fake(faults=Faults(nodes=20)) as made:
        elements = iter(ad.Dataset.range(40).map(kills_at_five, num_parallel_calls=4).with_options(CLUSTER))
        found = [next(elements) for _ in range(5)]
        with pytest.raises(ad.WorkerCrashed, match="ended the worker process .* 2 times.*exit code 9") as caught:
            next(elements)
        assert [*found, *elements] == [*range(5), *range(6, 40)]
        assert made[0].started > 5
    assert "element 5" in caught.value.__notes__[0]
    assert "kills_at_five" in caught.value.__notes__[0]


def test_an_element_of_a_large_group_that_kills_fails_alone() -> None:
    ds = ad.Dataset.range(3000).map(lambda x: die() if x == 2500 else x, num_parallel_calls=2).with_options(CLUSTER)
    with on_fake():
        found = read_plain(ds)
    assert found[:2500] + found[2501:] == [*range(2500), *range(2501, 3000)]
    assert "WorkerCrashed" in repr(found[2500])


def test_a_killing_element_fails_alone_beside_failures_of_others() -> None:
    def odd_ones_fail(x: Any) -> Any:
        if x % 2:
            raise ValueError(x)
        return x

    ds = ad.Dataset.range(40).map(odd_ones_fail, num_parallel_calls=2).map(lambda x: die() if x == 6 else x, 2)
    with on_fake():
        found = read_plain(ds.with_options(CLUSTER))
        expected = read_plain(ad.Dataset.range(40).map(odd_ones_fail, num_parallel_calls=2))
    assert repr(found[:6] + found[7:]) == repr(expected[:6] + expected[7:])
    assert "WorkerCrashed" in repr(found[6])


def test_a_lost_node_is_nobodys_fault() -> None:
    ds = ad.Dataset.range(300).map(square, num_parallel_calls=4).with_options(CLUSTER)
    with on_fake(faults=Faults(nodes=2, most=200)) as made:
        assert list(ds) == [n * n for n in range(300)]
        assert made[0].started > 20


def test_other_versions_on_a_worker_are_named() -> None:
    ds = ad.Dataset.range(9).map(square, num_parallel_calls=2).with_options(CLUSTER)
    with on_fake() as made:
        connect = handle.connection(CLUSTER.cluster, CALLS)

        def other() -> Any:
            transport = connect()
            transport.greeting = transport.greeting._replace(python="3.99.1", asyncdata="0.0.7")
            return transport

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(handle, "connection", lambda *_: other)
            with pytest.raises(StageError, match=r"node \d runs Python 3.99.1 and asyncdata 0.0.7, this process"):
                list(ds)
    assert made[0].ended == 3


def test_a_module_that_a_worker_has_not_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(self: Any, name: bytes, work: parcel.Parcel | None) -> Any:
        return learn(self, name, parcel.Parcel(b"cnowhere_at_all\nfunction\n."))

    learn = CallActor.learn
    monkeypatch.setattr(CallActor, "learn", unknown)
    with (
        on_fake(),
        pytest.raises(
            StageError, match=r"worker .* cannot load .*nowhere_at_all.*install what it imports on every node"
        ),
    ):
        list(ad.Dataset.range(9).map(square, num_parallel_calls=2).with_options(CLUSTER))


def test_functions_that_cannot_be_sent_are_refused_where_the_loop_begins() -> None:
    lock = threading.Lock()
    ds = ad.Dataset.range(9).map(lambda x: lock and x, num_parallel_calls=2).with_options(CLUSTER)
    with on_fake(), pytest.raises(ad.PlanError, match="cannot be sent") as caught:
        iter(ds)
    assert "ThreadPoolExecutor" in caught.value.__notes__[0]


def test_elements_and_results_that_cannot_be_sent_fail_in_their_places() -> None:
    elements = [1, threading.Lock(), 3]
    sent = ad.Dataset.from_generator(lambda: iter(elements)).map(lambda x: x, num_parallel_calls=2)
    got = ad.Dataset.range(3).map(lambda x: threading.Lock() if x == 1 else x, num_parallel_calls=2)
    with on_fake():
        for ds in (sent, got):
            found = read_plain(ds.with_options(CLUSTER))
            assert [found[0], found[2]] in ([1, 3], [0, 2])
            assert "TypeError" in repr(found[1])


def test_what_is_no_exception_ends_the_pipeline() -> None:
    def leaves(x: Any) -> Any:
        raise SystemExit(3)

    with on_fake(), pytest.raises(SystemExit):
        list(ad.Dataset.range(9).map(leaves, num_parallel_calls=2).with_options(CLUSTER))


def test_ray_that_is_not_installed_is_told_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    monkeypatch.setattr(handle, "HANDLES", {})
    ds = ad.Dataset.range(9).map(square, num_parallel_calls=2).with_options(CLUSTER)
    with pytest.raises(ad.MissingDependencyError, match=r"needs ray.* pip install 'asyncdata\[ray\]'"):
        iter(ds)
    assert ray_transport.INSTALL == "'asyncdata[ray]'"


def test_a_shut_down_cluster_is_told_and_the_state_still_answers() -> None:
    ds = ad.Dataset.range(30_000).map(square, num_parallel_calls=2).with_options(CLUSTER)
    with on_fake() as made, ds.iterate() as elements:
        found = [next(elements) for _ in range(3)]
        made[0].session = False
        with pytest.raises(StageError, match="shut down"):
            read_on(elements, found)
        state = elements.state_dict()
        assert state["delivered"] == len(found)
        with ds.iterate(state=state) as rest:  # a new connection
            found += rest
        assert len(made) == 2
    assert found == [n * n for n in range(30_000)]


def read_on(elements: Any, found: list[Any]) -> None:
    while True:
        found.append(next(elements))


def test_leaving_ends_everything() -> None:
    with on_fake() as made, leaves_nothing():
        ds = ad.Dataset.range(1000).map(square, num_parallel_calls=2).with_options(CLUSTER)
        for element in ds:
            if element > 9:
                break
        handle.HANDLES.clear()
        del ds
        assert until(lambda: gc.collect() >= 0 and made[0].ended == 3 and not made[0].actors)


def test_iterators_and_branches_share_actors() -> None:
    ds = ad.Dataset.range(50).map(square, num_parallel_calls=2).with_options(CLUSTER)
    with on_fake() as made:
        with ds.iterate() as one, ds.iterate() as other:
            pairs = list(zip(one, other, strict=True))
        assert pairs == [(n * n, n * n) for n in range(50)]
        left, right = ds.tee(2)
        assert [*zip(left, right, strict=True)] == pairs
        assert [transport.started for transport in made] == [3]


def test_a_forked_child_is_told_that_it_cannot_use_the_connection() -> None:
    ds = ad.Dataset.range(9).map(square, num_parallel_calls=2).with_options(CLUSTER)
    with on_fake():
        list(ds)
        (actors,) = handle.HANDLES.values()
        kept = actors.pool
        actors.disown()
        with pytest.raises(StageError, match="forked"):
            list(ds)
        kept.end()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"calls": -1}, "calls=.*at least 0, got -1"),
        ({"calls": 0}, "nothing to do"),
        ({"runs": 1.5}, "runs=.*integer"),
        ({"calls": 2.0}, "calls=.*integer"),
        ({"num_cpus": 0}, "num_cpus=.*above 0"),
        ({"timeout": float("nan")}, "timeout=.*seconds above 0"),
        ({"copy": 1}, "copy=.*True or False"),
    ],
)
def test_settings_are_checked_where_they_are_given(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ad.PlanError, match=words):
        ad.Cluster(**arguments)


def test_options_are_checked_where_they_are_given() -> None:
    with pytest.raises(ad.PlanError, match=r"cluster=.*asyncdata.Cluster, got 'ray"):
        ad.Options(cluster="ray://head")  # type: ignore[arg-type]
    ds = ad.Dataset.range(9).map(square, num_parallel_calls=2)
    with on_fake(), pytest.raises(ad.PlanError, match="placement"):
        list(ds.with_options(ad.Options(cluster=ad.Cluster(), placement="process")))


def test_actors_are_named_in_the_statistics() -> None:
    ds = ad.Dataset.range(50).map(square, num_parallel_calls=2).with_options(CLUSTER)
    with on_fake(), ds.iterate() as elements:
        list(elements)
        assert [step.where for step in elements.stats().steps if step.where] == ["cluster"]


def test_a_batch_that_kills_fails_whole_and_leaves_earlier_failures_as_they_were() -> None:
    def kills(batch: Any) -> Any:
        if 6 in batch:
            die()
        return batch

    ds = ad.Dataset.range(12).map(fails_at_seven).map(kills, batch=4, num_parallel_calls=2)
    with on_fake():
        found = read_plain(ds.with_options(CLUSTER))
    assert [*found[:4], *found[8:]] == [0, 1, 2, 3, 8, 9, 10, 11]
    assert ["WorkerCrashed" in repr(one) for one in found[4:8]] == [True, True, True, False]
    assert "ValueError" in repr(found[7])


# from_source


class Squared:
    """A source that knows how often it was asked; a copy of it on a worker counts for itself."""

    def __init__(self, count: int, lock: Any = None) -> None:
        self.count = count
        self.lock = lock
        self.asked = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: int) -> int:
        self.asked += 1
        if place == 7:
            raise KeyError("seven")
        return place * place


def test_sources_are_asked_where_the_map_runs_that_follows() -> None:
    def build(source: Squared) -> ad.Dataset[Any]:
        kept = ad.Dataset.from_source(source).shuffle(seed=1).map(square, num_parallel_calls=2)
        return kept.filter(odd, num_parallel_calls=2)

    whole, found, state = read_plain(build(Squared(40))), list[Any](), None
    with on_fake(faults=Faults(results=5)):
        there = Squared(40)
        text = build(there).with_options(CLUSTER).explain()
        assert "map_and_filter(from_source(Squared of 40) → map(square) → filter(odd), " in text
        assert read_plain(build(there).with_options(CLUSTER)) == whole
        assert there.asked == 0
        for leg in range(4):
            ds = build(Squared(40)).with_options(CLUSTER if leg % 2 else ad.Options())
            with ds.iterate(state=state) as elements:
                for _ in range(9):
                    found += read_one(elements)
                state = json.loads(json.dumps(elements.state_dict()))
    assert found == whole
    assert len(whole) == 20  # of odd numbers, one of which has failed


def test_sources_that_hold_their_elements_or_cannot_be_sent_stay() -> None:
    held = ad.Dataset.from_source([4, 9, 16], num_parallel_calls=2).map(square, num_parallel_calls=2)
    bound = ad.Dataset.from_source(Squared(4, threading.Lock())).map(square, num_parallel_calls=2)
    with on_fake():
        text = held.with_options(CLUSTER).explain()
        assert "from_source(list of 3)  here: its elements are in memory here" in text
        assert list(held.with_options(CLUSTER)) == [16, 81, 256]
        assert "here: one call at a time was asked for" in bound.with_options(CLUSTER).explain()
        assert list(bound.with_options(CLUSTER)) == [0, 1, 16, 81]


@pytest.mark.parametrize("place", [5, 150, 299])
def test_an_element_that_kills_in_what_was_given_up_fails_alone(place: int) -> None:
    """What was given up is handed out anew in smaller groups, and each of these may end a worker."""
    with on_fake(), impatient():
        ds = ad.Dataset.range(300).map(lambda x: die() if x == place else x, num_parallel_calls=2)
        found = read_plain(ds.with_options(CLUSTER))
    assert found[:place] + found[place + 1 :] == [*range(place), *range(place + 1, 300)]
    assert "WorkerCrashed" in repr(found[place])
