"""The catalogue: what is in tf.data is here by the same name and arguments, or docs/from-tfdata.md says why not."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import asyncdata as ad
from asyncdata import experimental, testing
from asyncdata.transformations import Transformations
from tests import reference

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/from-tfdata.md").read_text()
NAMED = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]*)`", PAGE))))
"""Every word of code on the page."""

NO_LAW = {"reduce", "options", "apply", "snapshot", "tee", "save", "load", "list_files"}
"""Public methods that the laws do not draw: they give no dataset, or have one that is drawn; each has its own tests."""

CLASSES = ("TFRecordDataset", "TextLineDataset", "FixedLengthRecordDataset")
CONSTANTS = ("AUTOTUNE", "INFINITE_CARDINALITY", "UNKNOWN_CARDINALITY")
EXPERIMENTAL = tuple(name for name in ad.experimental.__all__ if name not in CONSTANTS)

GONE = {"Optional", "dense_to_sparse_batch", "get_next_as_optional"}
"""What is deprecated in tf.data.experimental and means nothing here."""

HERE = {"RandomDataset": "random", "Counter": "counter"}
"""Names in tf.data.experimental whose arguments are those of a method here."""

DIFFERENT = {
    "name": "names of graph nodes",
    "wait": "a folder is complete or not there",
    "use_unbounded_threadpool": "functions are Python's",
}
"""Arguments that are left out wherever they are; the page says so."""

DEFAULTS = {
    ("counter", "dtype"): "Python's integers unless given",
    ("Counter", "dtype"): "likewise",
    ("prefetch", "buffer_size"): "AUTOTUNE unless given",
    ("shard", "num_shards"): "this process's unless given",
    ("shard", "index"): "this process's unless given",
    ("shuffle", "buffer_size"): "everything unless given, where elements can be had in any order",
    ("shuffle", "reshuffle_each_iteration"): "None is True",
    ("ragged_batch", "row_splits_dtype"): "a dtype by its name",
}
"""Arguments whose default is written in another way."""


def public(value: Any) -> list[str]:
    return [name for name in dir(value) if not name.startswith("_")]


def parameters(function: Any) -> dict[str, inspect.Parameter]:
    found = inspect.signature(function).parameters
    return {name: one for name, one in found.items() if name not in {"self", "args", "kwargs"}}


def methods() -> list[str]:
    return [name for name in public(ad.Dataset) if name != "plan"]


def functions_and_classes() -> list[Any]:
    """What is public, readers among it, but for errors and constants; sources and transformations are methods."""
    found = [getattr(place, name) for place in (ad, ad.experimental, testing) for name in place.__all__]
    callables = [one for one in found if inspect.isclass(one) or inspect.isfunction(one)]
    return [one for one in callables if not (inspect.isclass(one) and issubclass(one, Exception))]


@pytest.mark.parametrize("name", [*methods(), *ad.experimental.__all__, *ad.__all__])
def test_what_is_here_stands_on_the_page(name: str) -> None:
    own = {"checkpoint", "read_file", "experimental"} | {one for one in ad.__all__ if one.endswith("Error")}
    own |= {"Stateful", "make_example", "decode_example", "parse_single_example", "FixedLenFeature", "VarLenFeature"}
    own |= {"TensorSpec", "Dataset", "WorkerCrashed"}
    assert name in NAMED or name in own


@pytest.mark.parametrize("name", public(ad.Dataset))
def test_every_method_has_an_example(name: str) -> None:
    function = inspect.getattr_static(ad.Dataset, name)
    assert ">>>" in (inspect.getdoc(function.fget if isinstance(function, property) else function) or "")


@pytest.mark.parametrize("one", functions_and_classes(), ids=lambda one: f"{one.__module__}.{one.__name__}")
def test_every_public_name_has_an_example(one: Any) -> None:
    docstrings = [one.__doc__, one.__init__.__doc__ if inspect.isclass(one) else None]
    assert any(">>>" in text for text in docstrings if text)


@pytest.mark.parametrize("name", [name for name in public(Transformations) if name not in NO_LAW | {"with_options"}])
def test_every_transformation_has_its_meaning_and_its_place_in_the_laws(name: str) -> None:
    laws = "".join(path.read_text() for path in (ROOT / "tests/laws").glob("*.py"))
    assert f".{name}(" in laws
    same = {"apply", "assert_cardinality"}
    assert name in same or hasattr(reference, name) or hasattr(reference, f"{name}_")


def test_the_page_has_no_empty_row() -> None:
    rows = [row.split("|") for row in PAGE.replace("\\|", "or").splitlines() if row.startswith("|")]
    assert [row for row in rows if not row[1].strip() or not row[2].strip()] == []


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_every_name_of_tensorflow_stands_on_the_page(tf: Any) -> None:
    data, experimental = tf.data, tf.data.experimental
    places = [data, data.Dataset, data.Iterator, data.NumpyIterator, experimental, experimental.service]
    for home in (data, experimental):
        places += [getattr(home, name) for name in public(home) if name.endswith("Options")]
    names = {name for place in places for name in public(place)}
    general = {"Dataset", "Iterator", "NumpyIterator", "experimental", "Options"}
    assert names - NAMED - general == set()


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_arguments_and_defaults_are_those_of_tensorflow(tf: Any) -> None:
    pairs = [
        (name, getattr(tf.data.Dataset, name), getattr(ad.Dataset, name, None)) for name in public(tf.data.Dataset)
    ]
    pairs += [(name, getattr(tf.data, name).__init__, getattr(ad, name).__init__) for name in CLASSES]
    for name in EXPERIMENTAL:
        theirs, ours = getattr(tf.data.experimental, name), getattr(ad.experimental, name)
        pairs.append((name, getattr(theirs, "__init__", theirs) if inspect.isclass(theirs) else theirs, ours))
    pairs += [(name, getattr(tf.data.experimental, name), getattr(ad.Dataset, here)) for name, here in HERE.items()]
    wrong: list[tuple[str, str]] = []
    for name, theirs, ours in pairs:
        if ours is None or isinstance(ours, property):
            continue
        mine = parameters(ours)
        for place, (argument, told) in enumerate(parameters(theirs).items()):
            here = mine.get(argument)
            if here is None:
                wrong += [] if argument in DIFFERENT else [(name, argument)]
            elif (name, argument) not in DEFAULTS and here.default != told.default:
                wrong.append((name, f"{argument}={here.default!r}, there {told.default!r}"))
            elif list(mine).index(argument) != place and here.kind is not inspect.Parameter.KEYWORD_ONLY:
                wrong.append((name, f"{argument} is number {list(mine).index(argument)}, there {place}"))
    assert wrong == []
    assert set(DIFFERENT) <= NAMED


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_constants_are_those_of_tensorflow(tf: Any) -> None:
    for name in CONSTANTS:
        assert getattr(ad, name) == getattr(ad.experimental, name) == getattr(tf.data, name)


@pytest.mark.tensorflow
@pytest.mark.filterwarnings("ignore")
def test_functions_that_tensorflow_still_has_are_here_or_on_the_page(tf: Any) -> None:
    """What is deprecated there has a method here, which the error names; of the rest the page says why it is not."""
    theirs = tf.data.experimental
    absent = [name for name in public(theirs) if name not in ad.experimental.__all__]
    for name in absent:
        with pytest.raises(AttributeError, match=f"has no attribute '{name}'") as caught:
            getattr(ad.experimental, name)
        assert caught.value.name == name
        deprecated = "DEPRECATED" in (getattr(theirs, name).__doc__ or "")
        assert "; use " in str(caught.value) or not deprecated or name in GONE


@pytest.mark.parametrize("name", ["ignore_errors", "bucket_by_sequence_length", *experimental.OLD])
def test_a_name_of_old_programs_says_what_does_the_same(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ad.experimental, name)
    for owner, method in re.findall(
        r"(Dataset|DatasetIterator|asyncdata)\.(\w+)", str(caught.value).split("; use ")[1]
    ):
        assert hasattr(ad if owner == "asyncdata" else getattr(ad, owner), method)
