"""On Ray itself: who leaves leaves nothing there, and what is told where nodes differ or a store is full."""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.cluster import handle
from tests.cluster.fake import until
from tests.cluster.test_ray import KILLED, is_alive, run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300), pytest.mark.usefixtures("ray")]

BOTH = ad.Cluster(calls=1, runs=1)


def arrays(number: Any) -> ad.Dataset[Any]:
    return ad.Dataset.counter().map(array)


def array(number: Any) -> Any:
    return np.full(1 << 16, number, np.float64)


def endless() -> ad.Dataset[Any]:
    """Arrays of inner datasets that never end, and a map that is a call."""
    inner = ad.Dataset.range(3).interleave(arrays, 3, num_parallel_calls=3)
    return inner.filter(bool_of, num_parallel_calls=2).with_options(ad.Options(cluster=BOTH))


def bool_of(array: Any) -> bool:
    return array[0] >= 0


def leave_by_break() -> None:
    for array in endless():
        if array[0] > 3:
            break


def leave_by_close() -> None:
    elements = endless().iterate()
    assert [next(elements)[0] for _ in range(5)]
    elements.close()


def leave_as_garbage() -> None:
    elements = iter(endless())
    assert [next(elements)[0] for _ in range(5)]
    del elements
    gc.collect()


def leave_by_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt):
        for array in endless():
            if array[0] > 3:
                signal.raise_signal(signal.SIGINT)


def runs_on(ray: Any) -> int:
    """How many runs the actors have now."""
    actors = [actor.actor for actor in handle.runs_of(BOTH).pool.actors]
    return sum(ray.get([actor.__ray_call__.remote(count_runs) for actor in actors]))


def count_runs(actor: Any) -> int:
    return len(actor.actor.runs)


def references() -> int:
    """How many objects of Ray this process refers to."""
    worker = importlib.import_module("ray._private.worker").global_worker
    return len(worker.core_worker.get_all_reference_counts())


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_close, leave_as_garbage, leave_by_ctrl_c])
def test_who_leaves_leaves_no_run_and_no_reference(ray: Any, leave: Any) -> None:
    kept = endless()  # so that the actors stay
    elements = iter(kept)
    next(elements)
    assert runs_on(ray) >= 3
    elements.close()
    assert until(lambda: runs_on(ray) == 0)
    before = references()
    leave()
    assert until(lambda: runs_on(ray) == 0)
    assert until(lambda: references() <= before)


RUNS_KILLED = KILLED.replace("Cluster(calls=2)", "Cluster(calls=0, runs=2)").replace(
    "ad.Dataset.range(10_000).map(lambda x: time.sleep(0.05) or os.getpid(), num_parallel_calls=2)",
    "ad.Dataset.range(2).interleave(lambda n: ad.Dataset.counter().map(lambda x: os.getpid()), num_parallel_calls=2)",
)


def test_no_actor_stays_that_runs_datasets_when_the_trainer_is_killed() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", RUNS_KILLED]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as trainer:
        assert trainer.stdout is not None
        pids = [int(pid) for pid in trainer.stdout.readline().split()]
        assert pids
        trainer.kill()
    assert until(lambda: not any(map(is_alive, pids)), 60)


def test_another_version_on_a_node_is_told_at_the_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ad, "__version__", "9.9.9")  # here; the worker has what is installed
    ds = ad.Dataset.range(9).map(abs, num_parallel_calls=2)
    with pytest.raises(
        ad.StageError, match=r"worker on node [\d.]+ runs Python 3.* asyncdata .*, this process .*9\.9\.9"
    ):
        list(ds.with_options(ad.Options(cluster=ad.Cluster(calls=1, num_cpus=0.5))))


def test_a_module_that_is_missing_on_a_node_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_on_the_trainer.py").write_text("def double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(tmp_path)
    double = importlib.import_module("only_on_the_trainer").double
    calls = ad.Dataset.range(9).map(double, num_parallel_calls=2)
    inner = ad.Dataset.range(2).interleave(lambda n: ad.Dataset.range(3).map(double), 2, num_parallel_calls=2)
    for ds in (calls, inner):
        with pytest.raises(ad.StageError, match="only_on_the_trainer.*install what it imports on every node"):
            list(ds.with_options(ad.Options(cluster=BOTH)))


def test_states_of_shares_on_the_cluster_are_dealt_to_another_number_of_shares() -> None:
    def share(count: int, index: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(300).shard(count, index).map(abs, num_parallel_calls=2).batch(3).unbatch()

    options, found, states = ad.Options(cluster=BOTH), list[Any](), list[Any]()
    for index in range(2):
        with share(2, index).with_options(options).iterate() as elements:
            found += [next(elements) for _ in range(60)]
            states.append(json.loads(json.dumps(elements.state_dict())))
    merged = ad.checkpoint.merge_states(states)
    for index in range(3):
        with share(3, index).with_options(options).iterate(state=merged) as elements:
            found += elements
    assert sorted(found) == [*range(300)]


def test_without_order_each_element_comes_once_here_and_there() -> None:
    def build() -> ad.Dataset[Any]:
        return ad.Dataset.range(400).map(abs, num_parallel_calls=4, deterministic=False)

    found, state = list[Any](), None
    for leg in range(6):
        options = ad.Options(cluster=BOTH) if leg % 2 else ad.Options()
        with build().with_options(options).iterate(state=state) as elements:
            found += [next(elements) for _ in range(50)]
            state = json.loads(json.dumps(elements.state_dict()))
    with build().with_options(ad.Options(cluster=BOTH)).iterate(state=state) as elements:
        found += elements
    assert sorted(found) == [*range(400)]


FULL = """
import ray, asyncdata as ad, numpy as np
ray.init("local", num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR",
         object_store_memory=80 << 20,
         _system_config={"local_fs_capacity_threshold": 0.0, "automatic_object_spilling_enabled": False})
ds = ad.Dataset.range(40).map(lambda n: np.full(10 << 20, n, np.uint8), num_parallel_calls=1 + 1)
kept = []
try:
    for array in ds.with_options(ad.Options(cluster=ad.Cluster(calls=1, copy=False))):
        kept.append(array)
except ad.StageError as error:
    print(len(kept), error)
"""


def test_a_full_object_store_is_told_with_advice() -> None:
    done = run(FULL)
    assert done.returncode == 0, done.stderr
    assert "object_store_memory" in done.stdout
