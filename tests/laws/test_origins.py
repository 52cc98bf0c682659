"""An element's origin says where it came from: replayed from it, the element is the same, in any order of asking."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.graph.node import nodes_of
from asyncdata.persistence import run_log_lines
from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.audit import Audit, audit, leaves_of
from asyncdata.recorder.expected import ExpectedTickets
from asyncdata.recorder.log_reader import read_logs
from asyncdata.runtime import column_compression
from tests.laws.pipelines import Pipeline, pipelines
from tests.recorder.rewriting import rewrite, steps_of
from tests.reference import failed, plain
from tests.running import MOST, taken


def read(elements: Any, origins: list[Any] | None = None) -> list[Any]:
    """Everything that is delivered, errors in their places; and the origin of each."""
    found: list[Any] = []
    for _ in range(MOST):
        try:
            found.append(plain(next(elements)))
        except StopIteration:
            break
        except Exception as error:
            found.append(failed(error))
        if origins is not None:
            origins.append(json.loads(json.dumps(elements.origin())))
    return found


@given(pipe=pipelines(), data=st.data())
def test_each_element_replays_equal_from_its_origin(pipe: Pipeline, data: st.DataObject) -> None:
    origins: list[Any] = []
    with pipe.build().iterate() as elements:
        found = read(elements, origins)
    if not found:
        return
    asked = data.draw(st.lists(st.integers(0, len(found) - 1), min_size=1, max_size=12))
    for place in asked:
        assert json.loads(json.dumps(located := pipe.build().locate(origins[place]))) == located
    with pipe.build().replay([origins[place] for place in asked]) as again:
        assert read(again) == [found[place] for place in asked]


Leg: TypeAlias = tuple[int, int]
"""How many elements a run reads before its last state, and how many after it."""


def legs_of(ds: Callable[[], ad.Dataset[Any]], legs: list[Leg], epoch: int | None = None) -> None:
    """Read to the end in several runs, each of which loses some elements after its last state."""
    state = None
    for kept, lost in [*legs, (MOST, 0)]:
        with ds().iterate(state=state, epoch=epoch if state is None else None) as elements:
            taken(elements, kept)
            state = json.loads(json.dumps(elements.state_dict()))
            taken(elements, lost)


def shares(pipe: Pipeline, ranks: int, log: Path) -> list[Callable[[], ad.Dataset[Any]]]:
    """What builds the share of each rank, which is recorded."""
    options = ad.Options(record=log)
    return [
        lambda index=index: pipe.build().shard(ranks, index).with_options(options)  # type: ignore[misc]
        for index in range(ranks)
    ]


def alone(pipe: Pipeline, folder: str) -> Callable[[], ad.Dataset[Any]]:
    return lambda: pipe.build().with_options(ad.Options(record=f"{folder}/run.jsonl"))


LEGS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=2)


@settings(max_examples=settings().max_examples // 2)
@given(
    pipe=pipelines().filter(lambda pipe: pipe.ordered and pipe.build().plan.in_order),
    legs=st.lists(LEGS, min_size=1, max_size=2),
    ranks=st.integers(1, 2),
    data=st.data(),
)
def test_from_the_state_before_any_step_of_a_log_the_rest_comes(
    pipe: Pipeline, legs: list[list[Leg]], ranks: int, data: st.DataObject
) -> None:
    ranks = 1 if pipe.build().plan.shared else ranks
    with tempfile.TemporaryDirectory() as folder, worth(data.draw(st.sampled_from([1, 256]))):
        for ds in shares(pipe, ranks, Path(folder) / "run.jsonl") if ranks > 1 else [alone(pipe, folder)]:
            epoch = data.draw(st.integers(0, len(legs) - 1))
            with ds().iterate(epoch=epoch) as elements:
                whole = read(elements)
            for number, some in enumerate(legs):
                legs_of(ds, some, number)
            step = data.draw(st.integers(0, len(whole)))
            with ds().iterate(state=json.loads(json.dumps(ds().state_before(step, epoch=epoch)))) as elements:
                assert read(elements) == whole[step:]


@contextmanager
def worth(places: int) -> Iterator[None]:
    """Let logs say places in orders, and compress tickets, for so few elements."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_log_lines, "WORTH", places)
        patch.setattr(column_compression, "FEWEST", places)
        patch.setattr(column_compression, "WORTH", 0 if places == 1 else 2)
        yield


def audited(ds: ad.Dataset[Any], folder: str) -> Audit:
    """What the logs show, compared with the pipeline."""
    (found,) = audit(read_logs(paths_of([f"{folder}/*.jsonl"])), ExpectedTickets(ds.plan, ds.options()))
    return found


RENAMED = ("cache", "snapshot")
"""Steps that name their elements in another way once they have read them all."""


def audits(pipe: Pipeline) -> bool:
    """Whether an audit can know: the order is fixed, elements have one name, and are not shared out already."""
    plan = pipe.build().plan
    return (
        pipe.ordered
        and plan.in_order
        and not plan.shared
        and not any(node.label().startswith(RENAMED) for node in nodes_of(plan))
    )


@settings(max_examples=settings().max_examples // 2)
@given(
    pipe=pipelines().filter(audits),
    legs=st.lists(LEGS, min_size=1, max_size=3),
    data=st.data(),
)
def test_logs_of_all_ranks_and_restarts_are_the_data_once_and_what_is_wrong_is_found(
    pipe: Pipeline, legs: list[list[Leg]], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder, worth(data.draw(st.sampled_from([1, 256]))):
        log = Path(folder) / "run.jsonl"
        ranks = shares(pipe, len(legs), log)
        for ds, some in zip(ranks, legs, strict=True):
            legs_of(ds, some)
        found = audited(ranks[0](), folder)
        assert found.complete, str(found)
        (path,) = [path for path in Path(folder).iterdir() if path.name in ("run.jsonl", f"run-0-of-{len(legs)}.jsonl")]
        path.unlink()
        legs_of(ranks[0], [])
        steps = steps_of(path)
        places = [place for place, step in enumerate(steps) if len(step) == 2 and [*leaves_of(step[1])]]  # good ones
        if len(places) < 2:
            return
        one, other = data.draw(st.lists(st.sampled_from(places), min_size=2, max_size=2, unique=True))
        assert steps[one][1] != steps[other][1]
        for change in (repeat, lose, swap):
            changed = [[*step] for step in steps]
            change(changed, one, other)
            rewrite(path, changed)
            assert not audited(ranks[0](), folder).complete, change


def repeat(steps: list[Any], one: int, other: int) -> None:
    steps[one][1] = steps[other][1]


def lose(steps: list[Any], one: int, other: int) -> None:
    del steps[one]


def swap(steps: list[Any], one: int, other: int) -> None:
    steps[one][1], steps[other][1] = steps[other][1], steps[one][1]
