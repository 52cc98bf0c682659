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
from asyncdata.torch.generators import generators_of, made_from, restore, snapshot
from asyncdata.torch.internals import BaseSampler, torch
from asyncdata.torch.sampler_attributes import SamplerAttributes, checksum, rank_of_process, samplers
from asyncdata.torch.worker_run import is_stateful

__all__ = ("BatchSampler", "IndexBatches", "attributes_of", "is_within", "unread")


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
        self.owner_path, self.owner = stateful_part(self.sampler)
        self.after_first: Any = None
        """The sampler's own state when one batch had been taken."""
        self.given_generator = loader.generator
        self.generators = generators_of(self.sampler, self.given_generator)
        self.attributes: SamplerAttributes = loader.sampler_attributes
        self.taken: int = 0
        self.digest: int = 0
        self.exhausted: bool = False
        self.sizes = sizes_of(loader)
        if saved is not None:
            self.load(saved)
        self.start = snapshot(self.generators)
        self.sampler_start = sampler_state(self.sampler, self.attributes)
        if saved is not None:  # which a sampler that goes on from a position may not tell before it goes on
            self.sampler_start["sampler"] = saved["sampler"]
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

    def load(self, saved: Mapping[str, Any]) -> None:
        """Set generators and sampler to their states at the start of the epoch that a state is in, or else to those
        when it was saved."""
        if saved["lost"]:
            raise ResumeError(
                f"the sampler {type(self.sampler).__name__} had changed {', '.join(saved['lost'])}, which the state "
                "does not hold, so later epochs would be others: give the sampler state_dict and load_state_dict"
            )
        self.make_generators(saved["generators"])
        if saved["sampler"] is not None and not self.is_new(saved):
            self.load_sampler(saved["sampler"])
        self.attributes.take_seeds(saved.get("seeds", {}), saved.get("rank"))
        self.attributes.set(saved["attributes"])
        self.set_generators(saved["generators"], 0 if is_within(saved) else -1)

    def is_new(self, saved: Mapping[str, Any]) -> bool:
        """Return whether the sampler is as it was before the first epoch: one that were loaded would begin no epoch."""
        behind = saved["begun"] and not saved["taken"] and saved["digest"] is None  # torchdata's, at its place
        first = saved["epoch"] == 0 and not saved["ended"] and not behind
        return first and self.owner is not None and to_json_value(self.owner.state_dict()) == saved["sampler"]

    def load_sampler(self, state: Any) -> None:
        """Give the sampler its state."""
        if self.owner is None:
            raise ResumeError(
                f"the state holds that of a sampler, but the {type(self.sampler).__name__} of this loader has no "
                "state_dict and load_state_dict: give it the same sampler"
            )
        self.owner.load_state_dict(from_json_value(state))

    def make_generators(self, saved: Mapping[str, Any]) -> None:
        """Give samplers the generators of the state that they have not made yet, as they do when they are iterated.

        Torchdata's random sampler always has one.
        """
        owners = dict(samplers(self.sampler))
        for path in saved.keys() - self.generators.keys():
            owner, _, name = path.rpartition(".")
            if owner in owners and getattr(owners[owner], name, None) is None:
                setattr(owners[owner], name, made_from(saved[path][0]))
        self.generators = generators_of(self.sampler, self.given_generator)

    def set_generators(self, saved: Mapping[str, Any], place: int) -> None:
        """Set generators to their states at a place of the state. A sampler with a state of its own, which may make
        them from that, need not have the same ones."""
        own, common = f"{self.owner_path}.", saved.keys() & self.generators.keys()
        states = {name: both[place] for name, both in saved.items() if name in common or not name.startswith(own)}
        found = {name: one for name, one in self.generators.items() if name in common or not name.startswith(own)}
        restore(found, states)

    def __next__(self) -> Any:
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
        if self.taken == 1 and self.owner is not None:
            self.after_first = to_json_value(self.owner.state_dict())
        return index

    def take_again(self, saved: Mapping[str, Any], keep: set[int]) -> dict[int, Any]:
        """Take the batches that were taken when a state was saved; return those with the numbers to keep.

        A sampler with a state of its own may not give them again, but those behind them, as in torchdata.
        """
        kept: dict[int, Any] = {}
        for number in range(saved["taken"]):
            index = next(self, None)
            if number in keep:
                kept[number] = index
        if saved["exhausted"]:
            next(self, None)
        digest: int = self.digest if saved["digest"] is None else saved["digest"]  # as torchdata has none
        before: tuple[int, int, bool] = digest, saved["taken"], saved["exhausted"]
        if before != (self.digest, self.taken, self.exhausted) and "now" in saved:
            self.load_sampler(saved["now"])
            kept = {number: from_json_value(index) for number, index in saved["indices"]}
            self.batches = iter(self.sampler)
            if not saved["exhausted"] or next(self.batches, None) is None:
                self.digest, self.taken, self.exhausted = before
        if before != (self.digest, self.taken, self.exhausted):
            raise ResumeError(
                f"the sampler {type(self.sampler).__name__} does not give again the batches that it had given when the "
                f"state was saved: {self.changes(saved)}"
            )
        self.set_generators(saved["generators"], -1)
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
        now = snapshot(generators_of(self.sampler, self.given_generator) if ended else self.generators)
        both = {
            name: [now[name]] if ended or now[name] == self.start[name] else [self.start[name], now[name]]
            for name in now
        }
        return {
            "generators": both,
            **(sampler_state(self.sampler, self.attributes) if ended else self.sampler_start),
            **({} if ended else self.moved(not_given)),
            "seed": self.seed,
            "drew": self.drew,
            "taken": self.taken,
            "digest": self.digest,
            "exhausted": self.exhausted,
            "sizes": self.sizes,
        }

    def moved(self, not_given: Mapping[int, Any]) -> dict[str, Any]:
        """Return the state that a sampler has now, if it tells the position in the epoch, and the indices not given."""
        now = None if self.owner is None or self.taken < 2 else to_json_value(self.owner.state_dict())
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


def is_within(saved: Mapping[str, Any]) -> bool:
    """Return whether a state is within an epoch."""
    return saved["begun"] and not saved["ended"]


def stateful_part(sampler: Any) -> tuple[str, Any]:
    """Return the path of a sampler, or of the one in it, that has a state of its own, and it; or nothing."""
    return next((one for one in samplers(sampler) if is_stateful(one[1])), ("", None))


def attributes_of(sampler: Any, dataset: Any) -> SamplerAttributes:
    """Return the attributes of a sampler, to be compared later."""
    return SamplerAttributes(sampler, dataset, stateful_part(sampler)[0])


def sampler_state(sampler: Any, attributes: SamplerAttributes) -> dict[str, Any]:
    """Return the state of a sampler, and the attributes that have changed of what has none, as JSON values."""
    _, owner = stateful_part(sampler)
    changed, lost = attributes.changed()
    seeds = {"seeds": attributes.seeds, "rank": rank_of_process()} if attributes.seeds and owner is None else {}
    state = None if owner is None else to_json_value(owner.state_dict())
    return {"sampler": state, "attributes": changed, "lost": lost, **seeds}


def unread(loader: Any) -> dict[str, Any]:
    """Return the states from which the first epoch begins."""
    sampler = loader.index_sampler
    states = snapshot(generators_of(sampler, loader.generator))
    both = {name: [state] for name, state in states.items()}
    return {"generators": both, **sampler_state(sampler, loader.sampler_attributes)}


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
