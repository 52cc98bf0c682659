"""A run is recorded wherever its pipeline and its functions run, and by each training loop."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.audit import audit
from asyncdata.recorder.expected import ExpectedTickets
from asyncdata.recorder.log_reader import read_logs
from tests.cluster.conftest import ray  # noqa: F401  a fixture
from tests.cluster.fake import on_fake

CLUSTER = ad.Options(cluster=ad.Cluster(calls=1, runs=1))

PLACES: dict[str, tuple[ad.Options, dict[str, Any]]] = {
    "thread": (ad.Options(placement="thread"), {}),
    "current": (ad.Options(placement="current"), {}),
    "process": (ad.Options(placement="process"), {}),
    "worker processes": (ad.Options(), {"executor": "process"}),
    "cluster": (CLUSTER, {}),
    "ray": (CLUSTER, {}),
}


def number(line: bytes) -> int:
    return int(line)


def lines_of(name: str) -> ad.Dataset[Any]:
    return ad.TextLineDataset([name])


def pipeline(folder: Path, how: dict[str, Any]) -> ad.Dataset[Any]:
    files = ad.Dataset.from_list([f"{folder}/{file}.txt" for file in range(3)])
    lines = files.interleave(lines_of, cycle_length=2, num_parallel_calls=2)
    return lines.map(number, num_parallel_calls=2, **how).shuffle(5, seed=1).batch(4)


@pytest.mark.parametrize(
    "place", [*[place for place in PLACES if place != "ray"], pytest.param("ray", marks=pytest.mark.ray)]
)
def test_a_run_that_stops_and_goes_on_is_complete_and_can_go_back(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    for file in range(3):
        (tmp_path / f"{file}.txt").write_text("".join(f"{100 * file + line}\n" for line in range(9)))
    if place == "ray":
        request.getfixturevalue("ray")
    options, how = PLACES[place]
    recorded = pipeline(tmp_path, how).with_options(options).with_options(ad.Options(record=tmp_path / "run.jsonl"))
    whole = [batch.tolist() for batch in pipeline(tmp_path, {})]
    on: AbstractContextManager[Any] = on_fake() if place == "cluster" else nullcontext()
    with on:
        with recorded.iterate(epoch=0) as batches:
            first = [next(batches).tolist() for _ in range(3)]
            state = batches.state_dict()
            next(batches)
        assert first + [batch.tolist() for batch in recorded.iterate(state=state)] == whole
    here = pipeline(tmp_path, {})
    state = here.state_before(4, record=tmp_path / "run.jsonl")
    assert [batch.tolist() for batch in here.iterate(state=state)] == whole[4:]
    check(pipeline(tmp_path, {}), tmp_path, [27])


def check(ds: ad.Dataset[Any], folder: Path, records: list[int]) -> None:
    """The logs are complete, and each epoch has so many records."""
    found = audit(read_logs(paths_of([f"{folder}/run*.jsonl"])), ExpectedTickets(ds.plan, ds.options()))
    assert all(one.complete for one in found), "\n".join(map(str, found))
    assert [one.records for one in found] == records, "\n".join(map(str, found))


def lightning(make: Callable[[], ad.Dataset[Any]], folder: Path) -> None:
    from tests.integrations.test_lightning import train

    train(make, folder, stop=7)
    train(make, folder, resume=True)


def hugging_face(make: Callable[[], ad.Dataset[Any]], folder: Path) -> None:
    from tests.integrations import test_trainers as trainers

    with pytest.MonkeyPatch.context() as now:
        now.setattr(trainers, "batches", make)
        seen: list[Any] = []
        with pytest.raises(trainers.Stopped):
            trainers.hf_trainer(folder, seen, 7, True).train()
        trainers.hf_trainer(folder, seen, 0, True).train(resume_from_checkpoint=True)


def stateful_dataloader(make: Callable[[], ad.Dataset[Any]], _: Path) -> None:
    from torchdata.stateful_dataloader import StatefulDataLoader

    def loader() -> Any:
        return StatefulDataLoader(make().to_torch(), batch_size=None, num_workers=2)

    stopped = loader()
    elements = iter(stopped)
    for _ in range(3):
        next(elements)
    state = stopped.state_dict()
    other = loader()
    other.load_state_dict(state)
    for _ in range(3):
        list(other)


@pytest.mark.integrations
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("train", [lightning, hugging_face, stateful_dataloader])
def test_a_training_loop_that_is_stopped_and_goes_on_leaves_complete_logs(train: Any, tmp_path: Path) -> None:
    def rows() -> ad.Dataset[Any]:
        return ad.Dataset.range(14).shuffle(seed=1).map(lambda x: {"x": float(x), "labels": float(x)}).batch(3)

    train(lambda: rows().with_options(ad.Options(record=tmp_path / "run.jsonl")), tmp_path)
    gc.collect()  # the last epoch is written when nobody holds its iterator
    check(rows(), tmp_path, [14] * 3)
