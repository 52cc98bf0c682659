"""Statistics as metrics of Prometheus and OpenTelemetry, read when they are requested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from asyncdata.observe.monitored import LatestStatistics, Monitored, monitor_of
from asyncdata.statistics.statistics import Statistics, StepStatistics
from asyncdata.system.optional_packages import require

__all__ = ("OpenTelemetryMetrics", "PrometheusCollector")

EXTRA: Final = "'asyncdata[metrics]'"


class Metric(NamedTuple):
    """A number that is exported; `counts` if it only grows while a pipeline runs."""

    name: str
    counts: bool
    unit: str
    what: str
    attribute: str
    """The attribute of `Statistics` or, below, of `StepStatistics`; its value may be `None`."""

    def value(self, of: Statistics | StepStatistics) -> float | None:
        """Return the number; `None` if there is none."""
        value: float | None = getattr(of, self.attribute)
        return None if value is None else float(value)


OF_PIPELINES: Final = (
    Metric("elements", True, "", "Elements that the consumer was given.", "elements"),
    Metric("samples_per_element", False, "", "About how many samples are in an element, 1 without batches.", "batched"),
    Metric("elapsed_seconds", True, "s", "Seconds since the first was asked for.", "seconds"),
    Metric("waiting_seconds", True, "s", "Seconds that the consumer waited.", "waiting_seconds"),
    Metric("running", False, "", "1 while the pipeline runs, else 0.", "running"),
    Metric("stalled_seconds", False, "s", "How long the consumer has been waiting, 0 if it is not.", "waits_seconds"),
    Metric("buffer_bytes", False, "By", "What buffers that tune themselves may hold now.", "held_bytes"),
    Metric("buffer_limit_bytes", False, "By", "What they may hold at most.", "budget_bytes"),
)

OF_STEPS: Final = (
    Metric("step_elements", True, "", "Elements that the step has given.", "items"),
    Metric("step_failed", True, "", "Those that failed there.", "failed"),
    Metric("step_retries", True, "", "Calls and requests that were made again.", "retries"),
    Metric("step_read_bytes", True, "By", "Bytes of files that the source has read.", "read_bytes"),
    Metric("step_bytes", False, "By", "What its elements occupied, about.", "bytes"),
    Metric("step_own_seconds", True, "s", "Seconds on the pipeline's thread.", "own_seconds"),
    Metric("step_worker_seconds", True, "s", "Seconds of its workers.", "worker_seconds"),
    Metric("step_input_seconds", True, "s", "Seconds that it waited for input.", "input_seconds"),
    Metric("step_room_seconds", True, "s", "Seconds that it waited for room.", "room_seconds"),
    Metric("step_workers", False, "", "Workers that it has.", "workers"),
    Metric("step_queued", False, "", "Elements in its buffer or in flight.", "queued"),
    Metric("step_queue_size", False, "", "How many its buffer may hold.", "queue_size"),
)


class Pipelines:
    """The pipelines whose metrics are exported, by name. Another thread may scrape them: `watch` replaces the dict."""

    def __init__(self, iterators: dict[str, Monitored]) -> None:
        self._pipelines: dict[str, LatestStatistics] = {}
        for name, iterator in iterators.items():
            self.watch(name, iterator)

    def watch(self, name: str, iterator: Monitored) -> None:
        """Export an iterator under a name, in place of an earlier one, for example in the next epoch.

        >>> import asyncdata as ad
        >>> numbers = iter(ad.Dataset.range(3))
        >>> collector.watch("train", numbers)  # doctest: +SKIP
        """
        self._pipelines = {**self._pipelines, name: LatestStatistics(monitor_of("watch", iterator))}

    def _look(self) -> Iterator[tuple[str, Statistics]]:
        for name, pipeline in self._pipelines.items():
            yield name, pipeline.look()


def labelled_values(metric: Metric, stats: Statistics) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the values of a metric with their labels: one for a pipeline, or one for each of its steps."""
    if metric in OF_PIPELINES:
        yield {}, metric.value(stats) or 0.0
        return
    for place, step in enumerate(stats.steps):
        value = metric.value(step)
        if value is not None:
            yield {"step": step.step, "place": str(place)}, value


class PrometheusCollector(Pipelines):
    """A collector for prometheus_client: each scrape reads the statistics of the pipelines.

    Metrics are `asyncdata_elements_total`, `asyncdata_waiting_seconds_total` and others with the label `pipeline`, and
    `asyncdata_step_elements_total` and others with `step` and its `place` too. It does not keep an iterator alive.
    Needs the extra `metrics`.

    >>> import asyncdata as ad
    >>> from prometheus_client import REGISTRY  # doctest: +SKIP
    >>> batches = iter(ad.Dataset.range(100).batch(10))
    >>> REGISTRY.register(ad.observe.PrometheusCollector(train=batches))  # doctest: +SKIP
    """

    def __init__(self, **iterators: Monitored) -> None:
        self._families = require("prometheus_client.core", "PrometheusCollector", EXTRA)
        super().__init__(iterators)

    def describe(self) -> Iterable[Any]:
        """Return nothing: then a registry does not collect when this is registered."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield the metrics as they are now; a registry calls this."""
        seen = [*self._look()]
        for metric in (*OF_PIPELINES, *OF_STEPS):
            labels = ["pipeline"] if metric in OF_PIPELINES else ["pipeline", "step", "place"]
            kind = self._families.CounterMetricFamily if metric.counts else self._families.GaugeMetricFamily
            family = kind(f"asyncdata_{metric.name}", metric.what, labels=labels)
            for name, stats in seen:
                for label, value in labelled_values(metric, stats):
                    family.add_metric([name, *label.values()], value)
            yield family


class OpenTelemetryMetrics(Pipelines):
    """Observable instruments of OpenTelemetry: each export reads the statistics of the pipelines.

    Names are those of `PrometheusCollector`, written like `asyncdata.step_elements`; attributes are `pipeline`, `step`
    and `place`. `meter` belongs to a `MeterProvider`, by default to the global one. Instruments exist as long as their
    provider, so make only one of these, and `watch` later iterators. Needs the extra `metrics`.

    >>> import asyncdata as ad
    >>> batches = iter(ad.Dataset.range(100).batch(10))
    >>> metrics = ad.observe.OpenTelemetryMetrics(train=batches)  # doctest: +SKIP
    """

    def __init__(self, meter: Any = None, **iterators: Monitored) -> None:
        api = require("opentelemetry.metrics", "OpenTelemetryMetrics", EXTRA)
        super().__init__(iterators)
        self._observation = api.Observation
        meter = meter or api.get_meter("asyncdata")
        for metric in (*OF_PIPELINES, *OF_STEPS):
            make = meter.create_observable_counter if metric.counts else meter.create_observable_gauge
            make(f"asyncdata.{metric.name}", [partial(self._observe, metric)], metric.unit, metric.what)

    def _observe(self, metric: Metric, _: Any) -> Iterator[Any]:
        for name, stats in self._look():
            for label, value in labelled_values(metric, stats):
                yield self._observation(value, {"pipeline": name, **label})
