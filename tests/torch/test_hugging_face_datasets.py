"""Iterable datasets of Hugging Face in the drop-in: they resume exactly, also where their own states do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.torch import DataLoader
from tests.torch.test_resume import check_every_step

pytestmark = [pytest.mark.torch, pytest.mark.integrations, pytest.mark.filterwarnings("ignore")]


def rows(**given: Any) -> Any:
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({"x": [*range(13)]}).to_iterable_dataset(num_shards=2, **given)


FORMS: dict[str, Callable[[], Any]] = {
    "plain": rows,
    "tensors": lambda: rows().with_format("torch"),
    "shuffled": lambda: rows().shuffle(seed=3, buffer_size=4),
    "mapped and filtered": lambda: rows().map(lambda row: {"y": 2 * row["x"]}).filter(lambda row: row["x"] % 3),
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", FORMS)
def test_it_resumes_at_every_step_and_later_epochs_are_whole(form: str, workers: int) -> None:
    """A state that was loaded into such a dataset is where its later epochs begin, too; buffers are in no state."""
    check_every_step(lambda: DataLoader(FORMS[form](), 2, num_workers=workers), step=5 if workers else 1)


def test_a_state_of_torchdata_without_the_rows_of_a_shuffle_buffer_is_refused() -> None:
    """Torchdata's own loader goes on from it without the rows that were in the buffer."""
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader: Any = StatefulDataLoader(FORMS["shuffled"](), 2)
    batches = iter(loader)
    other = DataLoader[Any](FORMS["shuffled"](), 2)
    other.load_state_dict(loader.state_dict())
    assert repr([*other]) == repr([*DataLoader[Any](FORMS["shuffled"](), 2)])
    for _ in range(3):
        next(batches)
    other = DataLoader[Any](FORMS["shuffled"](), 2)
    with pytest.raises(ad.ResumeError, match=r"with a shuffle buffer, .* skip\(3\) of a new loader"):
        other.load_state_dict(loader.state_dict())
    other.skip(3)
    assert repr([*other]) == repr([*batches])
