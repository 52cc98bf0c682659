"""The states of all processes gathered into one, for trainers that save the state of one process only."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final, cast

from asyncdata.checkpoint import merge_states
from asyncdata.errors import ResumeError
from asyncdata.runtime.rank import of_torch

__all__ = ("gathered_state", "own_state")

KEEP_ONE: Final = ("accelerate", "lightning", "pytorch_lightning")
"""Packages that ask all processes for a state at once, save that of the first, and load it in all of them."""


def gathered_state(state: dict[str, Any], frame: FrameType | None) -> dict[str, Any]:
    """Return the states of all processes if each reads a share, and a trainer asks from this frame that keeps one."""
    ranks = of_torch()
    if not state["shares"] or ranks is None or ranks.world == 1 or package_of(frame) not in KEEP_ONE:
        return state
    states: list[Any] = [None] * ranks.world
    sys.modules["torch.distributed"].all_gather_object(states, state)
    return {"ranks": states}


def own_state(state: Any) -> Any:
    """Return this process's state of those of all; of another number of processes, all of them merged."""
    if state is None:
        raise ResumeError("load_state_dict needs what state_dict returned, got None")
    if not isinstance(state, Mapping) or "ranks" not in state:
        return cast("Any", state)
    states, ranks = cast("list[Any]", state["ranks"]), of_torch()
    if ranks is not None and ranks.world == len(states):
        return states[ranks.rank]
    return merge_states(states)


def package_of(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_globals.get("__name__", "").partition(".")[0]
