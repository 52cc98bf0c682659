"""States that torchdata's StatefulDataLoader has saved, as states of a loader of this package."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from asyncdata.errors import ResumeError
from asyncdata.runtime.state_values import to_json_value
from asyncdata.sources.hugging_face_streams import forgets_its_buffer
from asyncdata.torch.index_batches import IndexBatches
from asyncdata.torch.internals import is_iterable, torch

__all__ = ("is_of_torchdata", "state_of_torchdata")

FINISHED: Final = "_iterator_finished"


def is_of_torchdata(state: Mapping[str, Any]) -> bool:
    """Return whether torchdata's StatefulDataLoader has saved this."""
    return FINISHED in state and ("_snapshot" in state or "_num_yielded" in state)


def state_of_torchdata(loader: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of `loader` that continues where torchdata's loader was; `ResumeError` if that is not known.

    The epoch has the number 0, as torchdata does not count them. A sampler that PyTorch has made for `shuffle=True`
    gets the generator of the state.
    """
    snapshot: Mapping[str, Any] = state.get("_snapshot", {})
    main: Mapping[str, Any] = snapshot.get("_main_snapshot", state)
    workers = main.get("_num_workers", 0)
    given = snapshot.get("_snapshot_step", state.get("_num_yielded", 0))
    parts = [*snapshot["_worker_snapshots"].values()] if snapshot else [state]
    streams = [None if forgets_its_buffer(loader.dataset) else stream_of(part) for part in parts]
    behind, ended = state.get("_steps_since_snapshot", 0), bool(state[FINISHED])
    if not ended:
        check_streams(loader, streams, given + behind)
    indices = sampled(loader, main, behind, ended)
    last = snapshot.get("_last_yielded_worker_id", -1)
    made = [-(-(given - worker) // workers) for worker in range(workers)] if workers else [given]
    anew = [not turn and begins_anew(loader, part) for turn, part in zip(made, parts, strict=True)]
    streams = [None if new else stream for new, stream in zip(anew, streams, strict=True)]
    return {
        "version": 1,
        "kind": loader.kind,
        "num_workers": workers,
        "epoch": 0,
        "begun": True,
        "ended": ended,
        "given": given,
        "behind": behind,
        "positions": [
            [max(turn, int(stream is not None)), None, None, stream, 0]
            for turn, stream in zip(made, streams, strict=True)
        ],
        "waiting": [],
        "active": [True] * workers,
        "next_worker": (last + 1) % max(1, workers),
        **indices,
        "seed": main.get("_base_seed") or int(torch.empty((), dtype=torch.int64).random_().item()),
        "drew": False,
    }


def stream_of(part: Mapping[str, Any]) -> str | None:
    """Return the states of a dataset and its iterator, as JSON; `None` if they have none."""
    fetcher: dict[str, Any] = part["fetcher_state"] or {}
    states = {"dataset": part["dataset_state"], "iterator": fetcher.get("dataset_iter_state")}
    found = {name: to_json_value(one) for name, one in states.items() if one is not None}
    return json.dumps(found) if found else None


def begins_anew(loader: Any, part: Mapping[str, Any]) -> bool:
    """Return whether a dataset of which nothing was read in this epoch begins at its beginning: if its iterator has no
    state, the dataset's may be the one behind an earlier epoch."""
    fetcher: dict[str, Any] = part["fetcher_state"] or {}
    return is_iterable(loader.kind) and fetcher.get("dataset_iter_state") is None


def check_streams(loader: Any, streams: list[str | None], given: int) -> None:
    """Raise if a state does not hold where an iterable dataset was."""
    if is_iterable(loader.kind) and given and None in streams:
        raise ResumeError(
            "torchdata's state does not hold the position of an iterable dataset without state_dict and "
            "load_state_dict, or with a shuffle buffer, nor anything by which to see whether it gives the same "
            f"elements again: if it does, leave out the batches that were given, skip({given}) of a new loader"
        )


def sampled(loader: Any, main: Mapping[str, Any], behind: int, ended: bool) -> dict[str, Any]:
    """Return what the state says of the sampler, as `IndexBatches.state` does, but not which batches were taken."""
    count = main["_sampler_iter_yielded"]
    steps: dict[str, Any] = main["_sampler_iter_state"] or {}
    check_batch_size(loader, steps, count)
    unknown = {"attributes": dict[str, Any](), "lost": list[str](), "digest": None, "exhausted": False}
    own, drawn = main["_index_sampler_state"] or steps.get("sampler_state"), generator_state(steps)
    if drawn is not None:
        give_generator(loader, drawn, ended * (1 + ("_base_seed" in main)))
    batches = IndexBatches(loader, 0, None)
    if own is not None:
        if ended:
            own = taken_on(batches, own, behind)
        return {**batches.state(ended, {}), **unknown, "sampler": to_json_value(own)}
    if not ended and drawn is None:
        check_known(loader, batches, count + behind)
    return {**batches.state(ended, {}), **unknown, "taken": count}


def generator_state(steps: Mapping[str, Any]) -> Any:
    """Return the state that the generator of a random sampler had at the start of the epoch, if it is known."""
    return (steps.get("sampler_iter_state") or steps).get("generator")


def check_batch_size(loader: Any, steps: Mapping[str, Any], count: int) -> None:
    """Raise if batches had another size."""
    samples, size = steps.get("samples_yielded"), loader.batch_size
    if samples is None or size is None or is_iterable(loader.kind):
        return
    rest = abs(samples - count * size) < size and hasattr(loader.sampler, "__len__") and samples == len(loader.sampler)
    if samples != count * size and not rest:
        raise ResumeError(
            f"torchdata's state has {samples} samples in {count} batches, and this loader's have {size}: give the "
            "batch_size with which it was saved"
        )


def taken_on(batches: IndexBatches, state: Any, count: int) -> Any:
    """Return the state of a sampler so many batches behind a state."""
    batches.source.load_sampler(to_json_value(state))
    batches.batches = iter(batches.sampler)
    for _ in range(count):
        next(batches, None)
    return batches.source.owner.state_dict()


def give_generator(loader: Any, state: Any, orders: int) -> None:
    """Give PyTorch's sampler the generator of torchdata's, as it is when so many more orders were drawn.

    Torchdata draws one whenever it iterates the sampler: with workers twice in an epoch.
    """
    sampler = loader.sampler
    if not isinstance(sampler, torch.utils.data.RandomSampler):
        kind: Any = sampler.__class__
        raise ResumeError(
            "torchdata's state has the generator of a random sampler, which only PyTorch's of shuffle=True continues, "
            f"but the sampler is a {kind.__module__}.{kind.__qualname__}: give shuffle=True if the state is of that, "
            "or finish the run with StatefulDataLoader"
        )
    if sampler.generator is None:
        sampler.generator = torch.Generator()
    sampler.generator.set_state(state)
    for _ in range(orders):
        torch.randperm(len(sampler.data_source), generator=sampler.generator)


def check_known(loader: Any, batches: IndexBatches, count: int) -> None:
    """Raise if a sampler gives the batches that were given by more than torchdata's state has."""
    before = loader.sampler_attributes.marks()
    for _ in range(count):
        next(batches, None)
    drawn = [name for name, both in batches.state(False, {})["generators"].items() if len(both) > 1]
    changed = [name for name, mark in loader.sampler_attributes.marks().items() if before.get(name) != mark]
    if drawn or changed:
        raise ResumeError(
            f"torchdata's state does not hold {', '.join([*drawn, *changed])}, by which the "
            f"{type(loader.index_sampler).__name__} gives its batches: finish the epoch with StatefulDataLoader, and "
            "load the state that it has then"
        )
