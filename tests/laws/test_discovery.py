"""Every class of nodes is in the laws: one that no drawn pipeline runs fails here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.graph.node import Node, nodes_of
from tests.laws.files import OTHERS, READERS, FileSource, file_sources
from tests.laws.pipelines import ALL_STEPS, UNORDERED_STEPS, Pipeline, Step, sources
from tests.laws.test_channels import received
from tests.laws.test_devices import on_a_device
from tests.running import read_plain

for module in pkgutil.walk_packages(ad.__path__, "asyncdata."):
    if not module.name.endswith("__main__") and not module.name.startswith("asyncdata.torch"):
        importlib.import_module(module.name)

ABSTRACT = {
    "Called",
    "Counted",
    "Groups",
    "InMemorySource",
    "IndexedSource",
    "NumberedFile",
    "ShardFile",
    "OneForOne",
    "ParsedFile",
    "IteratorSource",
    "StateFree",
    "Transparent",
    "Unary",
}
"""Bases, of which no pipeline has a node, and the one that counts elements for `asyncdata.testing`."""

ELSEWHERE = {
    "ArrowFile",
    "HttpStreamed",
    "KafkaTopic",
    "Kept",
    "LanceMatches",
    "LanceRows",
    "ParquetFile",
    "RemotePlan",
    "Removed",
    "TableRows",
    "WebSocketStreamed",
}
"""Nodes whose packages these tests have not: the tests in `tests/sources` and the laws that are marked `formats`, and
`tests/web`, are for them; that of a cluster, for which `test_cluster.py` is; and one that only a resume makes, for
which `tests/transforms/test_mixtures.py` is."""


ROUNDS = 10


def kinds(base: type[Any] = Node) -> Iterator[type[Node]]:
    for kind in base.__subclasses__():
        yield kind
        yield from kinds(kind)


def read(ds: ad.Dataset[Any], opened: set[str]) -> None:
    """Read by a loop, and by number where that can be."""
    opened.update(type(node).__name__ for node in nodes_of(ds.plan))
    read_plain(ds)
    if ds.plan.random_access and ds.cardinality():
        try:
            ds[0]
        except Exception:  # that of the element
            return


def run_some(drawn: st.SearchStrategy[Pipeline | FileSource], opened: set[str]) -> None:
    @settings(max_examples=3, derandomize=False, phases=[Phase.generate], database=None)
    @given(drawn)
    def run(pipe: Pipeline | FileSource) -> None:
        read(pipe.build(), opened)

    run()


@st.composite
def after_a_source(draw: st.DrawFn, step: Step) -> Pipeline:
    return step(draw, draw(sources()))


@pytest.fixture
def opened() -> Iterator[set[str]]:
    """The names of the classes of all nodes that were opened, also in pipelines inside others.

    Nodes of plans are added to them: that for a device is none that is opened.
    """
    found: set[str] = set()
    original = Node.open

    def recording(self: Node, *arguments: Any, **named: Any) -> Any:
        found.add(type(self).__name__)
        return original(self, *arguments, **named)

    with mock.patch.object(Node, "open", recording):
        yield found


def test_every_class_of_nodes_is_run_by_a_law(opened: set[str]) -> None:
    """Pipelines are random, and more of them are drawn until each class was there."""
    pytest.importorskip("fsspec", reason="pages of names are listed by it: pip install -e '.[test]'")
    steps: set[Step] = {*ALL_STEPS, *UNORDERED_STEPS, on_a_device}
    drawn = [
        *(file_sources([kind]) for kind in (*READERS, *OTHERS)),
        *(after_a_source(step) for step in sorted(steps, key=lambda step: step.__name__)),
        received(),
        *[sources()] * 10,
    ]
    for _ in range(ROUNDS):
        for strategy in drawn:
            run_some(strategy, opened)
        missing = {kind.__name__ for kind in kinds() if kind.__module__.startswith("asyncdata.")} - opened
        if missing - ELSEWHERE == ABSTRACT:
            break
    assert missing - ELSEWHERE == ABSTRACT
