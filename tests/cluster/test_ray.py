"""The same on Ray itself: order, states, killed workers, and what is told when Ray is not there any more."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.cluster.ray_transport import RayTransport
from asyncdata.cluster.transport import CALLS, Loss
from tests.cluster.fake import until
from tests.cluster.test_calls import pipelines, plain, read_one
from tests.running import read_plain

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
CLUSTER = ad.Options(cluster=ad.Cluster(calls=2))


@pytest.fixture(scope="module", autouse=True)
def warm(ray: Any) -> Any:
    """Hold two actors, so that not every test starts its own."""
    ds = ad.Dataset.range(9).map(abs, num_parallel_calls=2).with_options(CLUSTER)
    assert list(ds) == [*range(9)]
    return ds


@pytest.mark.parametrize("name", pipelines())
def test_elements_and_order_are_those_of_a_local_run(name: str) -> None:
    assert plain(read_plain(pipelines()[name].with_options(CLUSTER))) == plain(read_plain(pipelines()[name]))


HERE = ad.Options()


@pytest.mark.parametrize("name", pipelines())
@pytest.mark.parametrize("legs", [(HERE, CLUSTER), (CLUSTER, HERE), (CLUSTER, CLUSTER)], ids=["to", "from", "within"])
def test_states_pass_between_here_and_the_cluster(name: str, legs: tuple[ad.Options, ad.Options]) -> None:
    whole = read_plain(pipelines()[name])
    for place in (1, len(whole) // 2, len(whole)):  # test_calls.py has more legs, without a real cluster
        found, state = list[Any](), None
        for options, stop in zip(legs, (place, len(whole) + 1), strict=True):
            with pipelines()[name].with_options(options).iterate(state=state) as elements:
                while len(found) < stop and (some := read_one(elements)):
                    found += some
                state = json.loads(json.dumps(elements.state_dict()))
        assert plain(found) == plain(whole), place


def with_pid(number: Any) -> tuple[Any, int, Any]:
    return number, os.getpid(), np.full(1000, number + 0 * sum(range(5000)))


@pytest.mark.parametrize("ends_here", [False, True])
def test_killed_workers_cost_nothing_but_time(ends_here: bool) -> None:
    ds = ad.Dataset.range(4000).map(with_pid, num_parallel_calls=2)
    found, killed = list[Any](), list[int]()
    with ds.with_options(CLUSTER).iterate() as elements:
        for number, pid, array in elements:
            found.append(number)
            assert (array == number).all()
            if len(found) % 600 == 0 and len(killed) < 4:
                killed.append(pid)
                if pid not in killed[:-1]:
                    os.kill(pid, signal.SIGKILL)
            if ends_here and len(found) == 2500:
                break
        state = elements.state_dict()
    with ds.iterate(state=state) as elements:
        found += [number for number, _, _ in elements]
    assert found == [*range(4000)]
    assert len(set(killed)) >= 2


def ends(number: Any) -> Any:
    if number == 5:
        os._exit(3)
    return number


def test_an_element_that_kills_twice_fails_in_its_place() -> None:
    elements = iter(ad.Dataset.range(20).map(ends, num_parallel_calls=2).with_options(CLUSTER))
    found = [next(elements) for _ in range(5)]
    with pytest.raises(ad.WorkerCrashed, match="2 times") as caught:
        next(elements)
    assert [*found, *elements] == [*range(5), *range(6, 20)]
    assert "element 5" in caught.value.__notes__[0]


def raises(number: Any) -> Any:
    raise KeyError(number)


def test_errors_of_functions_show_where_they_were_raised() -> None:
    with pytest.raises(KeyError) as caught:
        next(iter(ad.Dataset.range(2).map(raises, num_parallel_calls=2).with_options(CLUSTER)))
    assert "in raises" in str(caught.value.__cause__)


def test_arrays_are_writable_and_views_are_not() -> None:
    ds = ad.Dataset.range(3).map(lambda x: np.full(1 << 18, x, np.float64), num_parallel_calls=2)
    own = list(ds.with_options(CLUSTER))
    assert all(array.flags.writeable for array in own)
    views = list(ds.with_options(ad.Options(cluster=ad.Cluster(calls=1, copy=False))))
    assert not any(array.flags.writeable for array in views)
    assert [array[1] for array in own + views] == [0, 1, 2, 0, 1, 2]


def test_large_data_that_a_function_holds_is_once_in_rays_store() -> None:
    """Each actor maps it, and has no copy."""
    table = np.arange(1 << 18)

    def look(number: int) -> tuple[int, bool, bool]:
        return int(table[number]), table.flags.writeable, mapped_from_a_file(table.ctypes.data)

    def mapped_from_a_file(address: int) -> bool:
        for line in Path("/proc/self/maps").read_text().splitlines():
            start, end = [int(part, 16) for part in line.split()[0].split("-")]
            if start <= address < end:
                return len(line.split()) > 5 and "rw-p" not in line
        return False

    ds = ad.Dataset.range(4).map(look, num_parallel_calls=2).with_options(CLUSTER)
    assert list(ds) == [(number, False, True) for number in range(4)]


def test_actors_that_the_cluster_has_no_room_for_are_waited_for() -> None:
    ds = ad.Dataset.range(3).map(abs, num_parallel_calls=2)
    with pytest.raises(ad.StageError, match=r"no actor has started in .* needs 99 CPUs, the cluster has 4"):
        list(ds.with_options(ad.Options(cluster=ad.Cluster(calls=2, num_cpus=99, timeout=1))))
    some = ad.Options(cluster=ad.Cluster(calls=40))  # as many as there is room for
    assert list(ad.Dataset.range(300).map(abs, num_parallel_calls=2).with_options(some)) == [*range(300)]


def test_what_ray_says_is_told_apart(ray: Any) -> None:
    transport = RayTransport(CLUSTER.cluster, CALLS)
    known = ray.exceptions
    for full in (known.ObjectStoreFullError("no room"), known.OutOfDiskError("no room")):
        answer = transport.lost(full, None)
        assert isinstance(answer, ad.StageError)
        assert "object_store_memory" in str(answer)
    assert transport.lost(known.ObjectLostError("ab" * 28, "", ""), None) is Loss.RESULT
    assert transport.lost(known.ActorUnavailableError("away", None), None) is Loss.NODE
    assert isinstance(transport.lost(ValueError("odd"), None), ad.StageError)


def run(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAY_ADDRESS": "local"}  # no cluster of anybody else's
    return subprocess.run(
        [sys.executable, *arguments, *(["-c", program] if program else [])],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=800,
    )


def test_the_page_and_the_example_run() -> None:
    page = (ROOT / "docs" / "scale-out.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    done = run(program)
    assert done.returncode == 0, done.stderr
    assert "on the cluster" in done.stdout
    assert done.stdout.splitlines()[-1] == "100"
    done = run("", str(ROOT / "examples" / "cluster" / "preprocess_on_ray.py"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "10 batches there and 15 here are those of a local run: True"


SHUT_DOWN = """
import logging, ray, time, asyncdata as ad
logging.basicConfig(level=logging.INFO)
ds = ad.Dataset.range(400).map(lambda x: time.sleep(0.02) or x, num_parallel_calls=2)
ds = ds.with_options(ad.Options(cluster=ad.Cluster(calls=1)))
elements = ds.iterate()
found = [next(elements) for _ in range(5)]
ray.shutdown()
try:
    found += elements
except ad.StageError as error:
    print(error)
print(ray.is_initialized())
state = elements.state_dict()
with ds.iterate(state=state) as rest:
    print(state["delivered"] + len(list(rest)))
"""


def test_a_connection_that_is_shut_down_is_told_and_the_state_answers() -> None:
    done = run(SHUT_DOWN)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "shut down" in lines[0]
    assert lines[1:] == ["False", "400"]
    assert "calling ray.init()" in done.stderr


KILLED = """
import os, ray, sys, time, asyncdata as ad
ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
ds = ad.Dataset.range(10_000).map(lambda x: time.sleep(0.05) or os.getpid(), num_parallel_calls=2)
elements = iter(ds.with_options(ad.Options(cluster=ad.Cluster(calls=2))))
print(*{next(elements) for _ in range(40)}, flush=True)
time.sleep(100)
"""


def test_no_actor_stays_when_the_trainer_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, env=environment
    ) as trainer:
        assert trainer.stdout is not None
        pids = [int(pid) for pid in trainer.stdout.readline().split()]
        assert pids
        trainer.kill()
    assert until(lambda: not any(map(is_alive, pids)), 60)


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def slow(number: Any) -> Any:
    time.sleep(0.01)
    return number


def test_what_was_left_does_not_keep_others_waiting(warm: Any) -> None:
    for element in ad.Dataset.range(1000).map(slow, num_parallel_calls=2).with_options(CLUSTER):
        if element == 5:
            break
    assert list(warm) == [*range(9)]


# datasets that run elsewhere

RUNS = ad.Options(cluster=ad.Cluster(calls=0, runs=2))


def records_of(name: str) -> ad.Dataset[Any]:
    return ad.TFRecordDataset(name).map(len)


@pytest.fixture
def records(tmp_path: Path) -> list[str]:
    names = [str(tmp_path / f"{number}.tfrecord") for number in range(6)]
    for number, name in enumerate(names):
        with ad.TFRecordWriter(name) as writer:
            for length in range(150):
                writer.write(bytes(20_000 + 1000 * number + length))
    return names


def read_records(names: list[str], of: Any = records_of) -> ad.Dataset[Any]:
    return ad.Dataset.from_list(names).interleave(of, cycle_length=3, num_parallel_calls=3)


def bytes_read() -> int:
    """How many bytes this process has read by system calls, also from the cache of files."""
    return int(re.findall(r"rchar: (\d+)", Path("/proc/self/io").read_text(encoding="utf-8"))[0])


def in_turn(names: list[str]) -> ad.Dataset[Any]:
    return ad.TFRecordDataset(names).map(len, num_parallel_calls=2)


@pytest.mark.parametrize("build", [read_records, in_turn])
def test_the_trainer_reads_no_files_where_datasets_run_elsewhere(records: list[str], build: Any) -> None:
    expected = read_plain(build(records))
    ds = build(records).with_options(RUNS)
    read_plain(ds)  # once the actors are there
    before = bytes_read()
    assert read_plain(ds) == expected
    assert bytes_read() - before < 0.01 * sum(expected)


def test_runs_pass_from_here_to_the_cluster_and_back(records: list[str]) -> None:
    whole = read_plain(read_records(records))
    found, state, options = list[Any](), None, [RUNS, ad.Options()]
    local = 0
    for leg, stop in enumerate((50, 51, 200, 333, 600, 601, 2000)):
        with read_records(records).with_options(options[0]).iterate(state=state) as elements:
            while len(found) < stop and (some := read_one(elements)):
                found += some
            state = json.loads(json.dumps(elements.state_dict()))
        if leg % 2:
            local = len(json.dumps(state))
        elif local:
            assert len(json.dumps(state)) <= local + 3 * 100
        options.reverse()
    assert found == whole


def slow_records_of(name: str) -> ad.Dataset[Any]:
    return ad.TFRecordDataset(name).map(with_pid_of)


def with_pid_of(record: bytes) -> tuple[int, int]:
    return len(record) + 0 * sum(range(20_000)), os.getpid()


def slow_in_turn(names: list[str]) -> ad.Dataset[Any]:
    return ad.Dataset.from_list(names).flat_map(slow_records_of)


def slow_interleaved(names: list[str]) -> ad.Dataset[Any]:
    return read_records(names, slow_records_of)


@pytest.mark.parametrize("build", [slow_interleaved, slow_in_turn])
def test_killed_workers_cost_runs_nothing_but_time(records: list[str], build: Any) -> None:
    expected = [length for length, _ in build(records)]
    found, killed = list[Any](), set[int]()
    for length, pid in build(records).with_options(RUNS):
        found.append(length)
        if len(found) % 200 == 0 and len(killed) < 3 and pid not in killed:
            killed.add(pid)
            os.kill(pid, signal.SIGKILL)
    assert found == expected
    assert len(killed) >= 2


def ends_at(record: bytes) -> int:
    if len(record) == 20_070:
        os._exit(3)
    return len(record)


def ending_records_of(name: str) -> ad.Dataset[Any]:
    return ad.TFRecordDataset(name).map(ends_at)


def test_an_element_that_kills_in_a_run_fails_in_its_place(records: list[str]) -> None:
    expected = read_plain(read_records(records))
    found = read_plain(read_records(records, ending_records_of).with_options(RUNS))
    place = expected.index(20_070)
    assert found[:place] + found[place + 1 :] == expected[:place] + expected[place + 1 :]
    assert "WorkerCrashed" in repr(found[place])


# what takes long


class Killer:
    """Kills an actor that has given something, each time some elements more have come.

    Not as time passes: of what is slow on a busy machine the same element would be hit twice, and be blamed.
    """

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.pids: set[int] = set()
        self.killed: list[int] = []
        self.next = 0

    def seen(self, pid: int, count: int) -> None:
        """Take note that so many elements have come, the last one from this actor."""
        self.pids.add(pid)
        if count < self.next:
            return
        if self.next and (alive := sorted(pid for pid in self.pids if is_alive(pid))):
            self.killed.append(self.dice.choice(alive))
            self.pids.discard(self.killed[-1])
            os.kill(self.killed[-1], signal.SIGKILL)
        self.next = count + self.dice.randrange(1000, 2200)


def calls_under_kills(seed: int, _: list[str]) -> ad.Dataset[Any]:
    return ad.Dataset.range(9000).shuffle(300, seed=seed).map(with_pid, num_parallel_calls=2)


def runs_under_kills(_: int, names: list[str]) -> ad.Dataset[Any]:
    return read_records(names * 9, slow_records_of)


def files_under_kills(_: int, names: list[str]) -> ad.Dataset[Any]:
    return ad.TFRecordDataset(names * 9).map(with_pid_of, num_parallel_calls=2)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_twenty_runs_under_kills_at_random_are_exact(records: list[str]) -> None:
    deaths = 0
    for turn in range(20):
        build = (calls_under_kills, calls_under_kills, runs_under_kills, files_under_kills)[turn % 4]
        ds, killer, found = build(turn, records), Killer(turn), list[Any]()
        with ds.iterate(epoch=0) as elements:
            expected = [element[0] for element in elements]
        with ds.with_options(CLUSTER if build is calls_under_kills else RUNS).iterate(epoch=0) as elements:
            for element in elements:
                found.append(element[0])
                assert build is not calls_under_kills or (element[2] == element[0]).all()
                killer.seen(element[1], len(found))
                if turn % 3 == 2 and len(found) == 5000:
                    break
            state = json.loads(json.dumps(elements.state_dict()))
        with ds.iterate(state=state) as elements:  # a third of the runs goes on without the cluster
            found += [element[0] for element in elements]
        assert found == expected, f"run {turn}"
        deaths += len(killer.killed)
    assert deaths >= 50


NODES = """
import ray
from ray.cluster_utils import Cluster
import asyncdata as ad, numpy as np

def work(number):
    return number, ray.get_runtime_context().get_node_id(), np.full(500, number + 0 * sum(range(8000)))

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
numbers = ad.Dataset.range(6000)
parts = ad.Dataset.range(6).flat_map(lambda n: ad.Dataset.range(1000 * n, 1000 * n + 1000))  # run on workers, too
for source in (numbers.filter(lambda x: x % 3, num_parallel_calls=4), numbers.shuffle(100, seed=1).repeat(2), parts):
    expected = list(source.iterate(epoch=0))
    where = ad.Cluster(calls=0, runs=4) if source is parts else ad.Cluster(calls=4)
    ds = source.map(work, num_parallel_calls=4).with_options(ad.Options(cluster=where))
    nodes = {node.node_id: node for node in [cluster.add_node(num_cpus=2) for _ in range(2)]}
    found, removed = [], []
    with ds.iterate(epoch=0) as elements:
        for number, node, array in elements:
            found.append(number)
            assert (array == number).all()
            if node in nodes and len(removed) < 2 and len(found) >= 1200 * (len(removed) + 1):
                removed.append(node)
                cluster.remove_node(nodes.pop(node), allow_graceful=False)
                fresh = cluster.add_node(num_cpus=2)
                nodes[fresh.node_id] = fresh
    for node in nodes.values():
        cluster.remove_node(node)
    print(len(removed), found == expected, flush=True)
ray.shutdown()
cluster.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nodes_that_are_removed_cost_nothing_but_time() -> None:
    done = run(NODES)
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stdout.splitlines() if line in {"2 True", "2 False"} or line[:2] in {"0 ", "1 "}]
    assert told == ["2 True"] * 3  # besides what Ray prints of the nodes
