"""Orbax: the positions of all processes in the data, stored in a checkpoint of JAX beside the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from types import new_class
from typing import Any, Protocol, cast

from asyncdata.checkpoint import SHARE_FILES, share_file
from asyncdata.errors import ResumeError
from asyncdata.runtime.json_text import parse_json
from asyncdata.system.optional_packages import require

__all__ = ("restore_args", "save_args")

INSTALL = "orbax-checkpoint, or 'asyncdata[integrations]'"


class Resumable(Protocol):
    """A loader, or an iterator of a dataset."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the data."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume at a position."""
        ...


def save_args(loader: Resumable) -> Any:
    """Return the `args=` for `CheckpointManager.save` and `Checkpointer.save`, mostly as a part of a `Composite`.

    Each process writes the current position of its loader or iterator into a file of its own.

    >>> import orbax.checkpoint as ocp, tempfile                                          # doctest: +SKIP
    >>> manager = ocp.CheckpointManager(tempfile.mkdtemp())                               # doctest: +SKIP
    >>> model = ocp.args.StandardSave({"weights": weights})                               # doctest: +SKIP
    >>> manager.save(step, args=ocp.args.Composite(model=model, data=save_args(loader)))  # doctest: +SKIP
    """
    return kinds()[0](loader.state_dict())


def restore_args(loader: Resumable) -> Any:
    """Return the `args=` for `CheckpointManager.restore` and `Checkpointer.restore`, for a checkpoint of `save_args`.

    The loader or iterator resumes at the position of the same share. If another number of processes saved the
    checkpoint, the remaining elements are divided between all, as by `asyncdata.checkpoint.merge_states`.
    """
    return kinds()[1](loader)


class StateHandler:
    """The methods of the handler; the other base is Orbax's class."""

    def save(self, directory: Any, args: Any) -> None:
        """Write one process's state."""
        (directory / share_file(args.state)).write_text(json.dumps(args.state))

    def restore(self, directory: Any, args: Any) -> Any:
        """Load the states that all processes wrote into the loader."""
        states = [parse_json(file.read_text()) for file in sorted(directory.glob(SHARE_FILES))]
        if not states:
            raise ResumeError(f"{directory}: there is no state of asyncdata: was it saved with save_args(loader)?")
        args.loader.load_state_dict({"ranks": states})
        return args.loader


class SaveArgs:
    """The state to save."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state


class RestoreArgs:
    """The loader to restore."""

    def __init__(self, loader: Resumable) -> None:
        self.loader = loader


@cache
def kinds() -> tuple[type[Any], type[Any]]:
    """Return the classes of arguments, registered with Orbax together with their handler."""
    orbax = require("orbax.checkpoint", "asyncdata.integrations.orbax", INSTALL)
    handler = derive(StateHandler, orbax.CheckpointHandler)
    saving, restoring = (derive(kind, orbax.args.CheckpointArgs) for kind in (SaveArgs, RestoreArgs))
    register = orbax.args.register_with_handler
    return register(handler, for_save=True)(saving), register(handler, for_restore=True)(restoring)


def derive(methods: type[Any], base: type[Any]) -> type[Any]:
    """Return a class of some methods and a base of Orbax's."""
    name = f"Orbax{methods.__name__}"
    return cast("type[Any]", new_class(name, (methods, base), exec_body=lambda own: own.update(__module__=__name__)))
