"""Seeing what a running pipeline does: statistics, bottleneck, progress, traces, a live dashboard."""

from __future__ import annotations

from asyncdata.observe.dashboard_server import Dashboard, dashboard

__all__ = ("Dashboard", "dashboard")
