"""IndexBatches: the indices of an epoch's batches, drawn as PyTorch draws them, and drawn again to resume."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping
from inspect import currentframe
from types import FrameType
from typing import Any
from zlib import crc32

from asyncdata.errors import ResumeError
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.torch.generators import generators_of, restore, snapshot
from asyncdata.torch.internals import BaseSampler, torch
from asyncdata.torch.sampler_attributes import SamplerAttributes, rank_of_process
from asyncdata.torch.worker_run import is_stateful

__all__ = ("BatchSampler", "IndexBatches", "is_within", "unread")


class BatchSampler(BaseSampler):
    """PyTorch's, which refuses what would resume with other batches.

    Hugging Face's Trainer, and `skip_first_batches` of accelerate, which it calls, leave out as many batches as were
    given in the epoch. If the sampler draws its order, it must have drawn those of the earlier epochs, too.
    """

    __slots__ = ("begun", "epoch")  # no attributes that a state would hold

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        BaseSampler.__init__(self, sampler, batch_size, drop_last)
        self.epoch, self.begun = 0, False

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, also of the sampler if it has a number."""
        self.epoch = epoch
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)

    def __iter__(self) -> Iterator[Any]:
        draws = hasattr(self.sampler, "generator") and not hasattr(self.sampler, "set_epoch")
        if self.epoch and not self.begun and draws and leaves_out_batches(currentframe()):
            raise ResumeError(
                f"epoch {self.epoch} cannot be resumed by leaving out its first batches: {type(self.sampler).__name__} "
                "draws another order in a new process. Return accelerator.prepare(loader) from get_train_dataloader, "
                "or load a state of the loader"
            )
        self.begun = True
        return BaseSampler.__iter__(self)


def leaves_out_batches(frame: FrameType | None) -> bool:
    """Return whether the caller is accelerate's sampler that leaves out batches."""
    caller = None if frame is None or frame.f_back is None else frame.f_back.f_locals.get("self")
    return getattr(caller, "skip_batches", 0) > 0


class IndexBatches:
    """The batches of a sampler, one after the other; how many were taken, and a checksum of them.

    PyTorch iterates the sampler, then draws the workers' seed, and with workers iterates the sampler again.
    """

    def __init__(self, loader: Any, seed: int | None, saved: Mapping[str, Any] | None) -> None:
        self.sampler = loader.index_sampler
        self.generators = generators_of(self.sampler, loader.generator)
        self.attributes: SamplerAttributes = loader.sampler_attributes
        self.taken = self.digest = 0
        self.exhausted = False
        if saved is not None:
            self.load(saved)
        self.start = snapshot(self.generators)
        self.sampler_start = sampler_state(self.sampler, self.attributes)
        self.seed = seed if seed is not None else 0
        """The seed of the workers, the given one if they stay."""
        self.drew = seed is None
        if seed is None:
            self.batches: Iterator[Any] = iter(self.sampler)
            drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            self.seed = int(drawn.item())
        if seed is not None or loader.num_workers:
            self.batches = iter(self.sampler)

    def load(self, saved: Mapping[str, Any]) -> None:
        """Set generators and sampler to their states at the start of the epoch that a state is in, or else to those
        when it was saved."""
        if saved["lost"]:
            raise ResumeError(
                f"the sampler {type(self.sampler).__name__} had changed {', '.join(saved['lost'])}, which the state "
                "does not hold, so later epochs would be others: give the sampler state_dict and load_state_dict"
            )
        if saved["sampler"] is not None:
            self.sampler.load_state_dict(from_json_value(saved["sampler"]))
        self.attributes.take_seeds(saved.get("seeds", {}), saved.get("rank"))
        self.attributes.set(saved["attributes"])
        place = 0 if is_within(saved) else -1
        restore(self.generators, {name: both[place] for name, both in saved["generators"].items()})

    def __next__(self) -> Any:
        try:
            index = next(self.batches)
        except StopIteration:
            self.exhausted = True
            raise
        self.taken += 1
        self.digest = crc32(as_bytes(index), self.digest)
        return index

    def take_again(self, saved: Mapping[str, Any], keep: set[int]) -> dict[int, Any]:
        """Take the batches that were taken when a state was saved; return those with the numbers to keep."""
        kept: dict[int, Any] = {}
        for number in range(saved["taken"]):
            index = next(self, None)
            if number in keep:
                kept[number] = index
        if saved["exhausted"]:
            next(self, None)
        if self.digest != saved["digest"] or self.taken != saved["taken"] or self.exhausted != saved["exhausted"]:
            raise ResumeError(
                f"the sampler {type(self.sampler).__name__} does not give again the batches that it had given when the "
                "state was saved: the dataset or an argument has changed, set_epoch was given another number, or it "
                "draws from something that the state does not hold; give it a generator= of its own, or state_dict and "
                "load_state_dict"
            )
        restore(self.generators, {name: both[-1] for name, both in saved["generators"].items()})
        return kept

    def state(self, ended: bool) -> dict[str, Any]:
        """Return what `take_again` needs, or what the next epoch needs if this one has ended."""
        now = snapshot(self.generators)
        both = {
            name: [now[name]] if ended or now[name] == self.start[name] else [self.start[name], now[name]]
            for name in now
        }
        return {
            "generators": both,
            **(sampler_state(self.sampler, self.attributes) if ended else self.sampler_start),
            "seed": self.seed,
            "drew": self.drew,
            "taken": self.taken,
            "digest": self.digest,
            "exhausted": self.exhausted,
        }


def is_within(saved: Mapping[str, Any]) -> bool:
    """Return whether a state is within an epoch."""
    return saved["begun"] and not saved["ended"]


def sampler_state(sampler: Any, attributes: SamplerAttributes) -> dict[str, Any]:
    """Return the state of a sampler, or the attributes that have changed of one that has none, as JSON values."""
    if is_stateful(sampler):
        return {"sampler": to_json_value(sampler.state_dict()), "attributes": {}, "lost": []}
    changed, lost = attributes.changed()
    seeds = {"seeds": attributes.seeds, "rank": rank_of_process()} if attributes.seeds else {}
    return {"sampler": None, "attributes": changed, "lost": lost, **seeds}


def unread(loader: Any) -> dict[str, Any]:
    """Return the states from which the first epoch begins."""
    sampler = loader.index_sampler
    states = snapshot(generators_of(sampler, loader.generator))
    both = {name: [state] for name, state in states.items()}
    return {"generators": both, **sampler_state(sampler, loader.sampler_attributes)}


def as_bytes(index: Any) -> bytes:
    """Return indices as bytes, the same for the same ones."""
    plain = index.tolist() if hasattr(index, "tolist") else index  # their repr leaves out the middle of long ones
    try:
        return marshal.dumps(plain, 2)
    except ValueError:  # of tensors, say
        return repr(plain).encode()
