"""Observation of running pipelines: statistics, bottleneck, progress, traces, a live dashboard, metrics."""

from __future__ import annotations

from asyncdata.observe.dashboard_server import Dashboard, dashboard
from asyncdata.observe.explanation import Explanation
from asyncdata.observe.metrics import OpenTelemetryMetrics, PrometheusCollector

__all__ = ("Dashboard", "Explanation", "OpenTelemetryMetrics", "PrometheusCollector", "dashboard")
