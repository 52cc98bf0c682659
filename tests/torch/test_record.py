"""The drop-in records which samples were in each batch, over stops, workers and epochs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data.distributed import DistributedSampler

from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.audit import audit
from asyncdata.recorder.log_reader import read_logs, step_origin
from asyncdata.torch import DataLoader
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
