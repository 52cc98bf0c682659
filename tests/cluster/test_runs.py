"""Datasets that a step opens run on a cluster, and go on elsewhere when a worker is lost."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.cluster import chunk, remote_run
from asyncdata.cluster.run_actor import RunActor
from asyncdata.errors import StageError
from tests.cluster.fake import FakeTransport, Faults, on_fake, until
from tests.cluster.test_calls import plain, read_one
from tests.executors.process.test_map import outcomes
from tests.executors.process.test_raised import NAMES, raises
from tests.running import read_plain

CLUSTER = ad.Options(cluster=ad.Cluster(calls=0, runs=2))


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    for number in range(5):
        lines = [f"{number}-{line}" for line in range(40 + 30 * number)]
        (tmp_path / f"{number}.txt").write_text("\n".join(lines) + "\n")
    return sorted(map(str, tmp_path.iterdir()))


def decoded(line: Any) -> str:
    return line.decode()


def lines_of(name: str) -> ad.Dataset[Any]:
    return ad.TextLineDataset(name).map(decoded)


def lines(files: list[str], of: Any = lines_of) -> ad.Dataset[Any]:
    return ad.Dataset.from_list(files).interleave(of, cycle_length=3, num_parallel_calls=3)


def test_elements_and_order_are_those_of_a_local_run(files: list[str]) -> None:
    with on_fake(faults=Faults(results=5, nodes=5)) as made:
        assert read_plain(lines(files).with_options(CLUSTER)) == read_plain(lines(files))
        assert made[0].calls > 5


def test_the_failures_in_a_window_run_elsewhere_whatever_their_constructors_take() -> None:
    windows = ad.Dataset.from_list(NAMES).map(raises).window(4)
    joined = windows.flat_map(lambda window: window.take(3))
    with on_fake() as made:
        assert outcomes(joined.with_options(CLUSTER)) == outcomes(joined)
        assert made[0].calls > 2


def test_states_pass_from_here_to_the_cluster_and_back(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_run, "CHUNK", 2000)  # places within chunks, too
    monkeypatch.setattr(remote_run, "LEAST", 2000)
    whole, found, state = read_plain(lines(files)), list[Any](), None
    sizes = {True: 0, False: 0}
    with on_fake(faults=Faults(nodes=5)):
        for leg in range(40):
            options = CLUSTER if leg % 2 else ad.Options()
            with lines(files).with_options(options).iterate(state=state) as elements:
                for _ in range(13):
                    found += read_one(elements)
                state = json.loads(json.dumps(elements.state_dict()))
            sizes[bool(leg % 2)] = max(sizes[bool(leg % 2)], len(json.dumps(state)))
    assert found == whole
    assert sizes[True] <= sizes[False] + 3 * 100


@pytest.mark.slow
def test_failures_of_sources_are_not_given_twice(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_run, "CHUNK", 1000)
    monkeypatch.setattr(remote_run, "LEAST", 1000)

    def read(name: str) -> ad.Dataset[Any]:
        missing = ad.TextLineDataset(name + ".missing")
        return lines_of(name).take(8).concatenate(missing).concatenate(lines_of(name).take(8))

    whole, found, state = read_plain(lines(files, read)), list[Any](), None
    assert len(whole) == 5 * 17
    with on_fake():
        while True:
            with lines(files, read).with_options(CLUSTER).iterate(state=state) as elements:
                some = read_one(elements)
                state = elements.state_dict()
            if not some:
                break
            found += some
    assert plain(found) == plain(whole)


def test_what_is_here_of_a_run_is_bounded_by_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """While nobody reads, it reads ahead as far as that allows, but for a part of an element: 3 MB would come."""
    monkeypatch.setattr(remote_run, "CHUNK", 1 << 16)
    monkeypatch.setattr(remote_run, "LEAST", 1 << 10)
    allowance, held, stopped = remote_run.RemoteRun.allowance, [0], threading.Event()

    def recorded(run: remote_run.RemoteRun) -> int:
        held.append(run.held)
        if not (allowed := allowance(run)):
            stopped.set()
        return allowed

    monkeypatch.setattr(remote_run.RemoteRun, "allowance", recorded)
    ds = ad.Dataset.range(1).flat_map(lambda _: ad.Dataset.range(400).map(lambda x: np.full(1 << 10, x)))
    options = ad.Options(cluster=ad.Cluster(calls=0, runs=1), ram_budget=1 << 18, placement="thread")
    with on_fake(), ds.with_options(options).iterate() as elements:
        assert int(next(elements)[0]) == 0
        assert stopped.wait(60)
        assert [int(row[0]) for row in elements] == [*range(1, 400)]
    assert 0 < max(held) < (1 << 18) + np.full(1 << 10, 0).nbytes


def test_arrays_are_writable_unless_views_were_asked_for() -> None:
    def large(n: Any) -> ad.Dataset[Any]:
        return ad.Dataset.range(3).map(lambda x: np.full(1 << 15, x + n, np.float64))

    ds = ad.Dataset.range(4).interleave(large, 2, num_parallel_calls=2)
    with on_fake():
        assert all(array.flags.writeable for array in ds.with_options(CLUSTER))
        views = ad.Options(cluster=ad.Cluster(calls=0, runs=2, copy=False))
        assert not any(array.flags.writeable for array in ds.with_options(views))


def test_a_run_that_loses_worker_after_worker_says_so() -> None:
    ds = ad.Dataset.range(1).interleave(lambda n: ad.Dataset.range(3).map(abs), 1, num_parallel_calls=1)
    with on_fake(faults=Faults(nodes=1, most=1000)), pytest.raises(StageError, match="in a row"):
        list(ds.with_options(CLUSTER))


def test_what_cannot_be_sent_or_run_again_stays(caplog: pytest.LogCaptureFixture) -> None:
    lock = threading.Lock()

    def here(n: Any) -> ad.Dataset[Any]:
        return ad.Dataset.range(3).map(lambda x: lock and x)

    ds = ad.Dataset.range(4).interleave(here, 2, num_parallel_calls=2).with_options(CLUSTER)
    with caplog.at_level("INFO", "asyncdata"), on_fake() as made:
        assert sorted(ds) == sorted([0, 1, 2] * 4)
        assert not made
    assert "runs here and not on the cluster" in caplog.text
    assert "cannot be sent" in caplog.text


def test_elements_that_cannot_be_sent_fail_in_their_places() -> None:
    def odd(n: Any) -> ad.Dataset[Any]:
        return ad.Dataset.range(3).map(lambda x: threading.Lock() if x == 1 else x)

    ds = ad.Dataset.range(2).interleave(odd, 1, num_parallel_calls=1).with_options(CLUSTER)
    with on_fake():
        found = read_plain(ds)
    assert [found[0], found[2], found[3], found[5]] == [0, 2, 0, 2]
    assert ["TypeError" in repr(one) for one in found] == [False, True, False] * 2


def test_what_is_no_exception_ends_the_pipeline() -> None:
    def leaves(x: Any) -> Any:
        raise SystemExit(3)

    ds = ad.Dataset.range(2).interleave(lambda n: ad.Dataset.range(3).map(leaves), 1, num_parallel_calls=1)
    with on_fake(), pytest.raises(SystemExit):
        list(ds.with_options(CLUSTER))


def test_explain_says_where_datasets_run(files: list[str]) -> None:
    with on_fake():
        text = lines(files).with_options(CLUSTER).explain()
        assert "its datasets on the cluster" in text
        text = ad.Dataset.from_list(files).interleave(lines_of).with_options(CLUSTER).explain()
        assert "here: its datasets are read in turn" in text
        calls = ad.Options(cluster=ad.Cluster(calls=2))
        assert "here: Cluster(runs=0)" in lines(files).with_options(calls).explain()


def test_leaving_ends_the_runs(files: list[str]) -> None:
    with on_fake() as made:
        ds = lines(files).with_options(CLUSTER)
        with ds.iterate() as elements:
            next(elements)
        assert list(ds) == read_plain(lines(files))  # on the same actors
        assert [transport.started for transport in made] == [2]


def test_maps_that_follow_run_with_the_datasets(files: list[str]) -> None:
    def build() -> ad.Dataset[Any]:
        mapped = lines(files).map(len, num_parallel_calls=2).map(square, num_parallel_calls=2)
        return mapped.batch(2).shuffle(10, seed=1)

    both = ad.Options(cluster=ad.Cluster(calls=1, runs=2))
    whole, found, state = read_plain(build()), list[Any](), None
    with on_fake(faults=Faults(nodes=9)) as made:
        text = build().with_options(both).explain()
        assert (
            "its datasets → map(len, num_parallel_calls=2) → map(square, num_parallel_calls=2) on the cluster" in text
        )
        for leg in range(40):
            with build().with_options(both if leg % 2 else ad.Options()).iterate(state=state) as elements:
                for _ in range(13):
                    found += read_one(elements)
                state = json.loads(json.dumps(elements.state_dict()))
        assert {transport.kind.name for transport in made} == {"RunActor"}
    assert plain(found) == plain(whole)


def square(x: Any) -> Any:
    return x * x


def test_maps_that_follow_are_made_here_where_a_dataset_stays() -> None:
    lock = threading.Lock()

    def here(n: Any) -> ad.Dataset[Any]:
        return ad.Dataset.range(3).map(lambda x: lock and x)

    ds = ad.Dataset.range(4).interleave(here, 2, num_parallel_calls=2).map(square, num_parallel_calls=2)
    with on_fake():
        assert sorted(ds.with_options(CLUSTER)) == sorted([0, 1, 4] * 4)


def test_maps_of_random_numbers_stay_calls(files: list[str]) -> None:
    def noisy(line: str, rng: Any) -> Any:
        return line, rng.random()

    def build() -> ad.Dataset[Any]:
        return lines(files).map(noisy, num_parallel_calls=2, rng=True, seed=1)

    both = ad.Options(cluster=ad.Cluster(calls=1, runs=2))
    with on_fake():
        assert "noisy, num_parallel_calls=1, executor=cluster)  on the cluster" in build().with_options(both).explain()
        assert read_plain(build().with_options(both)) == read_plain(build())


def test_states_of_shares_are_dealt_to_another_number_of_shares(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_run, "CHUNK", 700)
    monkeypatch.setattr(remote_run, "LEAST", 700)
    monkeypatch.setattr(chunk, "FEW", 0)  # so that positions say how many elements to leave out

    def share(count: int, index: int) -> ad.Dataset[Any]:
        return ad.Dataset.from_list(files).shard(count, index).interleave(lines_of, 2, num_parallel_calls=2)

    found, states = list[Any](), list[Any]()
    with on_fake(faults=Faults(nodes=9)):
        for index in range(2):
            with share(2, index).with_options(CLUSTER).iterate() as elements:
                found += [next(elements) for _ in range(58)]
                states.append(json.loads(json.dumps(elements.state_dict())))
        merged = ad.checkpoint.merge_states(states)
        for index, options in enumerate((ad.Options(), CLUSTER, CLUSTER)):
            with share(3, index).with_options(options).iterate(state=merged) as elements:
                found += elements
    assert sorted(found) == sorted(read_plain(share(1, 0)))


# flat_map


def in_turn(files: list[str]) -> ad.Dataset[Any]:
    return ad.TextLineDataset(files).map(decoded, num_parallel_calls=2)


def test_files_read_in_turn_run_ahead_in_order(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    ahead: list[bool] = []
    read = RunActor.read

    def awaited(self: RunActor, number: int, *rest: Any) -> Any:
        """Have the first chunk come when two more files are asked for."""
        if not ahead:
            ahead.append(until(lambda: len(asked(made[0]) - {number}) == 2))
        return read(self, number, *rest)

    monkeypatch.setattr(RunActor, "read", awaited)
    with on_fake() as made:
        ds = in_turn(files).with_options(CLUSTER)
        assert "its datasets → map(decoded, num_parallel_calls=2) on the cluster" in ds.explain()
        assert read_plain(ds) == read_plain(in_turn(files))
    assert ahead == [True]


def asked(transport: FakeTransport) -> set[int]:
    """The runs that are to be read, by number."""
    return {arguments[0] for actor in transport.actors for name, arguments, _ in [*actor.pending] if name == "read"}


def test_groups_of_elements_that_are_here_stay(files: list[str]) -> None:
    def pairs(key: Any, group: ad.Dataset[Any]) -> ad.Dataset[Any]:
        return group.batch(2)

    ds = ad.Dataset.range(9).group_by_window(lambda n: n % 2, pairs, window_size=4).with_options(CLUSTER)
    with on_fake() as made:
        assert "here: its datasets are made of elements that are here" in ds.explain()
        assert [batch.tolist() for batch in ds] == [[0, 2], [4, 6], [1, 3], [5, 7], [8]]
        assert not made


def test_states_of_files_read_in_turn_pass_from_here_to_the_cluster_and_back(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_run, "CHUNK", 700)
    monkeypatch.setattr(remote_run, "LEAST", 700)
    whole, found, state = read_plain(in_turn(files)), list[Any](), None
    with on_fake(faults=Faults(nodes=9)):
        for leg in range(40):
            with in_turn(files).with_options(CLUSTER if leg % 2 else ad.Options()).iterate(state=state) as elements:
                for _ in range(13):
                    found += read_one(elements)
                state = json.loads(json.dumps(elements.state_dict()))
    assert found == whole
