"""Exceptions keep their class on their way between processes, whatever their constructor takes."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Self

import numpy as np
import pytest

import asyncdata as ad
from asyncdata.executors.process.exceptions import copied_failure, pickled_error, unpickled_error
from asyncdata.runtime.block import Failure
from tests.executors.process.test_map import outcomes


class Prefixed(Exception):
    """One whose words would be put before what it says once more, were its constructor called again."""

    def __init__(self, path: str, *, size: int) -> None:
        super().__init__(f"no such file: {path}")
        self.path = path
        self.size = size


class Slotted(KeyError):
    __slots__ = ("code",)

    def __init__(self, code: int, more: int) -> None:
        super().__init__("key")
        self.code = code + more


class Several(ExceptionGroup):
    def __new__(cls, number: int) -> Self:
        return super().__new__(cls, f"group {number}", [Prefixed("a", size=1), OSError(2, "gone", "b")])

    def __init__(self, number: int) -> None:
        self.number = number


class Own(OSError):
    def __init__(self, code: int) -> None:
        super().__init__(code, "words", "name")


class Reduced(ValueError):
    def __init__(self, a: int, b: int) -> None:
        super().__init__("reduced")
        self.pair = (a, b)

    def __reduce__(self) -> Any:
        return Reduced, self.pair


class Made(Exception):
    def __new__(cls, a: int, b: int) -> Self:
        made = super().__new__(cls)
        made.sum = a + b  # type: ignore[attr-defined]
        return made


class Locked(Exception):
    def __init__(self, number: int) -> None:
        super().__init__("locked")
        self.number = number
        self.lock = __import__("threading").Lock()


@dataclass(frozen=True)
class Frozen(Exception):
    code: int


ERRORS = {
    "prefixed": lambda: Prefixed("x", size=3),
    "slots": lambda: Slotted(1, 2),
    "group": lambda: Several(7),
    "plain group": lambda: ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError("k")])]),
    "base group": lambda: BaseExceptionGroup("g", [ValueError(1), KeyboardInterrupt()]),
    "os": lambda: OSError(2, "No such file", "name", None, "other"),
    "own os": lambda: Own(13),
    "key": lambda: KeyError("k"),
    "unicode": lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid"),
    "unset": lambda: UnicodeDecodeError.__new__(UnicodeDecodeError),
    "import": lambda: ImportError("no", name="n", path="p"),
    "attribute": lambda: AttributeError("no", name="n", obj=object()),
    "syntax": lambda: SyntaxError("bad", ("f", 1, 2, "text", 1, 3)),
    "json": lambda: json.JSONDecodeError("bad", "doc", 1),
    "numpy": lambda: np.linalg.LinAlgError("singular"),
    "reduced": lambda: Reduced(1, 2),
    "made": lambda: Made(1, 2),
    "frozen": lambda: Frozen(5),
    "exit": lambda: SystemExit(3),
    "stop": lambda: StopIteration(4),
}
FIELDS = (
    "path",
    "size",
    "code",
    "number",
    "errno",
    "strerror",
    "filename",
    "filename2",
    "name",
    "start",
    "lineno",
    "pos",
)


def told(error: BaseException) -> Any:
    """Return all that can be seen of an exception."""
    group = getattr(error, "exceptions", ())
    fields = {name: getattr(error, name, None) for name in (*FIELDS, "pair", "sum", "value", "__notes__")}
    return type(error), str(error), repr(error), error.args[: 1 if group else None], fields, [*map(told, group)]


@pytest.mark.parametrize("name", ERRORS)
def test_an_exception_is_what_it_was(name: str) -> None:
    error = ERRORS[name]()
    error.add_note("a note") if name != "frozen" else BaseException.__setattr__(error, "__notes__", ["a note"])
    assert told(unpickled_error(pickled_error(error))) == told(error)
    copy = copied_failure(Failure(error, True))
    assert copy.error is not error
    assert copy.of_source
    assert told(copy.error) == told(error)


def test_what_cannot_be_pickled_of_an_exception_is_noted() -> None:
    error: Any = unpickled_error(pickled_error(Locked(3)))
    assert (type(error), str(error), error.number) == (Locked, "locked", 3)
    assert "lock" in error.lock
    assert error.__notes__ == [
        "these attributes cannot be sent from another process, and are shown by their repr: lock"
    ]


def raises(name: str) -> str:
    if name in ERRORS and name not in ("exit", "base group"):
        error = ERRORS[name]()
        raise error
    return name


NAMES = [name for name in ERRORS if name not in ("exit", "base group", "unset")]


def test_an_exception_is_the_same_in_all_places() -> None:
    names = ad.Dataset.from_list([f"{name}{end}" for name in NAMES for end in ("", "!")])
    expected = outcomes(names.map(raises))
    assert [one[0] for one in expected[::2]] == [
        RuntimeError if name == "stop" else type(ERRORS[name]()) for name in NAMES
    ]
    assert outcomes(names.map(raises, 2, executor="thread")) == expected
    assert outcomes(names.map(raises, 2, executor="process")) == expected
    assert outcomes(names.map(raises).with_options(ad.Options(placement="process"))) == expected
    assert outcomes(names.map(raises).with_options(ad.Options(placement="current"))) == expected
    with ProcessPoolExecutor(1, mp_context=get_context("forkserver")) as executor:
        assert outcomes(names.map(raises, 2, executor=executor)) == expected


def test_an_exception_of_a_class_that_another_process_does_not_know_is_of_that_class_here() -> None:
    class Local(LookupError):
        def __init__(self, number: int, more: int) -> None:
            super().__init__(f"local {number}")

    def raise_local(number: int) -> int:
        raise Local(number, 1)

    for ds in (
        ad.Dataset.range(2).map(raise_local, 2, executor="process"),
        ad.Dataset.range(2).map(raise_local).with_options(ad.Options(placement="process")),
    ):
        assert [one[:2] for one in outcomes(ds)] == [(Local, "local 0"), (Local, "local 1")]


@pytest.mark.parametrize("held", [lambda ds: ds.cache(), lambda ds: ds.window(100).flat_map(lambda window: window)])
def test_an_exception_that_a_step_holds_is_raised_as_what_it_was(held: Any) -> None:
    names = ad.Dataset.from_list(NAMES).map(raises)
    expected = outcomes(names)
    ds = held(names)
    for _ in range(3):
        assert outcomes(ds) == expected


def test_a_window_is_pickled_with_its_failures() -> None:
    names = ad.Dataset.from_list(NAMES).map(raises)
    (window,) = names.window(100)
    for _ in range(2):
        window = pickle.loads(pickle.dumps(window))
    assert outcomes(window) == outcomes(names)
    moved = names.window(2).map(lambda window: window.take(2), 2, executor="process")
    assert outcomes(moved.flat_map(lambda window: window)) == outcomes(names)
