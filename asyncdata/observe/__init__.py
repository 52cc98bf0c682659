"""Observation of running pipelines: traces, pictures of the plan, metrics, a live dashboard.

State belongs to the thread that serves or draws, unless a class says otherwise. Times are in seconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from asyncdata.lazy_names import importer

if TYPE_CHECKING:
    from asyncdata.observe.dashboard_server import Dashboard, dashboard
    from asyncdata.observe.explanation import Explanation
    from asyncdata.observe.metrics import OpenTelemetryMetrics, PrometheusCollector
    from asyncdata.observe.report_file import report

__all__ = ("Dashboard", "Explanation", "OpenTelemetryMetrics", "PrometheusCollector", "dashboard", "report")

if not TYPE_CHECKING:  # each step keeps statistics, which few programs show
    __getattr__, __dir__ = importer(
        __name__,
        {
            "dashboard_server": ("Dashboard", "dashboard"),
            "explanation": ("Explanation",),
            "metrics": ("OpenTelemetryMetrics", "PrometheusCollector"),
            "report_file": ("report",),
        },
    )
