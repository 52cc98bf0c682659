"""The states of all processes gathered into one, for trainers that save the state of one process only."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any, Final

from asyncdata.errors import ResumeError
from asyncdata.runtime.rank import of_torch

__all__ = ("gathered_state", "own_state")

KEEP_ONE: Final = ("accelerate", "lightning", "pytorch_lightning")
"""Packages that ask all processes for a state at once, save that of the first, and load it in all of them."""

DISTRIBUTED: Final = "torch.distributed.checkpoint"
"""The package of PyTorch that asks all processes for a state, before it saves and before it loads."""


def gathered_state(state: dict[str, Any], frame: FrameType | None) -> dict[str, Any]:
    """Return the states of all processes if each reads a share, and a trainer asks from this frame that keeps one.

    PyTorch's distributed checkpoints take a state apart, keep one process's part of each name, and ask for a state
    before they load one, which must have the same names: so theirs is a single text.
    """
    if module_of(frame).startswith(DISTRIBUTED):
        return {"json": json.dumps(of_all(state))}
    return of_all(state) if module_of(frame).partition(".")[0] in KEEP_ONE else state


def of_all(state: dict[str, Any]) -> dict[str, Any]:
    """Return the states of all processes that torch.distributed knows, if each reads a share."""
    ranks = of_torch()
    if not state["shares"] or ranks is None or ranks.world == 1:
        return state
    states: list[Any] = [None] * ranks.world
    sys.modules["torch.distributed"].all_gather_object(states, state)
    return {"ranks": states}


def own_state(state: Any) -> Any:
    """Return what `gathered_state` gave, or was given, as a state or the states of all processes."""
    if state is None:
        raise ResumeError("load_state_dict needs what state_dict returned, got None")
    found: Any = state
    return json.loads(found["json"]) if isinstance(state, dict) and "json" in state else found


def module_of(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_globals.get("__name__", "")
