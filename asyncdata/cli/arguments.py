"""Arguments that several commands have: paths of this machine, and options of object stores."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Sequence
from pathlib import Path

from asyncdata.errors import PlanError
from asyncdata.storage import local_path

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
        help="how to reach the object store, by obstore's names, such as endpoint=http://... or skip_signature=true; "
        "again for each further option; keys are safer in the environment",
    )


def name_and_value(text: str) -> tuple[str, str]:
    """Return the two parts of an option, as the type of an argument of a command line."""
    name, sign, value = text.partition("=")
    if not sign or not name.strip():
        raise ArgumentTypeError("it must be NAME=VALUE, as endpoint=http://127.0.0.1:9000")
    return name.strip(), value


def storage_options(pairs: Sequence[tuple[str, str]]) -> dict[str, str] | None:
    """Return the options that were given, `None` for none."""
    return dict(pairs) or None
