"""The types of elements: pyright, mypy and the elements themselves agree."""

from __future__ import annotations

import re
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncdata import Dataset
from tests.typed import element_types

PROGRAM = Path(element_types.__file__)
ROOT = PROGRAM.parents[2]

PYRIGHT = """{
    "extraPaths": ["%s"],
    "pythonVersion": "3.11",
    "reportMissingImports": false,
    "reportUnnecessaryTypeIgnoreComment": true
}"""

MYPY = """[mypy]
follow_imports = silent
mypy_path = %s
python_version = 3.11
warn_unused_ignores = true
[mypy-torch.*]
follow_imports = skip
ignore_missing_imports = true
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["element_types.py", pytest.param("loader_types.py", marks=pytest.mark.torch)])
@pytest.mark.parametrize(("checker", "config"), [("pyright", PYRIGHT), ("mypy", MYPY)])
def test_a_type_checker_finds_these_types_and_mistakes(checker: str, config: str, name: str, tmp_path: Path) -> None:
    program = tmp_path / name
    program.write_text(PROGRAM.with_name(name).read_text())
    file = tmp_path / {"pyright": "pyrightconfig.json", "mypy": "mypy.ini"}[checker]
    file.write_text(config % ROOT)
    arguments = {
        "pyright": ["--pythonpath", sys.executable, "--project", str(tmp_path)],
        "mypy": ["--config-file", str(file), "--cache-dir", str(tmp_path / "cache"), str(program)],
    }
    command = [sys.executable, "-m", checker, *arguments[checker]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_elements_are_of_the_types_that_checkers_find(monkeypatch: pytest.MonkeyPatch) -> None:
    found = list[tuple[Any, Any]]()
    monkeypatch.setattr(typing, "assert_type", lambda dataset, kind: found.append((dataset, kind)))
    exec(
        compile(PROGRAM.read_text(), str(PROGRAM), "exec"),
        {"__name__": element_types.__name__, "__file__": str(PROGRAM)},
    )
    assert len(found) == len(re.findall("^assert_type", PROGRAM.read_text(), re.MULTILINE))
    wrong = [(str(dataset.plan), kind) for dataset, kind in found if not is_of(next(iter(dataset)), kind.__args__[0])]
    assert wrong == []


def is_of(value: Any, kind: Any) -> bool:
    """Return whether a value is of a type as it is written: `dict[str, Any]`, `NDArray[np.int64]`, `Dataset[int]`."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if type(origin).__name__ == "TypeAliasType":  # NDArray from NumPy 2.5 on
        kind = origin.__value__[arguments]
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return any(is_of(value, one) for one in arguments)
    if origin is tuple:
        return type(value) is tuple and len(value) == len(arguments) and all(map(is_of, value, arguments))
    if origin is dict:
        return type(value) is dict and all(is_of(key, arguments[0]) for key in value)
    if origin is np.ndarray:
        return type(value) is np.ndarray and typing.get_args(arguments[1])[0] in (Any, value.dtype.type)
    if origin is Dataset:
        return type(value) is Dataset and is_of(next(iter(value)), arguments[0])
    return kind is Any or type(value) is kind
