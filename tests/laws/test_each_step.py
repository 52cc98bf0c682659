"""Laws of each step and source by itself, behind numbers that fail now and then, so that each one is drawn often.

A new transformation is here when `tests/laws/pipelines.py` draws it, in one of its tuples of steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.graph.node import Node, Unary, nodes_of
from asyncdata.identity.position_check import check_position
from asyncdata.runtime.block import Failure
from asyncdata.testing.steps import (
    check_elements,
    check_held,
    check_label,
    check_length,
    check_tickets,
    plain_json,
    runs_by_hand,
    single_blocks,
)
from asyncdata.transforms.map import Map
from tests import reference
from tests.laws.files import OTHERS, READERS, file_sources
from tests.laws.pipelines import (
    ALL_STEPS,
    SOURCES,
    UNORDERED_STEPS,
    Pipeline,
    Step,
    counts,
    from_files,
    rerandomized,
)
from tests.reference import Boom, Failed, failed
from tests.running import MOST

STEPS = sorted({*ALL_STEPS, *UNORDERED_STEPS}, key=lambda step: step.__name__)

MOST_EXAMPLES = settings().max_examples
LONG = MOST_EXAMPLES > 100
EXAMPLES = settings(max_examples=400 if MOST_EXAMPLES > 1000 else 50 if LONG else 10)
"""With 25 and 400 these laws alone took a tenth of the suites' time; HYPOTHESIS_PROFILE=long has 400."""

READ = (1000, 2000) if LONG else (200, 400)
"""After how many elements one looks at what tickets reach."""


DRAWN_AS = {"list_files": ["from_iterable"], "rebatch": ["batch"]}
"""Methods that make other steps, which are drawn as these: names in a list, and one size after `unbatch`."""


FILE_LABELS = {
    **{kind: reader.__name__ for kind, reader in READERS.items()},
    "mds": "MdsDataset(",
    "tokens": "TokenDataset(",
    "tensors": "SafetensorsDataset(",
    "lerobot": "LeRobotDataset(",
    "litdata": "LitDataset(",
    "tfds": "TfdsDataset(",
    "energon": "EnergonDataset(",
    "fixed": "FixedLengthRecordDataset(",
    "csv": "CsvDataset(",
    "sql": "SqlDataset(",
    "saved": "load(",
    "listed": "from_iterable(",
    "table": "flat_map(",
    "stored": "from_channel(",
    "queued": "from_list_queue",
    "pages": "list_files(",
}
"""How the source of each kind of files is drawn."""


class Built:
    """The datasets that public methods returned, by the methods' names."""

    def __init__(self) -> None:
        self.datasets: list[tuple[str, ad.Dataset[Any]]] = []
        self.depth = 0

    def watched(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method that notes what it returns, if no other method called it."""

        @wraps(method)
        def call(*args: Any, **named: Any) -> Any:
            self.depth += 1
            try:
                ds = method(*args, **named)
            finally:
                self.depth -= 1
            if not self.depth:
                self.datasets.append((name, ds))
            return ds

        return call


NO_STEP = {"apply", "with_options"}


def building_methods() -> dict[str, Any]:
    """The public methods of `Dataset` that return a dataset with one more step, or a source."""
    methods = {name: getattr(ad.Dataset, name) for name in dir(ad.Dataset) if not name.startswith("_")}
    return {
        name: method
        for name, method in methods.items()
        if inspect.isroutine(method)
        and str(inspect.get_annotations(method).get("return")).startswith("Dataset[")
        and name not in NO_STEP
    }


@pytest.fixture(scope="module")
def built() -> Iterator[Built]:
    found = Built()
    with pytest.MonkeyPatch.context() as patch:
        for name, method in building_methods().items():
            watched = found.watched(name, method)
            is_static = not isinstance(inspect.getattr_static(ad.Dataset, name), type(lambda: 0))
            patch.setattr(ad.Dataset, name, staticmethod(watched) if is_static else watched)
        yield found


def failing(places: frozenset[int]) -> Callable[[int], int]:
    def fail_at(x: int) -> int:
        if x in places:
            raise Boom(x)
        return x

    return fail_at


@st.composite
def numbers(draw: st.DrawFn, count: st.SearchStrategy[int] = counts(12, 7, 20, 3, 1, 0)) -> Pipeline:  # noqa: B008
    """Numbers, of which some fail; or none, and then their structure is known."""
    size = draw(count)
    pipe = Pipeline(f"range({size})", lambda: ad.Dataset.range(size), lambda epoch: range(size))
    places = draw(st.frozensets(st.integers(0, max(size - 1, 0)), max_size=1 + size // 4))
    if not places:
        return pipe
    fn = failing(places)
    return pipe.then(
        f"map(fails at {sorted(places)})",
        lambda ds: ds.map(fn),
        lambda epoch: reference.map_(pipe.meaning(epoch), fn),
    )


@dataclass
class Run:
    """All elements, failures in their places, and where to resume: before the first and after each."""

    elements: list[Any]
    places: list[Any]


def run(ds: ad.Dataset[Any], place: Any = None) -> Run:
    """Read a dataset element by element from a place of another run: without an event loop where it needs none."""
    return run_by_hand(ds.plan, place) if runs_by_hand(ds.plan) else run_on_a_loop(ds, place)


def run_by_hand(plan: Node, position: Any) -> Run:
    found, positions = list[Any](), [position]
    if position is not None:
        check_position(plan, position)
    for block in single_blocks(plan, position):
        (item,) = block.items
        found.append(failed(item.error) if type(item) is Failure else item)
        positions.append(plain_json(block.tickets.at(1)))
    return Run(found, positions)


def run_on_a_loop(ds: ad.Dataset[Any], state: Any) -> Run:
    found, states = list[Any](), list[Any]()
    with ds.with_options(ad.Options(optimize=False)).iterate(state=state) as elements:
        while True:
            states.append(plain_json(elements.state_dict()))
            try:
                found.append(next(elements))
            except StopIteration:
                return Run(found, states)
            except Exception as error:
                found.append(failed(error))
                assert len(found) < MOST


def check(pipe: Pipeline, draw: st.DrawFn) -> None:
    """What comes is what the plan says, and the meaning, also from states: after some failures and at another place."""
    ds, expected = pipe.build(), [*pipe.meaning((0,))]
    found = run(ds)
    assert pipe.comparable(found.elements) == pipe.comparable(expected)
    if pipe.counted:
        check_length(ds, len(found.elements))
    check_elements(ds, [one for one in found.elements if type(one) is not Failed])
    failures = [place for place, one in enumerate(found.elements, 1) if type(one) is Failed]
    for place in dict.fromkeys([*failures[:2], draw(st.integers(0, len(found.elements)))]):
        rest = run(pipe.build(), found.places[place])
        whole = [*found.elements[:place], *rest.elements]
        assert pipe.comparable(whole) == pipe.comparable(expected), f"resumed after {place} elements"


def check_labels(pipe: Pipeline, built: Built) -> None:
    """What each method returned is drawn under the method's name, or one that says as well what it is."""
    built.datasets.clear()
    pipe.build()
    for method, ds in built.datasets:
        check_label(ds.plan, [method, *DRAWN_AS.get(method, [])])


def name_of(drawn: Callable[..., Pipeline]) -> str:
    return drawn.__name__


@pytest.mark.parametrize("step", STEPS, ids=name_of)
@EXAMPLES
@given(data=st.data())
def test_a_step_by_itself(step: Step, data: st.DataObject, built: Built) -> None:
    check_step(step, data.draw, built)


def check_step(step: Step, draw: st.DrawFn, built: Built) -> None:
    """Check one pipeline of numbers and a step."""
    pipe = step(draw, draw(numbers()))
    check(pipe, draw)
    check_labels(pipe, built)
    place = draw(counts(1, 2, 3, 5, 8, 0))
    for node in nodes_of(pipe.build().plan):
        if isinstance(node, Unary) and not isinstance(node, Map):
            check_held(node, place)


@pytest.mark.parametrize("source", sorted({*SOURCES, rerandomized} - {from_files}, key=name_of), ids=name_of)
@EXAMPLES
@given(data=st.data())
def test_a_source_by_itself(source: Callable[[st.DrawFn], Pipeline], data: st.DataObject, built: Built) -> None:
    pipe = source(data.draw)
    check(pipe, data.draw)
    check_labels(pipe, built)


@pytest.mark.parametrize("kind", [*READERS, *OTHERS])
@settings(max_examples=20 if LONG else 3)
@given(data=st.data())
def test_a_source_of_files_by_itself(kind: str, data: st.DataObject) -> None:
    source = data.draw(file_sources([kind]))
    pipe = Pipeline(source.text, source.build, lambda epoch: source.elements, counted=False)
    check(pipe, data.draw)
    assert any(node.label().startswith(FILE_LABELS[kind]) for node in nodes_of(pipe.build().plan))


@pytest.mark.parametrize("step", STEPS, ids=name_of)
@settings(max_examples=3 if LONG else 1)
@given(data=st.data())
def test_tickets_reach_equally_many_objects_however_many_came_before(step: Step, data: st.DataObject) -> None:
    pipe = step(data.draw, data.draw(numbers(st.just(3 * READ[-1]))))
    plan = pipe.build().plan
    while not runs_by_hand(plan) and isinstance(plan, Unary):  # of one that waits, the steps before it
        plan = plan.input
    if runs_by_hand(plan):
        check_tickets(plan, READ)


@pytest.mark.parametrize(
    ("build", "place"),
    [
        (lambda ds: ds.group_by_window(lambda x: x // 2, lambda _, window: window, 3).plan.inputs[0], 0),
        (lambda ds: ds.filter(lambda x: x % 2).map(lambda x: np.arange(x)).unbatch().plan, 2),
        (lambda ds: ds.pad_to_cardinality(20).plan, 3),
        (lambda ds: ds.shard(4, 0, drop_remainder=True).plan, 1),
        (lambda ds: ds.window(4, 1, 2).plan, 2),
    ],
    ids=["group_by_window", "unbatch", "pad_to_cardinality", "shard", "window"],
)
def test_a_step_holds_no_more_than_it_says(build: Callable[[ad.Dataset[int]], Unary], place: int) -> None:
    check_held(build(ad.Dataset.range(12)), place)


@pytest.mark.parametrize(
    ("method", "build"),
    [
        ("bucket_by_sequence_length", lambda ds: ds.bucket_by_sequence_length(abs, [2], [2, 2])),
        ("snapshot", lambda ds: ds.snapshot("a folder")),
    ],
)
def test_a_label_begins_with_the_method_s_name_and_states_of_before_fit(method: str, build: Any) -> None:
    plan = build(ad.Dataset.range(9)).plan
    check_label(plan, [method])
    assert str(plan.identity).startswith({"snapshot": "cache("}.get(method, "buckets("))


ELSEWHERE = {
    **dict.fromkeys(
        ("from_http_stream", "from_kafka", "from_nats", "from_redis_stream", "from_websocket"), "tests/web"
    ),
    **dict.fromkeys(("from_channel", "load"), "tests/laws/files.py"),
    "prefetch_to_device": "tests/laws/test_devices.py",
}
"""Methods that other modules draw."""


def test_every_method_is_drawn_by_itself(built: Built) -> None:
    missing = {*building_methods()} - ELSEWHERE.keys()
    sources = [*dict.fromkeys(SOURCES), *[partial(from_files, kinds=[kind]) for kind in (*READERS, *OTHERS)]]
    drawn = [*STEPS, *[lambda draw, _, source=source: source(draw) for source in sources]]
    for step in drawn * 10:
        missing -= methods_of(step, built)
        if not missing:
            return
    raise AssertionError(
        f"no law tries {sorted(missing)}: write a function that draws it in tests/laws/pipelines.py, and put it into "
        "one of the tuples there, such as ORDERED_STEPS, or SOURCES for a source"
    )


def methods_of(step: Step, built: Built) -> set[str]:
    """The methods that some drawn pipelines of a step are built by."""
    built.datasets.clear()

    @settings(max_examples=3, derandomize=False, phases=[Phase.generate], database=None)
    @given(data=st.data())
    def build(data: st.DataObject) -> None:
        step(data.draw, data.draw(numbers())).build()

    build()
    return {method for method, _ in built.datasets}
