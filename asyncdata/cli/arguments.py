"""Arguments that several commands have: paths of this machine, and options of object stores."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from asyncdata.errors import PlanError
from asyncdata.storage import local_path
from asyncdata.storage.store_options import CLIENT

__all__ = ("add_storage_option", "local", "storage_options")


def local(text: str) -> Path:
    """Return a path of this machine, as the type of an argument of a command line."""
    try:
        return Path(local_path(text, "it"))
    except PlanError as error:
        raise ArgumentTypeError(str(error)) from None


def add_storage_option(parser: ArgumentParser) -> None:
    """Add `--storage-option` to a command that reads or writes at URLs."""
    parser.add_argument(
        "--storage-option",
        dest="storage",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=name_and_value,
        help="how to reach the object store, by obstore's names, such as endpoint=http://..., skip_signature=true or "
        "timeout=5s; again for each further option; keys are safer in the environment",
    )


def name_and_value(text: str) -> tuple[str, str]:
    """Return the two parts of an option, as the type of an argument of a command line."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ArgumentTypeError("it must be NAME=VALUE, as endpoint=http://127.0.0.1:9000")
    return name.strip(), value


def storage_options(pairs: Sequence[tuple[str, str]]) -> dict[str, Any] | None:
    """Return the options that were given, `None` for none; those of the connection are in their place."""
    found: dict[str, Any] = {name: value for name, value in pairs if name not in CLIENT}
    client = {name: value for name, value in pairs if name in CLIENT}
    return found | ({"client_options": client} if client else {}) or None
