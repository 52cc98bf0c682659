"""What several processes have left is dealt to another number of them: nothing is lost, nothing repeated."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import asyncdata as ad
from asyncdata.checkpoint import merge_states
from tests import reference
from tests.laws import functions, pipelines
from tests.laws.pipelines import ORDERED_STEPS, Pipeline, Step, chains, sources
from tests.laws.test_resume import REWRITTEN, Leg, run
from tests.running import MOST


@dataclass
class Process:
    """Which of how many processes builds a pipeline now."""

    count: int = 1
    index: int = 0


PROCESS = Process()


def share(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """All shares together are everything, in an order that nobody promises."""
    shared = pipe.then("shard(...)", lambda ds: ds.shard(PROCESS.count, PROCESS.index), pipe.meaning)
    return replace(shared, ordered=False)


def numbers_in_batches(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Which elements come together in a batch is not promised; they come out as they went in."""
    size, method = (
        draw(st.integers(1, 5)),
        draw(st.sampled_from(["batch", "padded_batch", "ragged_batch", "list_batch"])),
    )
    together = reference.list_batch if method == "list_batch" else reference.batch
    return pipe.then(
        f"map(number).{method}({size}).unbatch()",
        lambda ds: getattr(ds.map(functions.number), method)(size).unbatch(),
        lambda epoch: reference.unbatch(together(reference.map_(pipe.meaning(epoch), functions.number), size)),
    )


def numbers_by_tokens(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """As above, in batches of about one length."""
    most, fn = draw(pipelines.counts(12, 7, 30, 1)), draw(st.sampled_from(functions.SIZES))
    size, overlong = draw(pipelines.counts(3, 5, 8, 40)), draw(st.sampled_from(["error", "drop", "keep"]))
    return pipe.then(
        f"map(number).bucket_by_token_count({most}, {fn.__name__}, {size}, overlong={overlong!r}).unbatch()",
        lambda ds: ds.map(functions.number).bucket_by_token_count(most, fn, size, overlong=overlong).unbatch(),
        lambda epoch: reference.unbatch(
            reference.bucket_by_token_count(
                reference.map_(pipe.meaning(epoch), functions.number), most, fn, size, overlong
            )
        ),
    )


def tokens(row: Any) -> Any:
    """Return all tokens in a row, without padding."""
    return row["inputs"][row["inputs_segment_ids"] > 0]


def packed_tokens(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """Which sequences come together in a row is not promised, nor where they are cut; their tokens are."""
    length, how = draw(pipelines.counts(8, 5, 12, 1)), draw(st.sampled_from(PACKING))
    return pipe.then(
        f"map(sequence).pack_sequences({length}, {how}).map(tokens).unbatch()",
        lambda ds: ds.map(functions.sequence).pack_sequences(length, **how).map(lambda row: tokens(row)).unbatch(),
        lambda epoch: reference.unbatch(
            reference.map_(
                reference.pack_sequences(
                    reference.map_(pipe.meaning(epoch), functions.sequence), length, **{"open_rows": 64, **how}
                ),
                tokens,
            )
        ),
    )


PACKING: tuple[dict[str, Any], ...] = (
    {"open_rows": 2},
    {"open_rows": 9, "overlong": "truncate"},
    {"open_rows": 1, "overlong": "split"},
    {"strategy": "concat_then_split"},
)

DEALT_STEPS: tuple[Step, ...] = (
    *(pipelines.map_, pipelines.filter_, pipelines.prefetch, pipelines.unbatch, pipelines.shuffle, pipelines.repeat),
    *(
        numbers_in_batches,
        numbers_by_tokens,
        packed_tokens,
        pipelines.rate_limit,
        pipelines.flat_map,
        pipelines.interleave,
        pipelines.ignore_errors,
        pipelines.join,
        pipelines.group_all,
    ),
)
"""What may follow a shard, if the number of shards is to change."""


@st.composite
def shared_pipelines(draw: st.DrawFn) -> Pipeline:
    """A random pipeline that is shared out somewhere."""
    pipe = shared_chain(draw)
    pipe = mixed(draw, pipe) if draw(st.integers(0, 2)) == 0 else pipe
    for _ in range(draw(st.integers(0, 4))):
        if len(pipe.elements()) <= pipelines.MANY:
            pipe = draw(st.sampled_from(DEALT_STEPS))(draw, pipe)
    return pipe


def constant_cost(*_: Any) -> float:
    return 1.5


def mixed(draw: st.DrawFn, pipe: Pipeline, depth: int = 2) -> Pipeline:
    """A mixture of datasets that are all shared out, or of such mixtures."""
    others = [shared_chain(draw) for _ in range(draw(st.integers(1, 2)))]
    others = [mixed(draw, one, depth - 1) if depth > 1 and draw(st.booleans()) else one for one in others]
    if not pipelines.alike(pipe, *others):
        return pipe
    pipes, named, cost = [pipe, *others], draw(st.booleans()), draw(st.sampled_from([None, constant_cost]))
    weights = draw(st.sampled_from([[1.0, 1.0, 1.0], [0.7, 0.1, 0.2]]))[: len(pipes)]

    def build() -> ad.Dataset[Any]:
        names = [f"d{place}" for place in range(len(pipes))]
        mixed: Any = [one.build() for one in pipes]
        given: Any = weights
        if named:
            mixed, given = dict(zip(names, mixed, strict=True)), dict(zip(names, weights, strict=True))
        return ad.Dataset.sample_from_datasets(mixed, given, seed=1, cost=cost)

    return replace(
        pipe,
        text=f"sample_from_datasets({pipes}, {weights}, named={named}, cost={cost})",
        build=build,
        meaning=lambda epoch: [element for one in pipes for element in one.meaning(epoch)],
        counted=all(one.counted for one in pipes),
    )


def shared_chain(draw: st.DrawFn) -> Pipeline:
    before = chains(sources(), (*ORDERED_STEPS, pipelines.repeat, pipelines.flat_map), 3)
    return share(draw, draw(before.filter(lambda pipe: "within=" not in pipe.text)))


def legs(most: int) -> st.SearchStrategy[Leg]:
    far = st.integers(0, most)
    return st.tuples(far, st.booleans(), st.sampled_from(["thread", "current"]), st.sampled_from(REWRITTEN))


@st.composite
def generations(draw: st.DrawFn) -> list[list[Leg]]:
    """How far each process of several generations goes; the processes of the last one go to the end."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=2, max_size=3))
    return [[draw(legs(12)) for _ in range(size)] for size in sizes[:-1]] + [[draw(legs(0)) for _ in range(sizes[-1])]]


def read_in_generations(pipe: Pipeline, generations: list[list[Leg]]) -> list[Any]:
    """Run a pipeline in as many processes as each generation has, merging their states after it."""
    found: list[Any] = []
    state: Any = None
    for number, legs in enumerate(generations):
        states: list[Any] = []
        PROCESS.count = len(legs)
        for PROCESS.index, leg in enumerate(legs):
            whole = (MOST, *leg[1:]) if number == len(generations) - 1 else leg
            elements, told = run(pipe.build(), whole, state)
            found += elements
            states.append(json.loads(json.dumps(told)))
        state = merge_states(states[::-1])
        assert state["delivered"] == len(found)
    return found


@settings(max_examples=settings().max_examples * 5 // 4)
@given(pipe=shared_pipelines(), generations=generations())
def test_any_number_of_processes_goes_on_for_any_other(pipe: Pipeline, generations: list[list[Leg]]) -> None:
    expected, found = pipe.elements(), pipe.comparable(read_in_generations(pipe, generations))
    for lost in filter(reference.is_lost, expected):  # which every share raises
        while found.count(lost) > expected.count(lost):
            found.remove(lost)
    assert found == expected


def test_the_failure_of_a_file_that_each_share_holds_is_raised_once(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with ad.TFRecordWriter(path) as writer:
        for record in (b"a", b"b", b"c", b"d", b"e"):
            writer.write(record)
    path.write_bytes(path.read_bytes()[:-3])

    def build(shares: int, index: int) -> ad.Dataset[Any]:
        return ad.TFRecordDataset([str(path)]).shard(shares, index).shuffle(2, seed=0)

    found, states = [], []
    for index in range(2):
        elements, state = run(build(2, index), (1, False, "thread", ad.Options()), None)
        found += elements
        states.append(state)
    rest, _ = run(build(1, 0), (20, False, "thread", ad.Options()), merge_states(states))
    assert sorted(map(repr, found + rest)) == sorted(
        map(repr, [b"a", b"b", b"c", b"d", reference.Failed("DataLossError")])
    )
