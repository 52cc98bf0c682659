"""Arguments of commands that are paths."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path

from asyncdata.errors import PlanError
from asyncdata.storage import local_path

__all__ = ("local",)


def local(text: str) -> Path:
    """Return a path of this machine, as the type of an argument of a command line."""
    try:
        return Path(local_path(text, "it"))
    except PlanError as error:
        raise ArgumentTypeError(str(error)) from None
