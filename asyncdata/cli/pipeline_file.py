"""The pipeline of a command line: `FILE.py:NAME`, a dataset or a function that returns one."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, get_origin

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError

__all__ = ("add_arguments", "check_file", "pipeline_of", "positive", "value_of")

V = TypeVar("V")


def add_arguments(parser: ArgumentParser, seconds: float = 10.0) -> None:
    """Add the arguments for the pipeline, and for how long it is read."""
    default = f"default {seconds:g}" if seconds < inf else "default: until the data ends"
    parser.add_argument(
        "pipeline",
        metavar="FILE.py:NAME",
        help="a dataset in that file, or a function without arguments that returns one",
    )
    parser.add_argument("--seconds", type=positive, default=seconds, metavar="S", help=f"seconds to read ({default})")
    parser.add_argument(
        "--step", type=positive, default=0.0, metavar="S", help="seconds that a training step takes, slept (default 0)"
    )


def positive(text: str) -> float:
    """Return `text` as a number of seconds."""
    try:
        if 0 < (seconds := float(text)) < 1e9:
            return seconds
    except ValueError:
        pass
    raise ArgumentTypeError(f"must be a number of seconds above 0, got {text!r:.40}")


def pipeline_of(spec: str) -> Dataset[Any]:
    """Run the file, which the user has named, and return its dataset; `PlanError` if there is none."""
    return value_of(spec, Dataset[Any], "dataset")


def value_of(spec: str, kind: type[V], noun: str) -> V:
    """Run the file, which the user has named, and return what it names, or what this returns; `PlanError` if that is of
    another kind."""
    kind = get_origin(kind) or kind
    path, _, name = spec.partition(":")
    example = "ds" if noun == "dataset" else "loader"
    check_file(spec, noun)
    module = run(Path(path))
    if not name:
        raise PlanError(f"give a {noun} of {path}, as in {path}:{example}; {values_in(module, kind, noun)}")
    if not hasattr(module, name):
        raise PlanError(f"{path} has no {name!r}; {values_in(module, kind, noun)}")
    found: Any = getattr(module, name)
    found = called(spec, found) if callable(found) else found
    if not isinstance(found, kind):
        got = f"{found!r:.60} of type {type(found).__name__}"
        raise PlanError(f"{spec} must be a {kind.__name__}, got {got}; {values_in(module, kind, noun)}")
    return found


def check_file(spec: str, noun: str) -> None:
    """Raise `PlanError` unless there is the file that a user has named."""
    path, example = spec.partition(":")[0], "ds" if noun == "dataset" else "loader"
    if not Path(path).is_file():
        raise PlanError(f"there is no file {path!r}: give a file and the {noun} in it, as in pipeline.py:{example}")


def called(spec: str, function: Callable[..., Any]) -> Any:
    """Return what a function returns; `PlanError` if it needs arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError as error:
        raise PlanError(f"{spec} must be a function without arguments: {error}") from None
    return function()


def run(path: Path) -> ModuleType:
    """Import a file like a module beside a script, so that worker processes find its functions by name too."""
    sys.path.insert(0, str(path.resolve().parent))
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None:
        raise PlanError(f"{path} is not a Python file")
    module = sys.modules[path.stem] = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def values_in(module: ModuleType, kind: type[Any], noun: str) -> str:
    """Return the names of a module's values of a kind, as a sentence."""
    names = [name for name, value in vars(module).items() if isinstance(value, kind)]
    return f"its {noun}s are {', '.join(names)}" if names else f"there is no {noun} in it"
