"""Shares of a dataset in several processes: as many batches in each, and states that go on in another number."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncdata as ad
from asyncdata import PlanError, ResumeError
from asyncdata.checkpoint import inspect_state, load, merge_states, save
from asyncdata.runtime.resharding import Resharding, Share
from asyncdata.storage import write_atomically
from tests.marks import first_by_default
from tests.reference import Boom, Failed
from tests.running import taken
from tests.states import edited

Build = Callable[[int, int], ad.Dataset[Any]]


def words(number: int) -> ad.Dataset[str]:
    return ad.Dataset.from_iterable([f"{number}/{word}" for word in range(number % 4)])


def pipeline(count: int, index: int) -> ad.Dataset[Any]:
    """Filter, flat_map and batch, of which each makes another number of what it gets."""
    ds = ad.Dataset.range(600).shuffle(seed=3).shard(count, index)
    return ds.filter(lambda x: x % 5 != 0).flat_map(words).shuffle(16, seed=1).batch(3)


EVERYTHING = sorted(f"{x}/{word}" for x in range(600) if x % 5 for word in range(x % 4))


def one_process(folder: Path, generation: int, count: int, index: int, steps: int) -> None:
    """Read some batches, all if `steps` is negative, and leave what was read and the state in files."""
    state = load(folder / f"{generation}.json") if generation else None
    with pipeline(count, index).iterate(state=state) as batches:
        found = [batch.tolist() for batch in islice(batches, None if steps < 0 else steps)]
        save(folder / f"{generation}-{index}.json", batches.state_dict())
    (folder / f"{generation}-{index}.read").write_text(json.dumps(found), encoding="utf-8")


@pytest.mark.slow
def test_four_processes_then_three_then_five_lose_and_repeat_nothing(tmp_path: Path) -> None:
    """Each a real process, and each stops at another step."""
    context = multiprocessing.get_context("spawn")
    for generation, steps in enumerate([[17, 3, 25, 9], [11, 30, 0], [-1] * 5]):
        processes = [
            context.Process(target=one_process, args=(tmp_path, generation, len(steps), index, count))
            for index, count in enumerate(steps)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
            assert process.exitcode == 0
        states = [load(tmp_path / f"{generation}-{index}.json") for index in range(len(steps))]
        save(tmp_path / f"{generation + 1}.json", merge_states(states))
    batches = [batch for path in tmp_path.glob("*.read") for batch in json.loads(path.read_text(encoding="utf-8"))]
    assert sorted(word for batch in batches for word in batch) == EVERYTHING


def states_of(build: Build, steps: list[int], state: Any = None) -> tuple[list[Any], list[dict[str, Any]]]:
    """Have each process read some elements, and return them and the states."""
    found: list[Any] = []
    states: list[dict[str, Any]] = []
    for index, count in enumerate(steps):
        with build(len(steps), index).iterate(state=state) as elements:
            found += islice(elements, count)
            states.append(elements.state_dict())
    return found, states


def begun(count: int, index: int) -> ad.Dataset[Any]:
    """Words of numbers that come in no promised order."""
    numbers = ad.Dataset.range(8).shard(count, index).map(lambda x: 4 * x + 3, 1, deterministic=False)
    return numbers.flat_map(words)


@pytest.mark.parametrize("steps", [[1, 1], [2, 1, 1]])
def test_what_several_processes_had_begun_goes_on_where_it_was_however_often_it_is_left(steps: list[int]) -> None:
    """A process that goes on for all of them has begun several numbers, and tells where it is in each."""
    found, states = states_of(begun, steps)
    for _ in range(6):
        more, states = states_of(begun, [1], merge_states(states))
        found += more
    rest, _ = states_of(begun, [MANY], merge_states(states))
    assert sorted(found + rest) == sorted(f"{4 * x + 3}/{word}" for x in range(8) for word in range(3))


MANY = 1_000_000


@pytest.mark.parametrize(
    "transform",
    [
        lambda ds: ds.interleave(lambda x: ad.Dataset.range(x * 10, x * 10 + 5), cycle_length=3),
        lambda ds: ds.interleave(
            lambda x: ad.Dataset.range(x * 10, x * 10 + 5), cycle_length=3, num_parallel_calls=2, deterministic=False
        ),
        lambda ds: ds.flat_map(lambda x: ad.Dataset.range(x * 10, x * 10 + 5)),
        lambda ds: ds.shuffle(5, seed=1).repeat(3),
        lambda ds: ds.repeat(3).shuffle(5, seed=1),
        lambda ds: ds.map(abs, num_parallel_calls=3, deterministic=False),
        lambda ds: ds.batch(4).unbatch(),
        lambda ds: ds.batch(3).rebatch(4).unbatch(),
        lambda ds: ds.prefetch(3),
        pytest.param(lambda ds: ds.prefetch_to_device("cpu"), marks=pytest.mark.torch),
        lambda ds: ds.map(lambda x: [x]).bucket_by_sequence_length(len, [2], [3, 3]).unbatch().map(lambda x: x[0]),
    ],
    ids=[
        *("interleave", "unordered", "flat_map", "shuffle_repeat", "repeat_shuffle", "map", "batch", "rebatch"),
        *("prefetch", "device", "buckets"),
    ],
)
@pytest.mark.parametrize("shares", [(1, 3, 2), (4, 1, 1), (2, 2, 2)], ids=str)
def test_what_follows_a_shard_is_dealt_anew(transform: Any, shares: tuple[int, ...]) -> None:
    def build(count: int, index: int) -> ad.Dataset[Any]:
        return transform(ad.Dataset.range(40).shard(count, index))

    state, found = None, list[Any]()
    for generation, count in enumerate(shares):
        steps = [MANY] * count if generation == len(shares) - 1 else [7 * index + 2 for index in range(count)]
        some, states = states_of(build, steps, state)
        found += some
        state = merge_states(states)
        assert state["delivered"] == len(found)
    assert Counter(map(int, found)) == Counter(map(int, build(1, 0)))


def test_records_of_files_are_dealt_by_file(tmp_path: Path) -> None:
    for number in range(7):
        with ad.TFRecordWriter(tmp_path / f"{number}.tfrecord") as writer:
            for record in range(10 + number):
                writer.write(f"{number}-{record}".encode())

    def build(count: int, index: int) -> ad.Dataset[Any]:
        files = ad.Dataset.list_files(f"{tmp_path}/*.tfrecord", seed=5).shard(count, index)
        return files.interleave(ad.TFRecordDataset, cycle_length=2).map(bytes.decode, num_parallel_calls=2)

    found, states = states_of(build, [20, 5, 0])
    more, states = states_of(build, [11, 30], merge_states(states))
    rest, _ = states_of(build, [MANY] * 4, merge_states(states))
    assert sorted(found + more + rest) == sorted(f"{n}-{r}" for n in range(7) for r in range(10 + n))


def test_processes_that_are_at_the_end_have_nothing_to_deal() -> None:
    def build(count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.range(10).shard(count, index)

    _, states = states_of(build, [MANY, MANY, MANY])
    assert states_of(build, [MANY] * 2, merge_states(states))[0] == []


def test_one_that_is_at_the_end_and_one_that_has_not_begun() -> None:
    def build(count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.range(10).shard(count, index)

    found, states = states_of(build, [MANY, 0])
    rest, states = states_of(build, [1, 1, 0], merge_states(states))
    last, _ = states_of(build, [MANY] * 2, merge_states(states))
    assert (found, rest, sorted(last)) == ([0, 2, 4, 6, 8], [1, 3], [5, 7, 9])


@pytest.mark.parametrize("stop", range(45))
def test_what_more_buffers_held_than_one_has_room_for_waits_for_the_epoch_before(stop: int) -> None:
    """Two processes were in the second epoch with a buffer each, two had not begun the first; one goes on twice."""

    def build(count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.range(30).shard(count, index).shuffle(7, seed=0).repeat(2)

    found, states = states_of(build, [0, 0, 8, 8])
    more, states = states_of(build, [stop], merge_states(states))
    rest, _ = states_of(build, [MANY], merge_states(states))
    assert sorted(found + more + rest) == sorted([*range(30)] * 2)


async def pair(number: int) -> Any:
    return np.array([number, number + 100])


@pytest.mark.parametrize("stops", [(1, 1), (1, 3, 0, 2), (3, 0, 1, 1)], ids=str)
def test_what_was_in_flight_without_an_order_is_dealt_again_and_again(stops: tuple[int, ...]) -> None:
    def build(count: int, index: int) -> ad.Dataset[int]:
        ds = ad.Dataset.range(5).shard(count, index)
        return ds.map(pair, executor=ad.AUTOTUNE, deterministic=False).unbatch()

    state, found = None, list[Any]()
    for stop in (*stops, MANY):
        some, states = states_of(build, [stop], state)
        found += some
        state = merge_states(states)
    assert sorted(map(int, found)) == [*range(5), *range(100, 105)]


def test_what_is_dealt_is_dealt_evenly() -> None:
    def build(count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.range(1000).shard(count, index).shuffle(10, seed=0)

    _, states = states_of(build, [100, 20, 3, 60])
    merged = merge_states(states)
    sizes = [len(list(build(3, index).iterate(state=merged))) for index in range(3)]
    assert sum(sizes) == 1000 - 183
    assert max(sizes) - min(sizes) <= 1


def test_a_merged_state_stays_small() -> None:
    def build(count: int, index: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(10**9).shuffle(seed=1).shard(count, index).map(abs, num_parallel_calls=4).batch(32)

    state: Any = None
    for count in (4, 3, 5, 2):
        _, states = states_of(build, [9 * index + 1 for index in range(count)], state)
        state = merge_states(states)
        assert len(json.dumps(state)) < 400 + 200 * count


def sharded(*transforms: Callable[[ad.Dataset[Any]], ad.Dataset[Any]]) -> Build:
    def build(count: int, index: int) -> ad.Dataset[Any]:
        ds: ad.Dataset[Any] = ad.Dataset.range(20).shard(count, index)
        for transform in transforms:
            ds = transform(ds)
        return ds

    return build


@pytest.mark.parametrize(
    "transform",
    [
        lambda ds: ds.take(5),
        lambda ds: ds.skip(1),
        lambda ds: ds.enumerate(),
        lambda ds: ds.cache(),
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ad.Dataset.zip(ds, ad.Dataset.range(20)),
        lambda ds: ds.concatenate(ad.Dataset.range(20)),
        lambda ds: ds.filter(lambda x: True).assert_cardinality(10),
        lambda ds: ds.pad_to_cardinality(20),
        lambda ds: ds.unique(),
        lambda ds: ds.take_while(lambda x: x < 20),
        lambda ds: ds.scan(0, lambda total, x: (total + x, total)),
        lambda ds: ds.window(2).flat_map(lambda window: window),
        lambda ds: ds.batch(1).rebatch([1, 2]),
        lambda ds: ds.rejection_resample(lambda x: x % 2, [0.5, 0.5], seed=1),
        lambda ds: ad.Dataset.choose_from_datasets([ds], ad.Dataset.range(1).repeat()),
        lambda ds: ds.group_by_reducer(abs, ad.Reducer(abs, max, abs)),
    ],
)
def test_what_counts_or_keeps_one_share_says_that_it_cannot_be_dealt(transform: Any) -> None:
    _, states = states_of(sharded(transform), [2, 1])
    with pytest.raises(ResumeError, match=r"after shard\(\) counts or holds the elements of one share"):
        sharded(transform)(3, 0).iterate(state=merge_states(states))


def test_the_table_of_what_may_follow_a_shard_has_all_transformations() -> None:
    page = (Path(__file__).parents[2] / "docs" / "resume.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| after `shard` |")
    rows = table[: table.index("- `distinct` after `shard`")]
    named = {*re.findall(r"[a-z_]+", " ".join(re.findall(r"`([^`]+)`", rows)))}
    methods = {name for part in ad.Dataset.__mro__[1:3] for name in vars(part) if not name.startswith("_")}
    assert methods - named == {"apply", "options", "with_options"}


def corpora(cost: Any = None, **more: Any) -> Build:
    """A mixture of datasets that are each shared out, one of which is such a mixture itself."""

    def build(count: int, index: int) -> ad.Dataset[Any]:
        web, code, books = [ad.Dataset.range(first, first + 40).shuffle(seed=2).shard(count, index) for first in FIRST]
        code = ad.Dataset.sample_from_datasets([code, books], [0.8, 0.2], seed=5)
        return ad.Dataset.sample_from_datasets({"web": web, "code": code}, seed=4, cost=cost, **more)

    return build


FIRST = (0, 100, 200)


@pytest.mark.parametrize("cost", [None, lambda x: 1 + x % 3])
def test_a_mixture_of_shared_datasets_goes_on_in_any_number_of_processes_with_its_books(cost: Any) -> None:
    build, found, state = corpora(cost), list[int](), None
    for stops in ([9, 3, 0], [1, 12], [MANY, 2, 0, 7], [MANY] * 3):
        some, states = states_of(build, stops, state)
        found += some
        state = merge_states(states)
        if all(position != "end" for position in state["position"]):
            given = np.sum([position["given"] for position in state["position"] if position], axis=0)
            assert given.tolist() == [sum(x < 100 for x in found), sum(x >= 100 for x in found)]
    assert sorted(found) == sorted(first + x for first in FIRST for x in range(40))


@pytest.mark.parametrize("kills", first_by_default([6, 20], 1))
def test_ranks_that_are_killed_and_others_that_go_on_with_other_weights_lose_nothing(kills: int) -> None:
    """What a rank had read since the last state is read again by others; weights change on all ranks at a step."""
    chance, build, kept, state = random.Random(7), corpora(), list[int](), None
    for number in range(kills):
        count, weights, states = (3, 2, 4)[number % 3], {"web": chance.random(), "code": 1.0}, list[Any]()
        for index in range(count):
            with build(count, index).iterate(state=state) as elements:
                elements.set_weights(weights)
                kept += taken(elements, chance.randrange(3))
                states.append(json.loads(json.dumps(elements.state_dict())))
                taken(elements, chance.randrange(3))
        state = merge_states(states)
    kept += states_of(build, [MANY] * 3, state)[0]
    assert sorted(kept) == sorted(first + x for first in FIRST for x in range(40))


NAMED = {"web": 1000, "code": 2000, "books": 3000, "math": 4000}


def named_part(name: str, count: int, index: int) -> ad.Dataset[int]:
    return ad.Dataset.range(NAMED[name], NAMED[name] + 150).shuffle(seed=2).shard(count, index)


class Training:
    """Some ranks of a mixture, whose weights, datasets and number change as a seed says."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.cost = self.chance.choice([None, lambda x: 1 + x % 3])
        self.states: list[Any] = [None] * self.chance.randint(1, 3)
        self.found: list[int] = []
        self.seen: set[str] = set()

    def leg(self, names: list[str], most: int) -> None:
        """Read on all ranks, with weights that change on all of them at some elements of each."""
        self.seen |= {*names}
        parts, stops = len(self.states), [self.chance.randrange(most) for _ in range(2)]
        weights = [{name: self.chance.choice([0, 1, 5]) + 0.01 for name in names} for _ in stops]
        for index, state in enumerate(self.states):
            datasets = {name: named_part(name, parts, index) for name in names}
            ds = ad.Dataset.sample_from_datasets(datasets, seed=4, cost=self.cost)
            with ds.iterate(state=state, strict=False) as elements:
                for stop, now in zip(stops, weights, strict=True):
                    self.found += islice(elements, self.chance.randrange(stop + 1))
                    elements.set_weights(now)
                self.found += islice(elements, most)
                self.states[index] = json.loads(json.dumps(elements.state_dict()))


@pytest.mark.parametrize("seed", first_by_default(range(20), 2))
def test_whatever_changes_of_a_mixture_each_element_comes_as_often_as_its_books_say(seed: int) -> None:
    training = Training(seed)
    for _ in range(4):
        training.leg(training.chance.sample([*NAMED], training.chance.randint(1, 4)), 6)
        every = sorted(training.seen, key=lambda _: training.chance.random())
        if training.chance.random() < 0.5:
            training.leg(every, 3)
            training.states = [merge_states(training.states)] * training.chance.randint(1, 3)
            training.leg(every, 3)
    training.leg(sorted(training.seen), MANY)
    assert sorted(training.found) == sorted(NAMED[name] + x for name in training.seen for x in range(150))


@pytest.mark.parametrize("now", [("web",), ("web", "code", "math")])
def test_datasets_and_the_number_of_shares_do_not_change_at_once(now: tuple[str, ...]) -> None:
    def build(names: tuple[str, ...], count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.sample_from_datasets({name: named_part(name, count, index) for name in names}, seed=4)

    _, states = states_of(lambda count, index: build(("web", "code"), count, index), [2, 1])
    with pytest.raises(ResumeError, match="cannot change at once: .* weight 0"):
        build(now, 3, 0).iterate(state=merge_states(states), strict=False)


def rank_to_be_killed(folder: Path, generation: int, count: int, index: int, steps: int) -> None:
    """Set weights, save after each element what came and the state, and be killed before the last one is saved."""
    state = json.loads((folder / f"{generation}.json").read_text()) if generation else None
    with corpora()(count, index).iterate(state=state) as elements:
        elements.set_weights({"web": 1 + generation % 3, "code": 1.0})
        kept: list[int] = []
        for _ in range(steps):
            saved = json.dumps({"state": elements.state_dict(), "kept": kept})
            write_atomically(folder / f"{generation}-{index}.json", saved.encode(), durable=False)
            kept += map(int, taken(elements, 1))
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_twenty_generations_of_ranks_that_are_killed_while_weights_change_lose_and_repeat_nothing(
    tmp_path: Path,
) -> None:
    context, chance, kept = multiprocessing.get_context("forkserver"), random.Random(3), list[int]()
    context.set_forkserver_preload([__name__])  # a rank starts in milliseconds
    for generation in range(20):
        count, told = (3, 2, 4)[generation % 3], list[Any]()
        ranks = [
            context.Process(target=rank_to_be_killed, args=(tmp_path, generation, count, index, chance.randint(1, 3)))
            for index in range(count)
        ]
        for rank in ranks:
            rank.start()
        for index, rank in enumerate(ranks):
            rank.join()
            assert rank.exitcode == -signal.SIGKILL
            told.append(json.loads((tmp_path / f"{generation}-{index}.json").read_text()))
        kept += [x for one in told for x in one["kept"]]
        save(tmp_path / f"{generation + 1}.json", state := merge_states([one["state"] for one in told]))
    assert 30 < len(kept) < 120
    kept += states_of(corpora(), [MANY] * 4, state)[0]
    assert sorted(kept) == sorted(first + x for first in FIRST for x in range(40))


def test_a_mixture_that_cannot_be_divided_says_why() -> None:
    def with_all_of_one(count: int, index: int) -> ad.Dataset[int]:
        shared = ad.Dataset.range(20).shard(count, index)
        return ad.Dataset.sample_from_datasets({"shared": shared, "whole": ad.Dataset.range(20)}, seed=1)

    for build, stops, message in (
        (with_all_of_one, [2, 1], "every share reads all of its dataset 'whole', which has no shard"),
        (corpora(stop_on_empty_dataset=True), [MANY, 1], "one share has ended because a dataset of it has"),
        (lambda count, index: corpora()(count, index).shard(2, 0), [2, 1], "whose shares are fixed"),
    ):
        _, states = states_of(build, stops)
        with pytest.raises(ResumeError, match=message):
            build(3, 0).iterate(state=merge_states(states))


@pytest.mark.parametrize("most", [None, 1000])
def test_after_a_dealing_all_know_the_keys_that_any_has_had(most: int | None) -> None:
    """Of each share the first of each key comes; nobody gives again what somebody had given when they were dealt."""

    def build(count: int, index: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(400).shard(count, index).distinct(lambda x: x * x % 83, most).batch(2).unbatch()

    before, states = states_of(build, [9, 3, 0])
    found, states = states_of(build, [4, 6], merge_states(states))
    last, _ = states_of(build, [MANY] * 4, merge_states(states))
    keys = [{x * x % 83 for x in some} for some in (before, found, last)]
    assert set.union(*keys) == {x * x % 83 for x in range(400)}
    assert not keys[0] & keys[1]
    assert not (keys[0] | keys[1]) & keys[2]


def test_of_too_many_keys_of_several_shares_the_latest_are_known() -> None:
    def build(count: int, index: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(40).repeat(2).shard(count, index).distinct(max_keys=4)

    _, states = states_of(build, [20, 18])
    assert [*build(1, 0).iterate(state=merge_states(states))][:4] == [37, 39, 0, 1]


def test_states_that_do_not_belong_together_are_refused() -> None:
    _, states = states_of(sharded(), [2, 1, 3])
    _, other = states_of(sharded(lambda ds: ds.batch(2)), [1])
    with pytest.raises(ResumeError, match="one state of each share"):
        merge_states(states[:2])
    with pytest.raises(ResumeError, match="one state of each share"):
        merge_states([states[0], states[1], states[1]])
    with pytest.raises(ResumeError, match="plan is"):
        merge_states([*states, *other])
    with pytest.raises(ResumeError, match="got none"):
        merge_states([])
    with pytest.raises(ResumeError, match="merged already"):
        merge_states([merge_states(states)])
    with pytest.raises(ResumeError, match="epoch is 0 in the first and 1 in number 1"):
        merge_states([states[0], edited(states[1], epoch=1), states[2]])
    _, alone = states_of(lambda count, index: ad.Dataset.range(9), [1])
    with pytest.raises(ResumeError, match=r"no shard\(\) at all"):
        merge_states(alone)


def test_processes_that_drew_other_seeds_are_told_to_choose_one() -> None:
    _, states = states_of(lambda count, index: ad.Dataset.range(9).shuffle(3).shard(count, index), [1, 1])
    with pytest.raises(ResumeError, match="seeds is .* give every process the same seed"):
        merge_states(states)


def test_the_state_of_another_share_is_refused() -> None:
    _, states = states_of(sharded(), [2, 1])
    message = r"the state is of shard\(2, 0\), but this pipeline is shard\(2, 1\); to resume .* merge_states"
    with pytest.raises(ResumeError, match=message):
        sharded()(2, 1).iterate(state=states[0])


def test_another_shard_of_the_pipeline_stays_as_it_is() -> None:
    def build(count: int, index: int, part: int = 0) -> ad.Dataset[int]:
        return ad.Dataset.range(40).shard(2, part).shard(count, index)

    _, states = states_of(build, [2, 3])
    rest, _ = states_of(build, [MANY] * 3, merge_states(states))
    assert sorted(rest) == sorted(set(range(0, 40, 2)) - {0, 4, 2, 6, 10})
    with pytest.raises(ResumeError, match="merged over another shard"):
        build(3, 0, 1).iterate(state=merge_states(states))


def test_an_account_of_a_merged_state() -> None:
    _, states = states_of(sharded(), [2, 1])
    assert "shares     2 merged" in inspect_state(merge_states(states))
    assert "shares     1 of 2" in inspect_state(states[1])


# ---------------------------------------------------------------------------------------------------------------------
# shares of one size


@pytest.mark.parametrize("elements", range(14))
@pytest.mark.parametrize("shares", [1, 2, 3, 4])
def test_every_process_has_as_many_batches_if_the_last_elements_are_dropped(elements: int, shares: int) -> None:
    whole = ad.Dataset.range(elements)
    parts = [list(whole.shard(shares, index, drop_remainder=True)) for index in range(shares)]
    assert {len(part) for part in parts} == {elements // shares}
    assert sorted(x for part in parts for x in part) == list(range(elements // shares * shares))
    batches = [whole.shard(shares, index, drop_remainder=True).batch(2) for index in range(shares)]
    assert {len(list(ds)) for ds in batches} == {ds.cardinality() for ds in batches}
    assert len({ds.cardinality() for ds in batches}) == 1


@pytest.mark.parametrize("elements", range(14))
@pytest.mark.parametrize("shares", [1, 2, 3, 4])
def test_every_process_has_as_many_batches_if_the_last_elements_are_made_up_for(elements: int, shares: int) -> None:
    def part(index: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(elements).shard(shares, index, pad_remainder=True)

    rows = [list(part(index)) for index in range(shares)]
    assert {len(row) for row in rows} == {part(0).cardinality()} == {-(-elements // shares)}
    assert sorted(x for row in rows for x, real in row if real) == list(range(elements))
    assert {x for row in rows for x, real in row if not real} <= {elements - 1}


def test_a_mask_tells_padding_in_a_batch() -> None:
    batches = [list(ad.Dataset.range(5).shard(2, index, pad_remainder=True).batch(2)) for index in range(2)]
    assert [[(x.tolist(), mask.tolist()) for x, mask in share] for share in batches] == [
        [([0, 2], [True, True]), ([4], [True])],
        [([1, 3], [True, True]), ([4], [False])],
    ]


def test_a_generator_of_unknown_length_is_shared_out_evenly() -> None:
    def numbers() -> Iterator[int]:
        yield from range(11)

    ds = ad.Dataset.from_generator(numbers)
    assert [list(ds.shard(3, index, drop_remainder=True)) for index in range(3)] == [[0, 3, 6], [1, 4, 7], [2, 5, 8]]


def test_equal_shares_stay_equal_when_they_are_dealt_anew() -> None:
    def build(count: int, index: int) -> ad.Dataset[Any]:
        return ad.Dataset.range(1003).shuffle(seed=1).shard(count, index, drop_remainder=True).batch(4)

    _, states = states_of(build, [9, 9, 9, 9])
    merged = merge_states(states)
    assert {len(list(build(3, index).iterate(state=merged))) for index in range(3)} == {(1003 - 144) // 3 // 4 + 1}


def test_shares_of_one_size_and_no_element_left_out_cannot_be() -> None:
    with pytest.raises(PlanError, match="not both"):
        ad.Dataset.range(3).shard(2, 0, drop_remainder=True, pad_remainder=True)


def test_shares_of_what_has_no_order_are_of_what_has() -> None:
    """Else an element could be in the shares of two processes, and another one in none."""
    ds = ad.Dataset.range(200).map(lambda x: x, num_parallel_calls=8, deterministic=False)
    assert sorted(x for index in range(3) for x in ds.shard(3, index)) == list(range(200))


def test_what_is_dealt_in_several_parts_comes_to_all_alike() -> None:
    hands: list[str] = []
    for number in range(3):
        resharding = Resharding(Share(3, number), (0,))
        hand = [*resharding.own_part("ab"), *resharding.own_part("cd"), *resharding.own_part("ef")]
        assert len(hand) == 2
        hands += hand
    assert sorted(hands) == [*"abcdef"]


def read_on(ds: ad.Dataset[Any], state: Any, most: int = MANY) -> tuple[list[Any], Any]:
    """Read some elements from a state on, failures in their places, and return them and the state after them."""
    with ds.iterate(state=state) as elements:
        return taken(elements, most), json.loads(json.dumps(elements.state_dict()))


EACH = [10 * x + place for x in range(9) for place in range(4)]


@pytest.mark.parametrize("steps", first_by_default([[3, 4, 2, 3], [7]]), ids=str)
@pytest.mark.parametrize(("cycle", "block", "calls"), [(2, 1, None), (2, 1, 2), (3, 2, None)])
@pytest.mark.parametrize("broken", first_by_default([[], [1, 2], [0], [4], [0, 3, 7]], 2), ids=str)
def test_what_was_begun_goes_on_in_its_slot_or_when_its_turn_comes(
    steps: list[int], cycle: int, block: int, calls: int | None, broken: list[int]
) -> None:
    """Four processes have begun more datasets than one that takes them over has slots: it may be left anywhere.

    Some of the datasets cannot be made any more. What was read of them is not taken for what was read of others, and
    the others keep their slots.
    """
    gone: set[int] = set()

    def tens(x: int) -> ad.Dataset[int]:
        if x in gone:
            raise Boom(f"no {x}")
        return ad.Dataset.range(10 * x, 10 * x + 4)

    def build(count: int, index: int) -> ad.Dataset[int]:
        return ad.Dataset.range(9).shard(count, index).interleave(tens, cycle, block, num_parallel_calls=calls)

    found, states = states_of(build, steps)
    merged = merge_states(states)
    gone.update(broken)
    rest, _ = read_on(build(1, 0), merged)
    numbers = [int(x) for x in rest if not isinstance(x, Failed)]
    assert sorted(numbers) == [x for x in EACH if x // 10 not in gone and x not in found]
    assert len(rest) - len(numbers) == len(gone)
    for place in range(len(rest)):
        some, state = read_on(build(1, 0), merged, place)
        assert some + read_on(build(1, 0), state)[0] == rest
