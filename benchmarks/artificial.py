"""The guide's artificial datasets and functions, once for asyncdata and once for tf.data."""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from limits import EPOCH_PAUSE, MAP, MEMORY, OPEN, READ, STEP, THINK

import asyncdata as ad

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Side", "asyncdata_side", "tensorflow_side")


@dataclass(frozen=True)
class Side:
    """One library under the guide's code: what differs between the two when the import is changed."""

    name: str
    dataset: Any
    """`Dataset`, the class that is subclassed and has `range`."""
    spec: Any
    """`TensorSpec`."""
    text: Any
    """The dtype of strings."""
    autotune: int
    concat: Callable[..., Any]
    tile: Callable[..., Any]
    eagerly: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Makes a Python function that sleeps and returns its arguments' like fit for `map`."""
    pause: Callable[[float], None]
    """Sleeps inside a mapped function."""
    as_written: Callable[[Any], Any]
    """The same dataset with nothing appended or fused by the optimiser."""

    def artificial(self, num_samples: int = 3) -> Any:
        """The guide's `ArtificialDataset`: open a file, then read its samples."""
        base, signature = self.dataset, self.spec(shape=(1,), dtype=np.int64)

        class ArtificialDataset(base):
            def _generator(num_samples: int) -> Any:  # noqa: N805 - as the guide has it
                time.sleep(OPEN)
                for sample in range(num_samples):
                    time.sleep(READ)
                    yield (sample,)

            def __new__(cls, num_samples: int = 3) -> Any:
                return base.from_generator(cls._generator, output_signature=signature, args=(num_samples,))

        return ArtificialDataset(num_samples)

    def mapped(self, sample: Any) -> Any:
        """The guide's `mapped_function`: some hard pre-processing."""
        self.pause(MAP)
        return sample

    def time_measured(self) -> Callable[[int], Any]:
        """The guide's `TimeMeasuredDataset`, with counters of its own: samples are (steps, times, values)."""
        base, spec = self.dataset, self.spec
        signature = (spec((2, 1), self.text), spec((2, 2), np.float32), spec((2, 3), np.int32))
        instances, epochs = itertools.count(), defaultdict(itertools.count)

        class TimeMeasuredDataset(base):
            def _generator(instance: int, num_samples: int) -> Any:  # noqa: N805 - as the guide has it
                epoch = next(epochs[int(instance)])
                opening, opened = slept(OPEN)
                for sample in range(num_samples):
                    times = [(opening, opened), slept(READ)]
                    yield [("Open",), ("Read",)], times, [(instance, epoch, -1), (instance, epoch, sample)]
                    opening, opened = -1.0, -1.0

            def __new__(cls, num_samples: int = 3) -> Any:
                arguments = (next(instances), num_samples)
                return base.from_generator(cls._generator, output_signature=signature, args=arguments)

        return TimeMeasuredDataset

    def noted(self, label: str, cost: float) -> Callable[..., Any]:
        """A map over one sample that sleeps and notes when (the guide's `naive_map`)."""

        def note(steps: Any, times: Any, values: Any) -> Any:
            entry = slept(cost)
            return (
                self.concat((steps, [[label]]), axis=0),
                self.concat((times, [entry]), axis=0),
                self.concat((values, [values[-1]]), axis=0),
            )

        return self.eagerly(note)

    def noted_batch(self, label: str, cost: float) -> Callable[..., Any]:
        """A map over a batch that sleeps for all its samples and notes when (the guide's vectorised maps)."""

        def note(steps: Any, times: Any, values: Any) -> Any:
            samples = steps.shape[0]
            entry = slept(cost * samples)
            return (
                self.concat((steps, self.tile([[[label]]], [samples, 1, 1])), axis=1),
                self.concat((times, self.tile([[entry]], [samples, 1, 1])), axis=1),
                self.concat((values, self.tile([[values[-1][0]]], [samples, 1, 1])), axis=1),
            )

        return self.eagerly(note)

    def naive_pipeline(self, num_samples: int) -> Any:
        """The guide's closing pipeline without any of its advice."""
        files = self.time_measured()
        return (
            self.dataset.range(2)
            .flat_map(lambda _: files(num_samples))
            .map(self.noted("Map", THINK + MEMORY))
            .batch(num_samples, drop_remainder=True)
            .unbatch()
        )

    def optimised_pipeline(self, num_samples: int) -> Any:
        """The guide's closing pipeline with all of its advice."""
        files = self.time_measured()
        return (
            self.dataset.range(2)
            .interleave(lambda _: files(num_samples), num_parallel_calls=self.autotune)
            .batch(num_samples, drop_remainder=True)
            .map(self.noted_batch("1st map", THINK), num_parallel_calls=self.autotune)
            .cache()
            .map(self.noted_batch("2nd map", MEMORY), num_parallel_calls=self.autotune)
            .prefetch(self.autotune)
            .unbatch()
        )

    def train_on_timeline(self, dataset: Any, epochs: int) -> int:
        """The guide's `timelined_benchmark` loop: train, and gather what every step noted."""
        gathered: list[tuple[Any, Any, Any]] = []
        for epoch in range(epochs):
            epoch_start = time.perf_counter()
            for steps, times, values in dataset:
                gathered.append((steps, times, values))
                gathered.append(([["Train"]], [slept(STEP)], [values[-1]]))
            gathered.append(([["Epoch"]], [(epoch_start, time.perf_counter() - epoch_start)], [[-1, epoch, -1]]))
            time.sleep(EPOCH_PAUSE)
        return len(gathered)


def slept(seconds: float) -> tuple[float, float]:
    """Sleep, and say when and for how long."""
    start = time.perf_counter()
    time.sleep(seconds)
    return start, time.perf_counter() - start


def asyncdata_side() -> Side:
    """The guide's code over asyncdata."""
    untouched = ad.Options(optimize=False)
    return Side(
        name="asyncdata",
        dataset=ad.Dataset,
        spec=ad.TensorSpec,
        text=object,
        autotune=ad.AUTOTUNE,
        concat=np.concatenate,
        tile=np.tile,
        eagerly=lambda function: function,
        pause=time.sleep,
        as_written=lambda dataset: dataset.with_options(untouched),
    )


def tensorflow_side(tf: Any) -> Side:
    """The guide's code over tf.data."""

    def eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *leaves: tf.py_function(function, inp=leaves, Tout=tuple(leaf.dtype for leaf in leaves))

    def as_written(dataset: Any) -> Any:
        options = tf.data.Options()
        options.autotune.enabled = False
        options.experimental_optimization.apply_default_optimizations = False
        return dataset.with_options(options)

    return Side(
        name="tf.data",
        dataset=tf.data.Dataset,
        spec=tf.TensorSpec,
        text=tf.string,
        autotune=tf.data.AUTOTUNE,
        concat=tf.concat,
        tile=tf.tile,
        eagerly=eagerly,
        pause=lambda seconds: tf.py_function(lambda: time.sleep(seconds), [], ()),
        as_written=as_written,
    )
