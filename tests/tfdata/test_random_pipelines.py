"""Random pipelines through tf.data and asyncdata: the same elements, failures in their places, the same cardinality."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import asyncdata as ad
from tests.running import results

pytestmark = [pytest.mark.tensorflow, pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(600)]

FAILED = "failed"
NUMBER, PAIR, ARRAY = "number", "pair", "array"


class Pipeline(NamedTuple):
    """One pipeline as both build it, and what its elements are."""

    text: str
    theirs: Callable[[Any], Any]
    ours: Callable[[], ad.Dataset[Any]]
    kind: str = NUMBER
    fails: bool = False

    def then(self, text: str, theirs: Callable[[Any, Any], Any], ours: Callable[[Any], Any], kind: str) -> Pipeline:
        """Add a transformation: for them a function of TensorFlow and a dataset."""
        before, mine = self.theirs, self.ours
        return self._replace(
            text=f"{self.text}.{text}",
            theirs=lambda tf: theirs(tf, before(tf)),
            ours=lambda: ours(mine()),
            kind=kind,
        )

    def same(self, text: str, both: Callable[[Any], Any], kind: str | None = None) -> Pipeline:
        """Add a transformation that is written the same way in both."""
        return self.then(text, lambda _, ds: both(ds), both, kind or self.kind)

    def __repr__(self) -> str:
        return self.text


SIZES = st.sampled_from([0, 1, 2, 3, 5, 12, 20])


def source(draw: st.DrawFn) -> Pipeline:
    start, stop, step = draw(st.tuples(st.integers(-3, 3), st.integers(0, 20), st.sampled_from([1, 2, -1])))
    return Pipeline(
        f"range({start}, {stop}, {step})",
        lambda tf: tf.data.Dataset.range(start, stop, step),
        lambda: ad.Dataset.range(start, stop, step),
    )


def map_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    calls = draw(st.sampled_from([None, 1, 3, ad.AUTOTUNE]))
    return pipe.same(f"map(x * 3 - 1, {calls})", lambda ds: ds.map(lambda x: x * 3 - 1, num_parallel_calls=calls))


def fail(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    calls = draw(st.sampled_from([None, 2]))

    def theirs(tf: Any, ds: Any) -> Any:
        def check(x: Any) -> Any:
            with tf.control_dependencies([tf.debugging.assert_none_equal(x % 4, tf.constant(3, tf.int64))]):
                return tf.identity(x)

        return ds.map(check, num_parallel_calls=calls)

    def check(x: int) -> int:
        if x % 4 == 3:
            raise ValueError(x)
        return x

    return pipe.then("fail()", theirs, lambda ds: ds.map(check, num_parallel_calls=calls), NUMBER)._replace(fails=True)


def filter_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    divisor = draw(st.integers(2, 3))
    return pipe.same(f"filter(x % {divisor})", lambda ds: ds.filter(lambda x: x % divisor != 0))


def batch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    return pipe.same(f"batch({size}, {drop})", lambda ds: ds.batch(size, drop), ARRAY)


def some(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    what, count = draw(st.sampled_from(["take", "skip"])), draw(st.sampled_from([-1, 0, 1, 3, 10, 100]))
    return pipe.same(f"{what}({count})", lambda ds: getattr(ds, what)(count))


def shard(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    shards = draw(st.integers(1, 3))
    index = draw(st.integers(0, shards - 1))
    return pipe.same(f"shard({shards}, {index})", lambda ds: ds.shard(shards, index))


def repeat(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    count = draw(st.integers(0, 3))
    return pipe.same(f"repeat({count})", lambda ds: ds.repeat(count))


def concatenate(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    count = draw(SIZES)
    return pipe.then(
        f"concatenate(range({count}))",
        lambda tf, ds: ds.concatenate(tf.data.Dataset.range(count)),
        lambda ds: ds.concatenate(ad.Dataset.range(count)),
        NUMBER,
    )


def zip_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    count = draw(SIZES)
    return pipe.then(
        f"zip(range({count}))",
        lambda tf, ds: tf.data.Dataset.zip((ds, tf.data.Dataset.range(count))),
        lambda ds: ad.Dataset.zip((ds, ad.Dataset.range(count))),
        PAIR,
    )


def enumerate_(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    start = draw(st.integers(0, 3))
    return pipe.same(f"enumerate({start})", lambda ds: ds.enumerate(start), PAIR)


def flat_map(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    most = draw(st.integers(1, 4))
    return pipe.then(
        f"flat_map(range(x % {most}))",
        lambda tf, ds: ds.flat_map(lambda x: tf.data.Dataset.range(x % most)),
        lambda ds: ds.flat_map(lambda x: ad.Dataset.range(x % most)),
        NUMBER,
    )


def interleave(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    cycle, block = draw(st.sampled_from([1, 2, 5])), draw(st.integers(1, 3))
    calls = draw(st.sampled_from([None, 1, cycle]))
    return pipe.then(
        f"interleave(range(x, x + x % 4), {cycle}, {block}, {calls})",
        lambda tf, ds: ds.interleave(lambda x: tf.data.Dataset.range(x, x + x % 4), cycle, block, calls),
        lambda ds: ds.interleave(lambda x: ad.Dataset.range(x, x + x % 4), cycle, block, calls),
        NUMBER,
    )


def hold(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    what = draw(st.sampled_from(["cache", "prefetch", "prefetch(2)"]))
    return pipe.same(what, lambda ds: ds.cache() if what == "cache" else ds.prefetch(2 if "2" in what else ad.AUTOTUNE))


def unbatch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.same("unbatch()", lambda ds: ds.unbatch(), NUMBER)


def map_batch_unbatch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    """What is known of the rows is known of their batch alone."""
    pipe = batch(draw, map_(draw, pipe))
    for step in draw(st.lists(st.sampled_from(ANY), max_size=2)):
        pipe = step(draw, pipe)
    return unbatch(draw, pipe)


def add_up(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.then(
        "map(sum)", lambda tf, ds: ds.map(tf.reduce_sum), lambda ds: ds.map(lambda x: np.sum(x).item()), NUMBER
    )


def scan(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.then(
        "scan(0, (s + x, s - x))",
        lambda tf, ds: ds.scan(tf.constant(0, tf.int64), lambda s, x: (s + x, s - x)),
        lambda ds: ds.scan(0, lambda s, x: (s + x, s - x)),
        NUMBER,
    )


def take_while(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    most = draw(st.integers(1, 30))
    return pipe.same(f"take_while(x < {most})", lambda ds: ds.take_while(lambda x: x < most))


def unique(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.same("unique()", lambda ds: ds.unique())


def shuffle(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.same("shuffle(1)", lambda ds: ds.shuffle(1))


def ignore_errors(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.same("ignore_errors()", lambda ds: ds.ignore_errors())._replace(fails=False)


def window(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, shift, stride = draw(st.integers(1, 4)), draw(st.none() | st.integers(1, 3)), draw(st.integers(1, 2))
    drop = draw(st.booleans())
    return pipe.same(
        f"window({size}, {shift}, {stride}, {drop}).flat_map(batch)",
        lambda ds: ds.window(size, shift, stride, drop).flat_map(lambda w: w.batch(9)),
        ARRAY,
    )


def group(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    keys, size = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    return pipe.same(
        f"group_by_window(x % {keys}, batch({size}))",
        lambda ds: ds.group_by_window(lambda x: x % keys, lambda key, w: w.batch(size), size),
        ARRAY,
    )


def pad(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, drop = draw(st.integers(1, 3)), draw(st.booleans())
    return pipe.same(
        f"padded_batch({size}, {drop}).unbatch()", lambda ds: ds.padded_batch(size, None, None, drop).unbatch()
    )


def rebatch(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    size, drop = draw(st.integers(1, 5)), draw(st.booleans())
    return pipe.same(f"rebatch({size}, {drop})", lambda ds: ds.rebatch(size, drop))


def of_pair(draw: st.DrawFn, pipe: Pipeline) -> Pipeline:
    return pipe.same("map(a * 10 + b)", lambda ds: ds.map(lambda a, b: a * 10 + b), NUMBER)


ANY = (some, shard, repeat, hold)
STEPS = {
    NUMBER: (
        *(*ANY, map_, map_, filter_, batch, batch, concatenate, zip_, enumerate_, flat_map, interleave, fail),
        *(scan, take_while, unique, shuffle, window, group, map_batch_unbatch),
    ),
    PAIR: (*ANY, of_pair, of_pair),
    ARRAY: (*ANY, unbatch, unbatch, rebatch, pad, add_up),
}


AFTER_FAILURES = (map_, filter_, scan, take_while, unique, shuffle, concatenate, ignore_errors)
"""What may follow where elements fail. In tf.data they do not count for `take`, fail what skips them, and take their
neighbours in a batch with them; here they have a place like any other."""


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    pipe = source(draw)
    for _ in range(draw(st.integers(0, 6))):
        pipe = draw(st.sampled_from(AFTER_FAILURES if pipe.fails else STEPS[pipe.kind]))(draw, pipe)
    return pipe


def plain(element: Any) -> Any:
    """An element as both have it."""
    if isinstance(element, tuple):
        return tuple(map(plain, element))
    return np.asarray(element).tolist()


def elements_of_theirs(tf: Any, ds: Any) -> list[Any]:
    found: list[Any] = []
    elements = ds.as_numpy_iterator()
    while True:
        try:
            found.append(plain(next(elements)))
        except StopIteration:
            return found
        except tf.errors.InvalidArgumentError:
            found.append(FAILED)


def elements_of_ours(ds: ad.Dataset[Any]) -> list[Any]:
    return [FAILED if type(x).__name__ == "Failed" else plain(x) for x in results(ds)]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(pipe=pipelines())
def test_random_pipelines_give_what_tensorflow_gives(tf: Any, pipe: Pipeline) -> None:
    unfused = tf.data.Options()  # fused with a shuffle, their repeat(0) fails
    unfused.experimental_optimization.shuffle_and_repeat_fusion = False
    theirs, ours = pipe.theirs(tf).with_options(unfused), pipe.ours()
    found = elements_of_ours(ours)
    assert found == elements_of_theirs(tf, theirs)
    told, mine = int(theirs.cardinality()), ours.cardinality()
    assert mine in (told, len(found)) or (told < 0 and mine == ad.UNKNOWN_CARDINALITY)
