"""Metrics as Prometheus scrapes them and OpenTelemetry exports them: the numbers of `stats`."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

import asyncdata as ad


def read(ds: ad.Dataset[Any]) -> ad.DatasetIterator[Any]:
    elements = iter(ds)
    assert len(list(elements)) == 10
    return elements


def pipeline() -> ad.Dataset[Any]:
    return ad.Dataset.zip(ad.Dataset.range(40), ad.Dataset.range(40)).batch(4)


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("prometheus_client.core", lambda: ad.observe.PrometheusCollector()),
        ("opentelemetry.metrics", lambda: ad.observe.OpenTelemetryMetrics()),
    ],
)
def test_the_extra_is_named(module: str, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ad.MissingDependencyError, match=r"pip install 'asyncdata\[metrics\]'"):
        make()


@pytest.mark.dashboard
def test_prometheus_reads_what_stats_tell() -> None:
    prometheus = pytest.importorskip("prometheus_client")
    registry = prometheus.CollectorRegistry()
    elements = read(pipeline())
    collector = ad.observe.PrometheusCollector(train=elements)
    registry.register(collector)
    stats = elements.stats()
    assert prometheus.generate_latest(registry).startswith(b"# HELP asyncdata_elements_total ")
    assert registry.get_sample_value("asyncdata_elements_total", {"pipeline": "train"}) == 10
    assert registry.get_sample_value("asyncdata_samples_per_element", {"pipeline": "train"}) == stats.batched == 4
    assert registry.get_sample_value("asyncdata_waiting_seconds_total", {"pipeline": "train"}) == stats.waiting_seconds
    for place, step in enumerate(stats.steps):
        labels = {"pipeline": "train", "step": step.step, "place": str(place)}
        assert registry.get_sample_value("asyncdata_step_elements_total", labels) == step.items
        assert registry.get_sample_value("asyncdata_step_queued", labels) == step.queued
    again = iter(pipeline())
    next(again)
    collector.watch("train", again)
    collector.watch("test", iter(ad.Dataset.range(3)))
    assert registry.get_sample_value("asyncdata_elements_total", {"pipeline": "train"}) == 1
    assert registry.get_sample_value("asyncdata_running", {"pipeline": "train"}) == 1
    assert registry.get_sample_value("asyncdata_running", {"pipeline": "test"}) == 0
    again.close()
    assert registry.get_sample_value("asyncdata_running", {"pipeline": "train"}) == 0


@pytest.mark.dashboard
def test_opentelemetry_exports_what_stats_tell() -> None:
    export: Any = pytest.importorskip("opentelemetry.sdk.metrics.export")
    sdk: Any = pytest.importorskip("opentelemetry.sdk.metrics")
    reader = export.InMemoryMetricReader()
    provider = sdk.MeterProvider([reader])
    elements = read(pipeline())
    ad.observe.OpenTelemetryMetrics(provider.get_meter("asyncdata"), train=elements)
    found: dict[tuple[str, str], float] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its own
        for resource in reader.get_metrics_data().resource_metrics:
            for scope in resource.scope_metrics:
                for metric in scope.metrics:
                    for point in metric.data.data_points:
                        assert point.attributes["pipeline"] == "train"
                        found[metric.name, point.attributes.get("place", "")] = point.value
        provider.shutdown()
    assert found["asyncdata.elements", ""] == 10
    assert [found["asyncdata.step_elements", str(place)] for place in range(5)] == [
        step.items for step in elements.stats().steps
    ]
