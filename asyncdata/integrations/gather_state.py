"""The states of all processes gathered into one, for trainers that save the state of one process only."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any, Final

from asyncdata.errors import ResumeError
from asyncdata.runtime.json_text import parse_json
from asyncdata.system.rank import of_torch

__all__ = ("gathered_state", "own_state")

SAVE_FIRST: Final = ("accelerate", "lightning", "pytorch_lightning")
"""Packages that request a state from all processes at once, save that of the first, and load it in all of them."""

DISTRIBUTED: Final = "torch.distributed.checkpoint"
"""The package of PyTorch that requests a state from all processes, before it saves and before it loads."""


def gathered_state(state: dict[str, Any], frame: FrameType | None) -> dict[str, Any]:
    """Return the states of all processes, if each reads a share and the caller in this frame saves only one state.

    PyTorch's distributed checkpoints split a state by its names, and store one process's part of each name. Before they
    load a state they request one, which must have the same names. So the state for them is a single text.
    """
    if module_of(frame).startswith(DISTRIBUTED):
        return {"json": json.dumps(states_of_all(state))}
    return states_of_all(state) if module_of(frame).partition(".")[0] in SAVE_FIRST else state


def states_of_all(state: dict[str, Any]) -> dict[str, Any]:
    """Return the states of all processes of torch.distributed, if each reads a share."""
    ranks = of_torch()
    if not state["shares"] or ranks is None or ranks.world == 1:
        return state
    states: list[Any] = [None] * ranks.world
    sys.modules["torch.distributed"].all_gather_object(states, state)
    return {"ranks": states}


def own_state(state: Any) -> Any:
    """Return a state, or the states of all processes, from the result or the argument of `gathered_state`."""
    if state is None:
        raise ResumeError("load_state_dict needs what state_dict returned, got None")
    found: Any = state
    return parse_json(found["json"]) if isinstance(state, dict) and "json" in state else found


def module_of(frame: FrameType | None) -> str:
    return "" if frame is None else frame.f_globals.get("__name__", "")
