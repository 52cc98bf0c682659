"""SamplerState: the state of a sampler and of the random number generators, taken and loaded."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from typing import Any, Final

from asyncdata.errors import ResumeError
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.torch.generators import generators_of, made_from, restore
from asyncdata.torch.internals import numpy_global, torch
from asyncdata.torch.sampler_attributes import SamplerAttributes, rank_of_process, samplers
from asyncdata.torch.worker_run import is_stateful

__all__ = ("SamplerState", "attributes_of", "is_within")


class SamplerState:
    """The sampler of a loader, the one in it that has a state of its own, and the generators.

    A state within an epoch is loaded when the loop begins: whatever the program has done since, the epoch goes on. One
    between epochs is loaded at once, so that what the program does then for the next epoch holds, such as `set_epoch`;
    the generators that others draw from, too, are set when the loop begins, unless the program has seeded them since.
    """

    def __init__(self, loader: Any) -> None:
        self.sampler = loader.index_sampler
        self.given_generator = loader.generator
        self.owner_path, self.owner = stateful_part(self.sampler)
        self.attributes: SamplerAttributes = loader.sampler_attributes
        self.generators = self.generators_now()
        self.told: Any = None
        """The sampler's own state when it was loaded between epochs."""
        self.seeded: dict[str, Any] | None = None
        """By what is seen, then, whether generators are seeded."""

    def generators_now(self) -> dict[str, Any]:
        """Return the generators that there are now."""
        return generators_of(self.sampler, self.given_generator)

    def own_state(self) -> Any:
        """Return the sampler's own state, `None` if it has none."""
        return None if self.owner is None else to_json_value(self.owner.state_dict())

    def state(self) -> dict[str, Any]:
        """Return the state of the sampler, and the attributes that have changed of what has none, as JSON values."""
        changed, lost = self.attributes.changed()
        seeds = self.attributes.seeds if self.owner is None else {}
        drawn = {"seeds": seeds, "rank": rank_of_process()} if seeds else {}
        return {"sampler": self.own_state(), "attributes": changed, "lost": lost, **drawn}

    def begin(self, saved: Mapping[str, Any] | None) -> dict[str, Any]:
        """Continue from a state, if there is one, when the loop begins; return the state from which that begins."""
        if saved is None:
            return self.state()
        if saved["lost"]:
            raise ResumeError(
                f"the sampler {type(self.sampler).__name__} had changed {', '.join(saved['lost'])}, which the state "
                "does not hold, so later epochs would be others: give the sampler state_dict and load_state_dict"
            )
        between, seeds = self.seeded is not None, saved.get("seeds", {})
        if not between:
            self.load(saved)
        elif saved["sampler"] is not None:
            self.check_owner()
        self.attributes.take_seeds(seeds, saved.get("rank"))
        self.attributes.set(
            {path: value for path, value in saved["attributes"].items() if not between or path in seeds}
        )
        if between:
            self.generators = self.generators_now()
        self.set_generators(saved["generators"], 0 if is_within(saved) else -1, self.kept())
        # which a sampler that goes on from a position may not tell before it goes on
        told = {} if between and self.own_state() != self.told else {"sampler": saved["sampler"]}
        return {**self.state(), **told}

    def load_between(self, saved: Mapping[str, Any]) -> None:
        """Set the sampler, and the generators in it, to a state between epochs."""
        if saved["sampler"] is None or self.owner is not None:
            self.load(saved)
        seeds = saved.get("seeds", {})
        self.attributes.set({path: value for path, value in saved["attributes"].items() if path not in seeds})
        for name in (saved["generators"].keys() & self.generators.keys()) - SHARED:
            restore({name: self.generators[name]}, {name: saved["generators"][name][-1]})
        self.told, self.seeded = self.own_state(), self.last_seeds()

    def load(self, saved: Mapping[str, Any]) -> None:
        """Set the sampler to its own state."""
        self.make_generators(saved["generators"])
        if saved["sampler"] is not None and not self.is_new(saved):
            self.load_sampler(saved["sampler"])

    def is_new(self, saved: Mapping[str, Any]) -> bool:
        """Return whether the sampler is as it was before the first epoch: one that were loaded would begin no epoch."""
        behind = saved["begun"] and not saved["taken"] and saved["digest"] is None  # torchdata's, at its place
        first = saved["epoch"] == 0 and not saved["ended"] and not behind
        return first and self.owner is not None and self.own_state() == saved["sampler"]

    def load_sampler(self, state: Any) -> None:
        """Give the sampler its own state."""
        self.check_owner()
        self.owner.load_state_dict(from_json_value(state))

    def check_owner(self) -> None:
        """Raise if no sampler takes a state."""
        if self.owner is None:
            raise ResumeError(
                f"the state holds that of a sampler, but the {type(self.sampler).__name__} of this loader has no "
                "state_dict and load_state_dict: give it the same sampler"
            )

    def make_generators(self, saved: Mapping[str, Any]) -> None:
        """Give samplers the generators of the state that they have not made yet, as they do when they are iterated.

        Torchdata's random sampler always has one.
        """
        owners = dict(samplers(self.sampler))
        for path in saved.keys() - self.generators.keys():
            owner, _, name = path.rpartition(".")
            if owner in owners and getattr(owners[owner], name, None) is None:
                setattr(owners[owner], name, made_from(saved[path][0]))
        self.generators = self.generators_now()

    def set_generators(self, saved: Mapping[str, Any], place: int, kept: Collection[str] = ()) -> None:
        """Set generators, but for those `kept`, to their states at a place of the state. A sampler with a state of its
        own, which may make them from that, need not have the same ones."""
        own, common = f"{self.owner_path}.", saved.keys() & self.generators.keys()
        names = common | {name for name in saved.keys() ^ self.generators.keys() if not name.startswith(own)}
        found = {name: one for name, one in self.generators.items() if name in names and name not in kept}
        restore(found, {name: both[place] for name, both in saved.items() if name in names and name not in kept})

    def kept(self) -> set[str]:
        """Return the generators that are as the program wants them, as the state was loaded between epochs."""
        if self.seeded is None:
            return set()
        seeded = {name for name, seed in self.last_seeds().items() if seed is not None and seed != self.seeded[name]}
        return seeded | (self.generators.keys() - SHARED)

    def last_seeds(self) -> dict[str, Any]:
        """Return something for each generator that others draw from, too, which is another one when it was seeded.

        It is the last seed; where that is not known, the state, if nothing was drawn since, else `None`.
        """
        given = self.given_generator
        python, numpy = random.getstate(), numpy_global().get_state(legacy=False)
        return {
            "torch": torch.initial_seed(),
            "generator": given.initial_seed() if isinstance(given, torch.Generator) else None,
            "python": python if python[1][-1] == WORDS else None,
            "numpy": to_json_value(numpy) if numpy["state"].get("pos") == WORDS else None,
        }


SHARED: Final = {"torch", "generator", "python", "numpy"}
"""The generators that others than the sampler draw from."""
WORDS: Final = 624
"""The place in the state of a Mersenne Twister that was just seeded: nothing was drawn."""


def attributes_of(sampler: Any, dataset: Any) -> SamplerAttributes:
    """Return the attributes of a sampler, to be compared later."""
    return SamplerAttributes(sampler, dataset, stateful_part(sampler)[0])


def stateful_part(sampler: Any) -> tuple[str, Any]:
    """Return the path of a sampler, or of the one in it, that has a state of its own, and it; or nothing."""
    return next((one for one in samplers(sampler) if is_stateful(one[1])), ("", None))


def is_within(saved: Mapping[str, Any]) -> bool:
    """Return whether a state is within an epoch."""
    return saved["begun"] and not saved["ended"]
