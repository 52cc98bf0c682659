"""IndexBatches: the indices of an epoch's batches, drawn as PyTorch draws them, and drawn again to resume."""

from __future__ import annotations

import marshal
from collections.abc import Iterator, Mapping
from contextlib import suppress
from inspect import currentframe
from types import FrameType
from typing import Any
from zlib import crc32

from asyncdata.errors import ResumeError
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.torch.generators import Snapshot, snapshot
from asyncdata.torch.internals import BaseSampler, torch
from asyncdata.torch.sampler_attributes import checksum
from asyncdata.torch.sampler_state import SamplerState

__all__ = ("BatchSampler", "IndexBatches", "unread")


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
        self.source: SamplerState = loader.loaded_sampler or SamplerState(loader)
        self.after_first: Any = None
        """The sampler's own state when one batch had been taken."""
        self.taken: int = 0
        self.digest: int = 0
        self.exhausted: bool = False
        self.sizes = sizes_of(loader)
        self.sampler_start = self.source.begin(saved)
        self.start = snapshot(self.source.generators)
        known = saved is not None and (saved["ended"] or saved.get("digest", 0) is not None)
        self.may_be_behind = known and self.sampler_start["sampler"] is not None
        """Whether the sampler may have the position behind its last epoch, and give nothing once."""
        self.seed = seed if seed is not None else 0
        """The seed of the workers, the given one if they stay."""
        self.drew = seed is None
        if seed is None:
            self.batches: Iterator[Any] = iter(self.sampler)
            drawn = torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            self.seed = int(drawn.item())
        if seed is not None or loader.num_workers:
            self.batches = iter(self.sampler)
        self.begun = snapshot(self.source.generators)
        self.first: Snapshot | None = None
        """The generators before the first batch, if others have drawn from them since the epoch was begun, such as
        another loader that is read by turns: a random sampler draws its seed then."""

    def __next__(self) -> Any:
        if not self.taken and not self.exhausted:
            before = snapshot(self.source.generators)
            self.first = None if before == self.begun else before
        try:
            index = next(self.batches)
        except StopIteration:
            if self.may_be_behind and not self.taken:
                self.may_be_behind, self.batches = False, iter(self.sampler)
                return next(self)
            self.exhausted = True
            raise
        self.taken += 1
        self.digest = crc32(as_bytes(index), self.digest)
        if self.taken == 1:
            self.after_first = self.source.own_state()
        return index

    def take_again(self, saved: Mapping[str, Any], keep: set[int]) -> dict[int, Any]:
        """Take the batches that were taken when a state was saved; return those with the numbers to keep.

        A sampler with a state of its own may not give them again, but those behind them, as in torchdata.
        """
        kept: dict[int, Any] = {}
        if "first" in saved:
            self.source.set_generators({name: [state] for name, state in saved["first"].items()}, 0)
        for number in range(saved["taken"]):
            index = next(self, None)
            if number in keep:
                kept[number] = index
        if saved["exhausted"]:
            next(self, None)
        digest: int = self.digest if saved["digest"] is None else saved["digest"]  # as torchdata has none
        before: tuple[int, int, bool] = digest, saved["taken"], saved["exhausted"]
        if before != (self.digest, self.taken, self.exhausted) and "now" in saved:
            self.source.load_sampler(saved["now"])
            kept = {number: from_json_value(index) for number, index in saved["indices"]}
            self.batches = iter(self.sampler)
            if not saved["exhausted"] or next(self.batches, None) is None:
                self.digest, self.taken, self.exhausted = before
        if before != (self.digest, self.taken, self.exhausted):
            raise ResumeError(
                f"the sampler {type(self.sampler).__name__} does not give again the batches that it had given when the "
                f"state was saved: {self.changes(saved)}"
            )
        self.source.set_generators(saved["generators"], -1)
        return kept

    def changes(self, saved: Mapping[str, Any]) -> str:
        """Return why the sampler gives other batches than when a state was saved."""
        was = saved.get("sizes", {})
        found = [
            f"{name} was {was[name]}, and is {now} now" for name, now in self.sizes.items() if was.get(name, now) != now
        ]
        return "; ".join(found) or (
            "the dataset or an argument has changed, set_epoch was given another number, or it draws from something "
            "that the state does not hold; give it a generator= of its own, or state_dict and load_state_dict"
        )

    def state(self, ended: bool, not_given: Mapping[int, Any]) -> dict[str, Any]:
        """Return what `take_again` needs, or what the next epoch needs if this one has ended."""
        # by then a sampler may have made its generators; before, it makes them again
        now = snapshot(self.source.generators_now() if ended else self.source.generators)
        both = {
            name: [now[name]] if ended or now[name] == self.start[name] else [self.start[name], now[name]]
            for name in now
        }
        return {
            "generators": both,
            **(self.source.state() if ended else self.sampler_start),
            **({} if ended else self.moved(not_given)),
            **({} if ended or self.first is None else {"first": self.first}),
            "seed": self.seed,
            "drew": self.drew,
            "taken": self.taken,
            "digest": self.digest,
            "exhausted": self.exhausted,
            "sizes": self.sizes,
        }

    def moved(self, not_given: Mapping[int, Any]) -> dict[str, Any]:
        """Return the state that a sampler has now, if it tells the position in the epoch, and the indices not given."""
        now = None if self.taken < 2 else self.source.own_state()
        if now is None or now == self.after_first:
            return {}
        with suppress(TypeError):  # of objects: such a sampler must give them again
            indices = [[number, to_json_value(plain(index))] for number, index in not_given.items()]
            return {"now": now, "indices": indices}
        return {}


def sizes_of(loader: Any) -> dict[str, Any]:
    """Return the numbers by which a loader makes batches, so that an error can name one that has changed."""
    sizes: dict[str, Any] = {"batch_size": loader.batch_size, "drop_last": bool(loader.drop_last)}
    for name, one in (("len(dataset)", loader.dataset), ("len(sampler)", loader.sampler)):
        with suppress(Exception):  # it has no length
            sizes[name] = len(one)
    return sizes


def unread(loader: Any) -> dict[str, Any]:
    """Return the states from which the first epoch begins."""
    source = SamplerState(loader)
    both = {name: [state] for name, state in snapshot(source.generators).items()}
    return {"generators": both, **source.state()}


def plain(index: Any) -> Any:
    """Return indices without arrays and tensors."""
    return index.tolist() if hasattr(index, "tolist") else index


def as_bytes(index: Any) -> bytes:
    """Return indices as bytes, the same for the same ones."""
    numbers = plain(index)  # the repr of arrays leaves out the middle of long ones
    try:
        return marshal.dumps(numbers, 2)
    except ValueError:  # of tensors, or objects, whose text may hold an address
        found = checksum(numbers)
        return repr(numbers if found is None else found).encode()
