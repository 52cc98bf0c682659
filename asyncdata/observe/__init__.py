"""Observation of running pipelines: statistics, bottleneck, progress, traces, a live dashboard, metrics."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from asyncdata.observe.dashboard_server import Dashboard, dashboard
    from asyncdata.observe.explanation import Explanation
    from asyncdata.observe.metrics import OpenTelemetryMetrics, PrometheusCollector

__all__ = ("Dashboard", "Explanation", "OpenTelemetryMetrics", "PrometheusCollector", "dashboard")

MODULES: Final = {
    "Dashboard": "dashboard_server",
    "Explanation": "explanation",
    "OpenTelemetryMetrics": "metrics",
    "PrometheusCollector": "metrics",
    "dashboard": "dashboard_server",
}
"""Where the names are defined. A module is imported when a name of it is asked for first, as in `asyncdata`."""


def imported(name: str) -> Any:
    """Return a public name, whose module is imported now; from then on it is a name of this package."""
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    value = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    globals()[name] = value
    return value


def public_names() -> list[str]:
    """Return the names that `dir` shows."""
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # to a type checker a name that is not here is an error
    __getattr__, __dir__ = imported, public_names
