"""The drop-in records which samples were in each batch, over stops, workers and epochs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import WeightedRandomSampler
from torch.utils.data.distributed import DistributedSampler

from asyncdata.__main__ import main
from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.audit import audit
from asyncdata.recorder.log_reader import read_logs, step_origin
from asyncdata.torch import DataLoader
from tests.recorder.rewriting import rewrite, steps_of
from tests.torch.datasets import Numbers, Stream, seed, started

pytestmark = pytest.mark.torch


class Failing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 3:
            raise ValueError("a bad one")
        return index


def seen(folder: Path) -> list[str]:
    return [*map(str, audit(read_logs(paths_of([f"{folder}/run*.jsonl"]))))]


@pytest.mark.parametrize(
    "how", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "in_order": False}], ids=str
)
def test_a_run_that_stops_and_goes_on_is_complete(how: dict[str, Any], tmp_path: Path) -> None:
    started(2)

    def loader() -> Any:
        return DataLoader(Numbers(), 2, shuffle=True, record=tmp_path / "run.jsonl", **how)

    seed()
    stopped = loader()
    first = [batch.tolist() for batch in stopped]
    elements = iter(stopped)
    second = [next(elements).tolist() for _ in range(2)]
    state = stopped.state_dict()
    next(elements)
    other = loader()
    other.load_state_dict(state)
    second += [batch.tolist() for batch in other]
    whole = [batch for _, batch in zip(range(6), other)]  # a loop that counts does not see the end
    other.state_dict()
    assert len(whole) == 6
    iter(stopped)  # ends what was left
    logs = read_logs([str(tmp_path / "run.jsonl")])
    for epoch, batches in enumerate((first, second)):
        for step, batch in enumerate(batches):
            assert step_origin(logs, step, epoch)["ticket"] == {"of": batch}
    again = ["", "; 1 steps were repeated after restarts", ""]
    assert seen(tmp_path) == [
        f"epoch {number}: 6 steps, 11 records{again[number]}: complete, each once" for number in range(3)
    ]


def test_shares_failures_and_streams(tmp_path: Path) -> None:
    for rank in range(2):
        list(DataLoader(Numbers(12), 2, sampler=DistributedSampler(range(12), 2, rank), record=tmp_path / "run.jsonl"))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["run-0-of-2.jsonl", "run-1-of-2.jsonl"]
    assert seen(tmp_path) == ["epoch 0: 6 steps, 12 records: complete, each once"]
    elements = iter(DataLoader(Failing(6), 2, record=tmp_path / "run" / "run.jsonl"))
    next(elements)
    with pytest.raises(ValueError, match="a bad one"):
        next(elements)
    assert [batch.tolist() for batch in elements] == [[4, 5]]
    assert seen(tmp_path / "run") == ["epoch 0: 3 steps, 4 records; 1 steps failed: complete, each once"]
    list(DataLoader(Stream(), 2, record=tmp_path / "stream" / "run.jsonl"))
    assert "it is not known which records" in seen(tmp_path / "stream")[0]


def with_replacement(folder: Path, **how: Any) -> Any:
    seed()
    sampler = WeightedRandomSampler([1.0, 2.0, 3.0, 1.0] * 5, 61)
    return DataLoader(Numbers(20), 4, sampler=sampler, record=folder / "run.jsonl", **how)


@pytest.mark.parametrize(
    "how", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "in_order": False}], ids=str
)
def test_a_run_whose_sampler_draws_with_replacement_is_complete(how: dict[str, Any], tmp_path: Path) -> None:
    started(2)
    stopped = with_replacement(tmp_path, **how)
    elements = iter(stopped)
    drawn = [number for _ in range(3) for number in next(elements).tolist()]
    state = stopped.state_dict()
    next(elements)
    other = with_replacement(tmp_path, **how)
    other.load_state_dict(state)
    drawn += [number for batch in other for number in batch.tolist()]
    iter(stopped)  # ends what was left
    (found,) = seen(tmp_path)
    begin = "epoch 0: 16 steps, 61 records drawn with replacement ("
    assert found.startswith(begin)
    assert found.endswith("); 1 steps were repeated after restarts: complete, each draw once")
    times = Counter(Counter(drawn).values())
    assert f"{times[2]} {'records ' if not times[1] else ''}twice" in found
    assert main(["audit", str(tmp_path / "run.jsonl")]) == 0
    origin = step_origin(read_logs([str(tmp_path / "run.jsonl")]), 1, 0)
    assert [draw[-1] for draw in origin["ticket"]["of"]] == drawn[4:8] or not how.get("in_order", True)


def given_again(steps: list[Any]) -> None:
    steps[6][1] = steps[5][1]


def given_one_again(steps: list[Any]) -> None:
    steps[6][1]["of"][1] = steps[5][1]["of"][1]


def last_one_lost(steps: list[Any]) -> None:
    steps[6][1]["of"].pop()


def all_lost(steps: list[Any]) -> None:
    steps[6][1]["of"].clear()


def swapped(steps: list[Any]) -> None:
    steps[6][1], steps[5][1] = steps[5][1], steps[6][1]


def swapped_within(steps: list[Any]) -> None:
    steps[6][1]["of"].reverse()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (given_again, "the draws of batch 5 were delivered 2 times"),
        (given_one_again, "step 6 does not have the draws of one batch"),
        (last_one_lost, "step 6 does not have the draws of one batch"),
        (all_lost, "step 6 does not have the draws of one batch"),
        (swapped, "step 6 has the draws of batch 5"),
        (swapped_within, "step 6 does not have the draws of one batch, each once and in their order"),
    ],
)
def test_what_a_run_with_such_a_sampler_did_wrong_is_found(tmp_path: Path, change: Any, words: str) -> None:
    list(with_replacement(tmp_path))
    assert "complete" in seen(tmp_path)[0]
    steps = steps_of(tmp_path / "run.jsonl")
    change(steps)
    rewrite(tmp_path / "run.jsonl", steps)
    (found,) = seen(tmp_path)
    assert "not complete, because" in found
    assert words in found
