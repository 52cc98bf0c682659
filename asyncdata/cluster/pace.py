"""Pace: how long calls of one kind take, and from when on one of them is late."""

from __future__ import annotations

from math import inf
from typing import Final

__all__ = ("Pace",)

LATE: Final = 5.0
"""Seconds before which no call is late."""

MANY: Final = 10
"""A call is late that takes so many times as long as the longest of the last ones."""

FADING: Final = 0.999
"""How much of the longest call's time is left after another one: a tenth after 2,300."""


class Pace:
    """The longest time that a call has taken lately, in seconds; unknown before the first one has."""

    def __init__(self) -> None:
        self.longest = 0.0

    def took(self, seconds: float) -> None:
        """Take note that a call has taken so long."""
        self.longest = max(seconds, self.longest * FADING)

    @property
    def limit(self) -> float:
        """Seconds after which a call is late."""
        return max(LATE, MANY * self.longest) if self.longest else inf
