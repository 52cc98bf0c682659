"""Epochs: which epoch of a dataset is the next, counted together with the datasets that it was made from."""

from __future__ import annotations

from typing import Self

from asyncdata.checkpoint import Place

__all__ = ("Epochs",)


class Epochs:
    """The number of the next epoch of a dataset.

    A dataset begins at the next epoch of those that it was made from, and each of its epochs counts for them too. So
    what is made from one dataset again and again, in a loop, has another epoch each time. Two datasets that are made
    from one do not see each other's epochs.
    """

    __slots__ = ("next", "parents")

    def __init__(self, first: int = 0, parents: tuple[Epochs, ...] = ()) -> None:
        self.next = first
        self.parents = parents

    @classmethod
    def after(cls, *parents: Epochs) -> Self:
        """Return the epochs of a dataset that is made from others."""
        return cls(max([parent.next for parent in parents], default=0), parents)

    def begin(self) -> int:
        """Return the number of an epoch that begins now."""
        epoch = self.next
        for one in self.line():
            one.next = max(one.next, epoch + 1)
        return epoch

    def go_on(self, place: Place) -> Place:
        """Return the place that a state tells; the next epoch is the one after its, also where this was made from."""
        for one in self.line():
            one.next = place.epoch + 1
        return place

    def line(self) -> list[Epochs]:
        """Return these epochs and those of all datasets that this one was made from, each once."""
        found: dict[int, Epochs] = {id(self): self}
        left: list[Epochs] = [self]
        while left:
            for parent in left.pop().parents:
                if id(parent) not in found:
                    found[id(parent)] = parent
                    left.append(parent)
        return [*found.values()]
