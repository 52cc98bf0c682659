"""Snapshots: the states of a stateful source, and elements that can be read again from one of them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple, cast, final

from asyncdata.errors import ResumeError

__all__ = ("RestorableItem", "SourceSnapshot", "has_offset")


class SourceSnapshot(NamedTuple):
    """A source's state just before its element `number`, as JSON; `None` at its beginning, or the error of saving it.

    It is text, because the source may later change the objects in its state. `failures` counts the calls of the source
    that had failed by then: between two states with the same number of them, elements have the same numbers again.
    """

    number: int
    state: str | ResumeError | None
    failures: int = 0

    @classmethod
    def of(cls, position: dict[str, Any]) -> SourceSnapshot:
        failures = position.get("failures", 0)
        return cls(position["number"] - position["skip"], json.dumps(position["state"]), failures)

    def position(self, number: int, failed: bool = False) -> Any:
        """Return the position of element `number`, which may have `failed`: `skip` elements after this state."""
        if self.state is None:
            return number
        if isinstance(self.state, ResumeError):
            raise ResumeError(*self.state.args) from self.state.__cause__
        place = {"state": json.loads(self.state), "skip": number - self.number, "number": number}
        more = {"failures": self.failures, "failed": int(failed)}
        return place | {name: value for name, value in more.items() if value}


@final
class RestorableItem(int):
    """The ordinal of an element of a stateful source, with a state from which it can be read again."""

    snapshot: SourceSnapshot
    failed: bool
    """Whether the call of the source for it had failed."""
    message: Any = None
    """What its source was sent, where that is kept."""

    @classmethod
    def at(cls, number: int, snapshot: SourceSnapshot, failed: bool = False) -> RestorableItem:
        """Return element `number`, to be read from `snapshot` on."""
        placed = cls(number)
        placed.snapshot, placed.failed = snapshot, failed
        return placed

    @property
    def channel_place(self) -> tuple[str, int, int] | None:
        """The identifier of its channel, the offset of its request there, and its number in the request; `None` if it
        is not of a channel."""
        if not isinstance(self.snapshot.state, str):
            return None
        state: dict[str, Any] | Any = json.loads(self.snapshot.state)
        if not isinstance(state, dict) or not {"channel", "offset"} <= cast("dict[str, Any]", state).keys():
            return None
        saved = cast("dict[str, Any]", state)
        return saved["channel"], saved["offset"], self - self.snapshot.number


def has_offset(position: Any) -> bool:
    """Return whether a source resumes at a position of its own, from where it need not give what it gave before."""
    waiting: list[Any] = [position]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            named = cast("dict[str, Any]", value)
            if "state" in named:
                return True
            waiting += named.values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
    return False
