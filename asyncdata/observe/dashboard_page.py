"""The page of the dashboard: HTML for each pipeline, without anything from other servers."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from asyncdata.observe.bottleneck import bottleneck_of
from asyncdata.observe.plan_picture import boxes_of, plan_picture
from asyncdata.observe.statistics import Statistics
from asyncdata.observe.table import html_table, memory, time_of

__all__ = ("PAGE", "POLICY", "Sample", "View", "rendered")

STYLE: Final = """
body{font:14px/1.45 sans-serif;margin:1.2em;color:#222;background:#fff}
h1{font-size:1.1em;margin:0 0 1em} h2{font-size:1em;margin:0;font-weight:600;overflow-wrap:anywhere}
section{border:1px solid #ddd;border-radius:6px;padding:1em;margin-bottom:1.2em}
.top{display:flex;gap:.8em;align-items:baseline} .state{padding:.05em .6em;border-radius:1em;background:#ddd}
.running .state{background:#54a24b;color:#fff} .failed .state{background:#e45756;color:#fff}
.facts{display:flex;flex-wrap:wrap;gap:.4em 2.4em;margin:.7em 0} .facts b{display:block;font-size:1.25em}
.limit{border-left:4px solid #e45756;padding:.3em .8em;background:#f7f7f7;margin:.7em 0}
.both{display:flex;flex-wrap:wrap;gap:2em} .graph{overflow-x:auto;max-width:100%}
table{border-collapse:collapse;font-size:13px;margin-top:1em;display:block;overflow-x:auto}
th,td{padding:.15em .7em;text-align:right;border-bottom:1px solid #eee} th:first-child,td:first-child{text-align:left}
.errors{color:#b02a28;font-family:monospace;font-size:12px;padding-left:1.2em;overflow-wrap:anywhere}
#gone{display:none;background:#e45756;color:#fff;padding:.4em .8em;margin-bottom:1em;border-radius:4px}
body.gone #gone{display:block} body.gone main{opacity:.55}
"""

SCRIPT: Final = """
const source = new EventSource("events");
source.onmessage = (event) => {
  document.body.classList.remove("gone");
  document.querySelector("main").innerHTML = JSON.parse(event.data);
};
source.onerror = () => document.body.classList.add("gone");
"""

PAGE: Final = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>asyncdata</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"><style>{STYLE}</style></head>
<body><h1>asyncdata</h1><div id="gone">The program has ended, or does not answer. Below is its last message.</div>
<main>Waiting for the first pipeline…</main><script>{SCRIPT}</script></body></html>
"""


def digest(content: str) -> str:
    """Return the hash with which a page allows its own content."""
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{digest(STYLE)}'; script-src 'sha256-{digest(SCRIPT)}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page may run its own script, ask its own server, and nothing else."""

CHART, TALL, LABEL = 380, 26, 210
RECENT: Final = 5.0
MOST_ERRORS: Final = 8


class Sample(NamedTuple):
    """The elements that were delivered until a time of `time.monotonic`, and those in the queues then."""

    at: float
    elements: int
    queued: tuple[int | None, ...]


class View(NamedTuple):
    """A pipeline that is shown."""

    number: int
    stats: Statistics
    samples: deque[Sample]


def rendered(views: Sequence[View], now: float) -> str:
    """Return the content of the page, newest pipeline first."""
    return "".join(section(view, now) for view in reversed(views)) or "Waiting for the first pipeline…"


def section(view: View, now: float) -> str:
    """Return the section of one pipeline."""
    stats, limit = view.stats, bottleneck_of(view.stats)
    labels = [step.step for step in stats.steps]
    name = " → ".join(labels if len(labels) <= 3 else [labels[0], "…", labels[-1]])
    errors = "".join(f"<li>{escape(error)}</li>" for error in stats.errors[: -MOST_ERRORS - 1 : -1])
    picture = plan_picture([("", boxes_of(stats, limit.step))])
    return (
        f'<section class="{stats.state.replace(" ", "-")}" id="pipeline-{view.number}"><div class="top">'
        f'<h2>{view.number}: {escape(name)}</h2><span class="state">{state_of(stats)}</span></div>'
        f'<div class="facts">{"".join(facts(view, now))}</div><div class="limit">{escape(str(limit))}</div>'
        f'<div class="both"><div class="graph">{picture}</div><div class="charts">{charts(view, now)}</div></div>'
        + (f'<h2>Errors</h2><ul class="errors">{errors}</ul>' if errors else "")
        + f"{html_table(stats.rows)}</section>"
    )


def state_of(stats: Statistics) -> str:
    """Return the state of the pipeline in words."""
    if stats.state == "running" and stats.waits_seconds >= 1:
        return f"running, the consumer has waited for {time_of(stats.waits_seconds)}"
    return stats.state


def facts(view: View, now: float) -> list[str]:
    """Return the numbers above the picture."""
    stats = view.stats
    figures = {
        "elements": f"{stats.elements:,}",
        "a second, on average": f"{stats.pace:,.1f}",
        "a second, now": f"{recent_pace(view, now):,.1f}",
        **({"samples a second, on average": f"{stats.sample_pace:,.1f}"} if stats.batched > 1 else {}),
        "of its time the consumer waits": f"{stats.waiting:.0%}",
        "since the first request": time_of(stats.seconds),
        "in self-tuning buffers": f"{memory(stats.held_bytes)} of {memory(stats.budget_bytes)}",
    }
    return [f"<div><b>{escape(value)}</b>{escape(what)}</div>" for what, value in figures.items()]


def recent_pace(view: View, now: float) -> float:
    """Return how many elements a second were delivered in the last seconds."""
    if view.stats.state != "running":
        return 0.0
    since = next((sample for sample in view.samples if sample.at >= now - RECENT), None)
    if since is None or now <= since.at:
        return view.stats.pace
    return (view.stats.elements - since.elements) / (now - since.at)


def charts(view: View, now: float) -> str:
    """Return the pace and each queue over time, as a picture: one row each, the newest values to the right."""
    samples, steps = [*view.samples], view.stats.steps
    rows: list[tuple[str, list[float]]] = []
    if len(samples) > 1:
        paces = [
            (later.elements - sooner.elements) / max(1e-3, later.at - sooner.at) for sooner, later in pairwise(samples)
        ]
        rows.append((f"elements a second, at most {max(paces):,.0f}", paces))
    for place, step in enumerate(steps):
        if step.queued is None:
            continue
        depths = [float(sample.queued[place] or 0) for sample in samples if place < len(sample.queued)]
        rows.append((f"{step.step}: {step.queued:,} held", [0.0, *depths]))
    height = len(rows) * (TALL + 10) + 4
    lines = [line for number, row in enumerate(rows) for line in curve(*row, number * (TALL + 10.0) + 4)]
    size = f'width="{LABEL + CHART}" height="{height}" viewBox="0 0 {LABEL + CHART} {height}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-size="11">{"".join(lines)}</svg>' if rows else ""


def curve(words: str, values: Sequence[float], top: float) -> list[str]:
    """Return a number over time, as an area that begins at the height `top`, with words to its left."""
    most = max([*values, 1e-9])
    across = CHART / max(1, len(values) - 1)
    points = " ".join(
        f"{LABEL + place * across:.1f},{top + TALL * (1 - value / most):.1f}" for place, value in enumerate(values)
    )
    label = words if len(words) <= 30 else f"{words[:14]}…{words[-15:]}"
    return [
        f'<text x="{LABEL - 8}" y="{top + 17}" text-anchor="end"><title>{escape(words)}</title>{escape(label)}</text>',
        f'<rect x="{LABEL}" y="{top}" width="{CHART}" height="{TALL}" fill="#f4f4f4"/>',
        f'<polygon points="{LABEL},{top + TALL} {points} {LABEL + CHART},{top + TALL}" fill="#4c78a8"/>',
    ]
