"""What tells kept elements of one pipeline from those of another with the same words: code and data."""

from __future__ import annotations

import cmath
import functools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date, datetime
from enum import Enum
from functools import partial, reduce, singledispatch, wraps
from operator import attrgetter, itemgetter, methodcaller
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from unittest import mock
from zoneinfo import ZoneInfo

import cloudpickle
import numpy as np
import pytest

import asyncdata as ad
from asyncdata.identity.content_hash import changed, contents_of
from tests.reference import Boom
from tests.running import WAYS

NUMBERS = ad.Dataset.range(5)


def helper(x: Any) -> Any:
    return x + 1


def helped(x: Any) -> Any:
    return helper(x)


def multiplier(by: Any) -> Callable[[Any], Any]:
    return lambda x: x * by


class Multiply:
    def __init__(self, by: int) -> None:
        self.by = by
        self.calls = 0

    def __call__(self, x: int) -> int:
        self.calls += 1
        return x * self.by

    def method(self, x: int) -> int:
        return x + 1


class Scaled:
    FACTOR = 1

    @classmethod
    def scale(cls, x: int) -> int:
        return cls.FACTOR * x


class Doubled(Scaled):
    FACTOR = 2


class Name(str):
    pass


@dataclass
class Hidden:
    """A dataclass that cannot be opened: its field was never set."""

    value: int = field(init=True)

    def __init__(self) -> None:
        pass


def caught_all(x: int) -> int:
    try:
        y = int(x)
        z = 10 // y
    except ZeroDivisionError:
        return -1
    return z


def caught_some(x: int) -> int:
    try:
        y = int(x)
    except ZeroDivisionError:
        return -1
    else:
        z = 10 // y
    return z


def doubled(x: Any) -> Any:
    return 2 * x


def chain(*functions: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        for function in functions:
            x = function(x)
        return x

    return run


def masked(*mask: int) -> Any:
    return np.ma.array([1, 2], mask=mask)


def with_default(by: Any) -> Callable[..., Any]:
    return lambda x, y=by: x * y


def coloured(red: Any, blue: Any) -> Any:
    return Enum("Colour", {"RED": red, "BLUE": blue})


def calling_as(function: Callable[..., Any]) -> Any:
    """An object of a class that always has the same name, and is called as this."""
    return type("Called", (), {"__call__": function})()


OTHERS: dict[str, list[Any]] = {
    "code": [lambda x: x + 1, lambda x: x - 1, lambda x: x + 2, lambda x: x.real, lambda x: x.imag],
    "held numbers": [multiplier(2), multiplier(3), multiplier(2.0), multiplier("2"), multiplier((2, 3))],
    "held arrays": [multiplier(np.arange(3)), multiplier(np.arange(3.0)), multiplier(np.array([0, 1, 3]))],
    "held functions": [multiplier(helper), multiplier(helped)],
    "defaults": [with_default(2), with_default(3)],
    "partial": [functools.partial(pow, 2), functools.partial(pow, 3), functools.partial(pow, exp=2)],
    "inner functions": [lambda x: [y + 1 for y in [x]], lambda x: [y + 2 for y in [x]]],
    "members of enums": [
        *map(multiplier, coloured(1, 2)),
        *map(multiplier, coloured(2, 1)),
        multiplier(coloured(3, 4).RED),
    ],
    "numbers of NumPy": [[np.int64(3)], [np.array(3)], [np.int32(3)], [np.int64(4)], [np.array([3])], [3]],
    "held pipelines": [multiplier(one) for one in (NUMBERS, NUMBERS.map(helper), NUMBERS.map(helped), NUMBERS.take(2))],
    "how objects are called": [calling_as(lambda self, x: x + 1), calling_as(lambda self, x: x - 1)],
    "sets": [lambda x: x in {"a", "b"}, lambda x: x in {"a", "c"}],
    "objects": [Multiply(1), Multiply(1).method, abs, helper],
    "lists": [[1, 2], [2, 1], (1, 2), [1, "2"], [1, [2]], [1, 2, 3]],
    "structures": [{"a": 1}, {"b": 1}, {"a": 2}, [{"a": np.zeros(2)}], [{"a": np.ones(2)}]],
    "held values": [
        multiplier(one) for one in (Path("a"), Path("b"), range(3), range(4), frozenset("a"), date(2026, 1, 1))
    ],
    "getters": [itemgetter(1), itemgetter(2), attrgetter("x"), attrgetter("y")],
    "strings in inner functions": [lambda x: [y + "a" for y in x], lambda x: [y + "b" for y in x]],
    "bytes": [[b"a", b"b"], [b"ab", b""], [b"a", "b"], [bytearray(b"a"), b"b", 1]],
    "what is tried": [caught_all, caught_some],
    "functions held twice": [
        chain(helper, helper, doubled),
        chain(helper, doubled, doubled),
        chain(helper, doubled, helper),
        chain(helper, doubled),
    ],
    "methods of values": ["a-{}.png".format, "b-{}.png".format, "a-{}.png".join, b"a".join],
    "methods of arrays": [np.arange(3).take, np.arange(1, 4).take, np.arange(3).item],
    "methods of ufuncs": [np.add.reduce, np.multiply.reduce, np.add.accumulate],
    "looking up": [{"a": 1}.get, {"a": 2}.get, {1}.__contains__, {2}.__contains__, [1].__getitem__],
    "held functions of C": [
        multiplier(one) for one in (str.upper, str.lower, math.sqrt, cmath.sqrt, np.sum, np.mean, np.add)
    ],
    "methods that are called": [methodcaller("split", sep=","), methodcaller("split", sep=";")],
    "methods of classes": [Scaled.scale, Doubled.scale],
    "elements that are sets": [[{1, 2}], [{1, 3}], [{1}], [frozenset({1, 2})], [{"a", (1, 2)}], [{"a", (2, 1)}]],
    "masks": [masked(0, 1), masked(1, 0), np.array([1, 2]), [masked(0, 1)], [masked(1, 0)]],
    "views": [[memoryview(b"a")], [memoryview(b"b")], [b"a"], [bytearray(b"a")]],
    "strings of another class": [[Name("a")], [Name("b")], ["a"]],
    "held slices": [multiplier(slice(1, 3)), multiplier(slice(1, 4)), multiplier(slice(1, 3, 2))],
    "held patterns": [multiplier(re.compile(*one)) for one in (("a",), ("b",), ("a", re.IGNORECASE))],
    "held times": [
        multiplier(datetime(2026, 10, 25, 2, fold=fold, tzinfo=ZoneInfo(zone)))
        for fold, zone in ((0, "Europe/Berlin"), (1, "Europe/Berlin"), (0, "Europe/Paris"))
    ],
    "what hides what follows": [[Hidden(), 1], [Hidden(), 2], [1 << 20_000, 1], [1 << 20_000, 2]],
    "arrays": [np.zeros(3), np.zeros((3, 1)), np.zeros(3, np.float32), np.array(["a", None]), np.array(["b", None])],
}


@pytest.mark.parametrize("values", OTHERS.values(), ids=OTHERS.keys())
def test_what_is_something_else_is_told_apart(values: list[Any]) -> None:
    assert len({contents_of((value,)) for value in values}) == len(values)


def calling(number: int, wrap: Callable[[Any], Any] = lambda function: function) -> Callable[[int], int]:
    """A function that calls another one of its module, which is another one each time."""
    place: dict[str, Any] = {"__name__": "module", "wrap": wrap}
    exec(f"@wrap\ndef inner(x):\n    return x + {number}\ndef outer(x):\n    return inner(x)", place)
    return place["outer"]


@pytest.mark.parametrize(
    "wrap",
    [
        lambda function: function,
        functools.lru_cache,
        functools.cache,
        functools.partial,
        ad.with_retries,
        lambda function: functools.lru_cache(ad.with_retries(function)),
    ],
    ids=["plain", "lru_cache", "cache", "partial", "with_retries", "both"],
)
def test_a_function_counts_with_those_of_its_module_that_it_calls(wrap: Any) -> None:
    assert contents_of((calling(1, wrap),)) == contents_of((calling(1, wrap),)) != contents_of((calling(2, wrap),))


def test_a_function_counts_with_coroutine_functions_of_its_module_that_are_given_up() -> None:
    def awaiting(number: int) -> Any:
        place: dict[str, Any] = {"__name__": "module", "ad": ad}
        inner = f"async def inner(x):\n    return {number}\ninner = ad.with_timeout(inner, 1)\n"
        exec(f"{inner}async def outer(x):\n    return await inner(x)", place)
        return place["outer"]

    assert contents_of((awaiting(1),)) == contents_of((awaiting(1),)) != contents_of((awaiting(2),))


def test_a_function_does_not_count_with_those_of_other_modules() -> None:
    def outer(number: int) -> Any:
        other: dict[str, Any] = {"__name__": "other"}
        exec(f"def inner(x):\n    return x + {number}", other)
        place: dict[str, Any] = {"__name__": "module", "inner": other["inner"]}
        exec("def outer(x):\n    return inner(x)", place)
        return place["outer"]

    assert contents_of((outer(1),)) == contents_of((outer(2),))


def test_functions_that_call_each_other_have_an_end() -> None:
    def even(number: int) -> Any:
        place: dict[str, Any] = {"__name__": "module"}
        exec(f"def even(x):\n    return x == 0 or odd(x - 1)\ndef odd(x):\n    return x != {number} and even(x)", place)
        return place["even"]

    assert contents_of((even(0),)) == contents_of((even(0),)) != contents_of((even(1),))


def test_what_a_function_writes_down_does_not_count() -> None:
    seen: list[int] = []
    known: dict[int, int] = {}
    count = 0

    def watched(x: int) -> int:
        nonlocal count
        count += 1
        seen.append(x)
        known[x] = x
        return x

    multiply = Multiply(2)
    before = contents_of((watched, multiply))
    watched(1), multiply(1)
    assert contents_of((watched, multiply)) == before


def test_what_a_function_changes_does_not_make_its_cache_anothers(tmp_path: Path) -> None:
    counts, total = np.zeros(6, np.int64), 0

    def watched(x: int) -> int:
        nonlocal total
        counts[x] += 1
        total = sum(total for total in [total, x])
        return x

    for placement in ("thread", "process", "current"):
        ds = ad.Dataset.range(6).map(watched).cache(tmp_path / placement)
        ds = ds.with_options(ad.Options(placement=placement))  # type: ignore[arg-type]
        for _ in range(3):
            assert list(ds) == [*range(6)]


class AttrDict(dict[Any, Any]):
    __getattr__ = dict.__getitem__


class Rude:
    def __repr__(self) -> str:
        raise Boom

    def __getattr__(self, name: str) -> Any:
        raise Boom(name)

    def __call__(self, x: Any) -> Any:
        return x


def itself() -> list[Any]:
    found: list[Any] = [1]
    found.append(found)
    return found


@pytest.mark.parametrize(
    "value",
    [
        multiplier(AttrDict(size=3)),
        multiplier(Rude()),
        multiplier(frozenset([Rude()])),
        [{Rude()}],
        Rude(),
        mock.Mock(),
        mock.call,
        functools.partial(list.__getitem__, [1]),
        itself(),
        [{Rude(): 1}],
        [1 << 20_000],
        ["\ud800"],
        [object()],
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_there_is_has_a_hash_and_no_code_of_it_runs(value: Any) -> None:
    assert contents_of((value,)) == contents_of((value,))


class Watched(tuple[Any, ...]):
    """Says when any of its methods that are asked for what it is are called."""

    seen: ClassVar[list[str]] = []

    def __repr__(self) -> str:
        self.seen.append("repr")
        return "Watched"

    __str__ = __repr__

    def __iter__(self) -> Any:
        self.seen.append("iter")
        return super().__iter__()

    def __len__(self) -> int:
        self.seen.append("len")
        return 1

    def __hash__(self) -> int:
        self.seen.append("hash")
        return 1

    def __eq__(self, other: object) -> bool:
        self.seen.append("eq")
        return self is other


class Loud(PurePosixPath):
    def __str__(self) -> str:
        Watched.seen.append("path")
        return "loud"


class Colour(Enum):
    RED = "red"

    def __str__(self) -> str:
        Watched.seen.append("enum")
        return "a colour"


def test_no_method_of_a_value_is_called() -> None:
    values: list[Any] = [
        frozenset([Watched([1]), Watched([2])]),
        {Watched([1]), "a"},
        Watched([1]),
        Loud("a"),
        Colour.RED,
    ]
    Watched.seen.clear()
    for value in values:
        contents_of((multiplier(value), value, [value]))
    assert Watched.seen == []


def test_objects_in_sets_count_by_their_types() -> None:
    for make in (object, Rude, lambda: Multiply(1)):
        assert contents_of((multiplier(frozenset([make()])),)) == contents_of((multiplier(frozenset([make()])),))
        assert contents_of(([{make()}],)) == contents_of(([{make()}],))


def test_what_is_too_deep_is_the_same_wherever_it_is_told() -> None:
    def deepest(kind: Any) -> Any:
        deep = kind()
        for _ in range(10_000):
            deep = kind([deep])
        return deep

    deep = deepest(list)

    def told(further: int) -> str:
        return told(further - 1) if further else contents_of((deep,))

    assert told(0) == told(100)
    assert told(0) != contents_of((set(),)) != contents_of((deepest(tuple),)) != told(0)


def test_what_lies_beyond_a_number_in_its_bytes_does_not_count() -> None:
    found: list[str] = []
    for fill in (0, 255):
        numbers = np.array([1.5], np.longdouble)
        if np.finfo(np.longdouble).nmant == 63:  # in ten bytes
            numbers.view(np.uint8)[10:] = fill
        found.append(contents_of((numbers,)))
    assert found[0] == found[1]


def test_what_lies_between_fields_does_not_count() -> None:
    found: list[Any] = []
    for fill in (0, 255):
        rows = np.full(3 * 16, fill, np.uint8).view(np.dtype([("a", "u1"), ("b", "f8")], align=True))
        rows["a"], rows["b"] = 1, 2
        found.append(contents_of((rows,)))
    assert found[0] == found[1]


def test_methods_that_share_a_name_with_a_function_are_none() -> None:
    def module(body: str) -> Any:
        place: dict[str, Any] = {"__name__": "module"}
        exec(f"def upper(x):\n    return {body}\ndef f(x):\n    return x.upper()", place)
        return place["f"]

    assert contents_of((module("1"),)) == contents_of((module("2"),))


def test_neither_its_place_nor_what_is_said_of_it_counts() -> None:
    made: list[Any] = []
    for text in ("def f(x):\n    'Say.'\n    return x", "\n\ndef f(x):\n    'Say more.'\n    # why\n    return x"):
        place: dict[str, Any] = {}
        exec(text, place)
        made.append(place["f"])
    assert contents_of((made[0],)) == contents_of((made[1],))


def test_a_variable_that_is_not_there_yet_is_none() -> None:
    def outer() -> Any:
        told = contents_of((lambda: later,))
        later = 1
        return told, later

    assert outer()[0] == outer()[0]


def test_functions_are_the_same_where_they_were_sent() -> None:
    for function in (multiplier(3), multiplier(np.arange(3)), helped, functools.partial(helped, x=1)):
        assert contents_of((cloudpickle.loads(cloudpickle.dumps(function)),)) == contents_of((function,))


PROGRAM = """
import asyncdata as ad, numpy as np
SIZE = 3
def inner(x): return x in {"a", "b", "c", 1, 2.5, ("d", "e")}
def outer(x): return inner(x)
NESTED = frozenset({frozenset({"a", "b", "c"}), frozenset({"d", "e", "f"}), ("g", frozenset({"h", "i", "j"}))})
def held(x, nested=NESTED, functions=frozenset({len, min, inner})): return x in nested
ds = ad.Dataset.from_tensor_slices(np.arange(9)).map(held).map(outer)
ds = ds.concatenate(ad.Dataset.from_iterable([{"a", "b", ("c", b"d")}, object()]))
ds = ds.map(lambda x: x is None, num_parallel_calls=2)
print(ds.fingerprint())
"""


def test_fingerprints_are_the_same_in_every_process() -> None:
    found = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(found) == 1


def test_a_hash_of_another_version_of_python_tells_nothing() -> None:
    assert changed(["3.11 a", ""], ["3.12 b", ""]) is None
    assert changed(["", "3.11 a"], ["", "3.11 b"]) == 1


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    ("was", "now", "step"),
    [
        (NUMBERS.map(multiplier(2)), NUMBERS.map(multiplier(3)), "step 2, map(<lambda>)"),
        (NUMBERS.filter(lambda x: x > 2), NUMBERS.filter(lambda x: x > 3), "step 2, filter(<lambda>)"),
        (NUMBERS.scan(0, lambda s, x: (s, s)), NUMBERS.scan(0, lambda s, x: (s, x)), "step 2, scan(<lambda>)"),
        (ad.Dataset.from_source([1, 2]), ad.Dataset.from_source([2, 2]), "step 2, from_source(list of 2)"),
        (ad.Dataset.from_generator(range, args=(2,)), ad.Dataset.from_generator(range, args=(3,)), "step 1, "),
        (ad.Dataset.from_tensors([1]), ad.Dataset.from_tensors([2]), "step 1, from_tensors()"),
        (ad.Dataset.from_list([1, 2]), ad.Dataset.from_list([2, 2]), "step 1, from_list(2 elements)"),
        (ad.Dataset.from_iterable([1, 2]), ad.Dataset.from_iterable([2, 2]), "step 1, from_iterable(list of 2)"),
    ],
)
def test_a_cache_of_other_code_or_data_is_refused(was: Any, now: Any, step: str, way: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "kept")
    first = way(was.cache(path))
    assert way(was.cache(path)) == first
    with pytest.raises(ad.ResumeError) as caught:
        list(now.cache(path))
    assert step in str(caught.value)
    assert "has other code or data now" in str(caught.value)


def test_a_snapshot_of_other_code_or_data_is_another_file(tmp_path: Path) -> None:
    for _ in range(2):
        assert list(NUMBERS.map(multiplier(2)).snapshot(tmp_path)) == [0, 2, 4, 6, 8]
        assert list(NUMBERS.map(multiplier(3)).snapshot(tmp_path)) == [0, 3, 6, 9, 12]
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("also", [{}, {"shard_func": lambda x: x % 2}], ids=["mended", "sharded"])
def test_saving_does_not_go_on_with_other_code(also: Any, tmp_path: Path) -> None:
    failing = [True]

    def breaks(x: int) -> int:
        if failing[0] and x == 3:
            raise Boom(x)
        return x

    path, often = tmp_path / "saved", {"checkpoint_interval": 1}
    with pytest.raises(Boom):
        NUMBERS.map(breaks).save(path, checkpoint_args=often)
    with pytest.raises(ad.ResumeError, match="begun with other functions or data"):
        NUMBERS.map(breaks if also else mended(breaks)).save(path, checkpoint_args=often, **also)
    failing[0] = False
    NUMBERS.map(breaks).save(path, checkpoint_args=often)
    assert list(ad.Dataset.load(path)) == [0, 1, 2, 3, 4]


def mended(function: Callable[..., Any]) -> Callable[..., Any]:
    """Another function of the same name."""
    place: dict[str, Any] = {}
    exec("def breaks(x):\n    return x", place)
    place["breaks"].__qualname__ = function.__qualname__
    return place["breaks"]


def add_one(x: Any) -> Any:
    return x + 1


def add_two(x: Any) -> Any:
    return x + 2


class Chain:
    """Calls functions that it holds in a list."""

    def __init__(self, *functions: Any) -> None:
        self.functions = [*functions]
        self.named = {"first": functions[0]}

    def __call__(self, x: Any) -> Any:
        return reduce(lambda value, function: function(value), self.functions, x)


def chain_of(*functions: Any) -> Any:
    held = [*functions]
    return lambda x: reduce(lambda value, function: function(value), held, x)


class Fitted:
    """Learns a number in one method, which another one uses."""

    def fit(self, x: Any) -> Fitted:
        self.weight = x
        return self

    def predict(self, x: Any) -> Any:
        self.calls = getattr(self, "calls", 0) + 1
        return self.scaled(x)

    def scaled(self, x: Any) -> Any:
        self.last = x * self.weight
        return self.last


HOLDERS: list[Callable[[Any], Any]] = [
    np.vectorize,
    lambda function: np.vectorize(function, signature="(n)->(n)"),
    partial,
    lambda function: partial(map, function),
    Chain,
    chain_of,
    lambda function: Chain(chain_of(function)).__call__,
    lambda function: wraps(repr)(lambda x: function(x)),
    singledispatch,
]


@pytest.mark.parametrize("holder", HOLDERS)
def test_functions_that_callables_hold_count(holder: Callable[[Any], Any], tmp_path: Path) -> None:
    one, two = contents_of((holder(add_one),)), contents_of((holder(add_two),))
    assert one != two
    assert contents_of((holder(add_one),)) == one


def test_a_cache_of_another_vectorised_function_is_not_used(tmp_path: Path) -> None:
    ds = ad.Dataset.range(3)
    path = str(tmp_path / "cache")
    assert list(ds.map(np.vectorize(add_one)).cache(path)) == [1, 2, 3]
    with pytest.raises(ad.AsyncDataError, match=r"step 2 was map\(add_one\), and is map\(add_two\) now"):
        list(ds.map(np.vectorize(add_two)).cache(path))


def test_arguments_of_vectorize_count() -> None:
    made = [np.vectorize(add_one, **more) for more in ({}, {"otypes": [float]}, {"excluded": {0}})]
    assert len({contents_of((one,)) for one in made}) == 3


def test_what_another_method_has_learnt_counts_and_what_the_called_one_writes_does_not() -> None:
    one, two = Fitted().fit(1), Fitted().fit(2)
    before = contents_of((one.predict,))
    assert before != contents_of((two.predict,))
    one.predict(5)
    assert contents_of((one.predict,)) == before


def test_a_ufunc_of_an_unknown_function_is_refused(tmp_path: Path) -> None:
    ds = ad.Dataset.range(3).map(np.frompyfunc(add_one, 1, 1))
    assert list(ds) == [1, 2, 3]
    with pytest.raises(ad.PlanError, match=r"frompyfunc\(add_one\) does not show which function"):
        list(ds.cache(str(tmp_path / "cache")))


def fitted_models() -> list[tuple[Any, Any]]:
    """Return pairs of functions of models that were fitted to different numbers."""
    linear, preprocessing, pipeline, tree = [
        pytest.importorskip(f"sklearn.{name}") for name in ("linear_model", "preprocessing", "pipeline", "tree")
    ]

    def scaler(last: int) -> Any:
        return preprocessing.StandardScaler().fit([[1], [last]]).transform

    def regressor(last: int) -> Any:
        return tree.DecisionTreeRegressor(random_state=0).fit([[1], [2]], [1, last]).predict

    def steps(last: int) -> Any:
        made = pipeline.make_pipeline(preprocessing.StandardScaler(), linear.LinearRegression())
        return made.fit([[1], [2]], [1, last]).predict

    return [(make(2), make(3)) for make in (scaler, regressor, steps)]


def test_what_estimators_of_scikit_learn_were_fitted_to_counts() -> None:
    for one, two in fitted_models():
        assert contents_of((one,)) != contents_of((two,))


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_code_and_numbers_of_modules_of_torch_count() -> None:
    torch = pytest.importorskip("torch")
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    pairs = [
        (first, second),
        (lambda x: first(x), lambda x: second(x)),
        (torch.nn.Sequential(torch.nn.ReLU()), torch.nn.Sequential(torch.nn.Tanh())),
        (torch.nn.Dropout(0.1), torch.nn.Dropout(0.2)),
        (torch.jit.trace(first, torch.ones(2)), torch.jit.trace(second, torch.ones(2))),
        (torch.jit.trace(add_one, torch.ones(1)), torch.jit.trace(add_two, torch.ones(1))),
        (torch.compile(add_one), torch.compile(add_two)),
    ]
    for one, two in pairs:
        assert contents_of((one,)) != contents_of((two,))
        assert contents_of((one,)) == contents_of((one,))
    again = torch.nn.Linear(2, 2)
    again.load_state_dict(first.state_dict())
    assert contents_of((again,)) == contents_of((first,))
