"""Epochs: which epoch of a dataset is next, counted together with those of the datasets that it was made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from asyncdata.graph.node import Node
from asyncdata.identity.hashed_attributes import is_users
from asyncdata.states import ResumePoint

__all__ = ("Epochs",)


class Epochs:
    """The number of the next epoch of a dataset.

    If a dataset was made from others whose elements may differ from epoch to epoch, it starts at their next epoch, and
    each of its epochs counts for them too. So a dataset that is made from a shuffled one in each pass of a loop has
    another epoch each time, and `shuffle(seed=1)` of numbers has the same order whenever it is made. Two datasets that
    are made from one do not see each other's epochs.
    """

    __slots__ = ("first", "next", "parents", "run")

    def __init__(self, first: int = 0, parents: tuple[Epochs, ...] = ()) -> None:
        self.first = first
        self.next = first
        self.parents = parents
        self.run: Sequence[str] = ()
        """The ids of the recorded run that these epochs go on with."""

    @classmethod
    def after(cls, parents: Mapping[Epochs, Node]) -> Self:
        """Return the epochs of a dataset that is made from others, whose plans these are."""
        begun = [epochs.next for epochs, plan in parents.items() if epochs.next and varies(plan)]
        return cls(max(begun, default=0), tuple(parents))

    def set(self, epoch: int) -> None:
        """Have `epoch` be the next one, also where this was made from."""
        for one in self.ancestors():
            one.next = epoch

    def begin(self, epoch: int | None = None) -> int:
        """Return the number of an epoch that begins now: the next one, unless it is given."""
        if epoch is None:
            epoch = self.next
        else:
            self.set(epoch)
        for one in self.ancestors():
            one.next = max(one.next, epoch + 1)
        return epoch

    def resume(self, place: ResumePoint) -> ResumePoint:
        """Return the place in a state; the next epoch is the one after its, also where this was made from."""
        self.set(place.epoch + 1)
        self.run = place.run
        return place

    def ancestors(self) -> list[Epochs]:
        """Return these epochs and those of all datasets that this one was made from, each once."""
        found: dict[int, Epochs] = {id(self): self}
        left: list[Epochs] = [self]
        while left:
            for parent in left.pop().parents:
                if id(parent) not in found:
                    found[id(parent)] = parent
                    left.append(parent)
        return [*found.values()]


def varies(plan: Node) -> bool:
    """Return whether elements may differ from epoch to epoch: a step draws, or a user's function makes datasets."""
    found, left = {id(plan)}, [plan]
    while left:
        node = left.pop()
        makes = node.dataset_function
        if node.chance is not None or (makes is not None and is_users(makes.fn)):
            return True
        left.extend(one for one in node.inputs if id(one) not in found)
        found.update(map(id, node.inputs))
    return False
