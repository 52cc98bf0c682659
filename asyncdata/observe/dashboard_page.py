"""The page of the dashboard: HTML for each pipeline, without anything from other servers."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from asyncdata.observe.chart import chart, power_above
from asyncdata.observe.history import LONGEST, View, between, pace_of, wait_of
from asyncdata.observe.plan_flow import flow
from asyncdata.observe.processes import Gpu, Usage
from asyncdata.statistics.bottleneck import Bottleneck, bottleneck_of
from asyncdata.statistics.statistics import Statistics, decimal
from asyncdata.statistics.table import html_table, memory, time_of

__all__ = ("PAGE", "POLICY", "rendered", "report_of")

STYLE: Final = Path(__file__).with_name("dashboard.css").read_text(encoding="utf-8")
SCRIPT: Final = Path(__file__).with_name("dashboard.js").read_text(encoding="utf-8")

HEAD: Final = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>asyncdata</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>{STYLE}</style>"""

PAGE: Final = f"""{HEAD}</head>
<body><header><h1>asyncdata</h1><a href="report.html" download="asyncdata-report.html">Save as a file</a></header>
<p id="news" class="hidden" role="status" aria-live="polite"></p><p id="gone" role="alert" hidden></p>
<main>Waiting for the first pipeline…</main><footer><details id="timeline"><summary>Timeline of the last two seconds
</summary><div class="scroll" tabindex="0" role="region" aria-label="timeline">Recording…</div></details></footer>
<script>{SCRIPT}</script></body></html>
"""


def digest(content: str) -> str:
    """Return the hash with which a page allows its own content."""
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()


POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{digest(STYLE)}'; script-src 'sha256-{digest(SCRIPT)}'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""The page may run its own script, ask its own server, and nothing else."""

STILL: Final = f"default-src 'none'; style-src 'sha256-{digest(STYLE)}'; img-src data:; base-uri 'none'"
"""A saved report runs nothing and asks nobody."""

MOST_ERRORS: Final = 6
LONG: Final = 30
"""How many characters of a step the name of its pipeline has, at most; a longer step is there without arguments."""
MANY_FAIL: Final = 0.1
"""The share of its elements that fail in a step, from which on that is told first."""


def report_of(views: Sequence[View], title: str, usage: Usage | None = None, past: Sequence[View] = ()) -> str:
    """Return a page that is complete in itself, and shows the same as the dashboard does now."""
    policy = f'<meta http-equiv="Content-Security-Policy" content="{STILL}">'
    return (
        f"{HEAD}{policy}</head>\n<body><header><h1>asyncdata</h1><span>{escape(title)}</span></header>"
        f"<main>{rendered(views, usage, past)}</main></body></html>\n"
    )


def rendered(views: Sequence[View], usage: Usage | None = None, past: Sequence[View] = ()) -> str:
    """Return the content of the page: rank by rank, and the newest pipeline first.

    Of `past` pipelines only curves are shown, before those of the newest one if that has the same steps.
    """
    if not views:
        return "Waiting for the first pipeline…"
    newest = max(views, key=lambda view: (view.here, view.number))
    ordered = sorted(views, key=lambda view: (not view.here, len(view.rank), view.rank, -view.number))
    earlier = [view for view in (*past, *views) if view.number < newest.number and same_steps(view, newest)]
    first = section(newest, usage, earlier)
    sections = [first if view is newest else drawn_once(view) for view in ordered]
    return machine(usage) + overview(ordered) + "".join(sections)


def overview(views: Sequence[View]) -> str:
    """Return a line for each pipeline, to compare them, if there are several."""
    if len(views) < 2:
        return ""
    head = "".join(
        [
            f"<th>{word}</th>"
            for word in ("pipeline", "state", "elements", "a second", "samples a second", "waits", "limited by")
        ]
    )
    rows = "".join([overview_row(view) for view in views]) + ranks_row(views)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f'<section class="pipeline overview" id="overview">{scrolled(table, "all", "all pipelines", "words")}</section>'
    )


def overview_row(view: View) -> str:
    """Return the line of a pipeline."""
    stats, limit = view.stats, bottleneck_of(view.stats)
    limited = limit.step if limits(stats, limit) else ""
    pace = pace_of(view)
    numbers = [f"{stats.elements:,}", decimal(pace), decimal(pace * stats.batched)]
    cells = [stats.state, *numbers, f"{stats.waiting:.0%}", limited]
    link = f'<a href="#pipeline-{view.number}">{escape(name_of(view))}</a>'
    return f"<tr><td>{link}</td>{''.join([f'<td>{escape(cell)}</td>' for cell in cells])}</tr>"


def ranks_row(views: Sequence[View]) -> str:
    """Return a line for all ranks together, if several run."""
    running = [view for view in views if view.rank and view.stats.running]
    count = len({view.rank for view in running})
    if count < 2:
        return ""
    paces = [pace_of(view) for view in running]
    samples = sum([pace * view.stats.batched for pace, view in zip(paces, running)])
    numbers = [f"{sum([view.stats.elements for view in running]):,}", decimal(sum(paces)), decimal(samples)]
    cells = "".join([f"<td>{cell}</td>" for cell in (f"{count} ranks", "running", *numbers, "", "")])
    return f'<tr class="sum">{cells}</tr>'


def name_of(view: View) -> str:
    """Return what a pipeline is called: its number, its rank, its epoch after the first, and its steps in short.

    They begin with the last merge, if any, or else with the reader of files, which may stand after names and a shuffle.
    """
    steps = view.stats.steps
    merges = [place for place, step in enumerate(steps) if len(step.inputs) > 1]
    readers = [place for place, step in enumerate(steps) if "Dataset(" in step.step]
    begin = [*merges[-1:], *readers[:1], 0][0]
    told = [step.step for step in steps[begin:] if step.kind != "buffer"] or [step.step for step in steps]
    told = [label if len(label) <= LONG else f"{label.partition('(')[0]}(…)" for label in told]
    epoch = f"epoch {view.stats.epoch}" if view.stats.epoch else ""
    words = [view.rank, epoch, " → ".join(told if len(told) <= 3 else [told[0], "…", told[-1]])]
    return f"{view.number}: {', '.join(filter(None, words))}"


def same_steps(view: View, other: View) -> bool:
    """Return whether two pipelines of one process have the same steps, as epochs of a dataset have."""
    labels = [[step.step for step in one.stats.steps] for one in (view, other)]
    return view.rank == other.rank and view.here == other.here and labels[0] == labels[1]


def machine(usage: Usage | None) -> str:
    """Return what the machine and its GPUs do."""
    if usage is None:
        return ""
    cores = f"This machine: {usage.cores:.1f} of {usage.all_cores} cores busy"
    words = [f"{cores}, {in_use(usage.memory, usage.all_memory)}", *map(gpu_in_words, usage.gpus)]
    return f'<p class="machine" id="machine">{" ".join([f"<span>{escape(one)}</span>" for one in words])}</p>'


def gpu_in_words(gpu: Gpu) -> str:
    """Return how busy a GPU is, and how much of its memory is in use."""
    load = "" if gpu.load is None else f"{gpu.load:.0%} busy, "
    return f"{gpu.name}: {load}{in_use(gpu.memory, gpu.all_memory)}"


def in_use(used: int, total: int) -> str:
    """Return how much memory is in use, in words."""
    return f"{memory(used)} of {memory(total)} of memory in use"


def drawn_once(view: View) -> str:
    """Return the section of an older pipeline, which does not change after its end."""
    drawn = view.history.drawn
    if drawn is None or drawn[0] is not view.stats:
        drawn = view.history.drawn = (view.stats, section(view))
    return drawn[1]


def section(view: View, usage: Usage | None = None, earlier: Sequence[View] | None = None) -> str:
    """Return the section of one pipeline: the newest one, if `earlier` are those whose curves go before its own.

    Older ones that are over show only a line until they are opened.
    """
    stats, limit, number, name = view.stats, bottleneck_of(view.stats), view.number, name_of(view)
    newest = earlier is not None
    shown = newest or (view.here and stats.state in {"running", "not begun"})
    blamed = limit.step if limits(stats, limit) else ""
    news = f' data-news="{escape(news_of(name, stats, limit))}"' if newest else ""
    opened = 'data-open="1" open' if shown else 'data-open="0"'
    return (
        f'<section class="pipeline {escape(stats.state.replace(" ", "-"))}" id="pipeline-{number}" '
        f'aria-labelledby="name-{number}"{news}><details id="all-{number}" {opened}><summary id="summary-{number}">'
        f'<h2 id="name-{number}">{escape(name)}</h2> <span class="state">{escape(state_of(stats))}</span></summary>'
        f'<div class="inside">{failure_box(stats)}{limit_box(stats, limit)}{progress(view)}'
        f"<dl>{''.join(facts(view))}</dl><h3>Steps</h3>{flow(view, blamed)}"
        f"{charts(view, earlier or ())}{errors(stats)}"
        f'<div class="tables">{sources(stats, number)}{processes(usage, number) if newest else ""}'
        f"{tuned(stats, number)}</div>"
        f'<details class="more" id="more-{number}"><summary id="figures-{number}">All figures of each step</summary>'
        f"{scrolled(html_table(stats.rows), f'table-{number}', 'figures of each step')}</details>"
        f"</div></details></section>"
    )


def news_of(name: str, stats: Statistics, limit: Bottleneck) -> str:
    """Return what a screen reader reads out when it changes: nothing that changes all the time."""
    return f"{name}: {stats.state}" + (f", limited by {limit.step}" if limits(stats, limit) else "")


def limits(stats: Statistics, limit: Bottleneck) -> bool:
    """Return whether the input is a problem that one can mend."""
    return stats.elements > 0 and limit.resource not in {"consumer", "sender", "nothing"}


def state_of(stats: Statistics) -> str:
    """Return the state of the pipeline in words."""
    if stats.state == "running" and stats.waits_seconds >= 1:
        return f"running, the consumer has waited for {time_of(stats.waits_seconds)}"
    return stats.state


def failure_box(stats: Statistics) -> str:
    """Return what ended the pipeline if it has failed, or in which step many elements fail; nothing without these."""
    if stats.state == "failed" and stats.errors:
        first, second = "it has failed", stats.errors[-1]
    else:
        worst = max(stats.steps, key=lambda step: step.failed / max(1, step.items))
        if worst.failed < MANY_FAIL * worst.items or not worst.failed:
            return ""
        first = f"{worst.failed:,} of {worst.items:,} elements failed in {worst.step}"
        second = next(iter([*stats.errors, *stats.dropped][-1:]), "")
    return f'<div class="limit failure"><p><b>{escape(first)}</b></p><p>{escape(second)}</p></div>'


def limit_box(stats: Statistics, limit: Bottleneck) -> str:
    """Return what to change, then why; in a neutral colour if the input is not the problem."""
    gain = f" would give about {limit.gain:.1f} times the pace" if limit.gain >= 1.05 else ""
    if limits(stats, limit):
        first, second, calm = f"{limit.change}{gain}", limit.evidence, ""
    else:
        first, second, calm = limit.evidence, limit.change, " calm"
    return f'<div class="limit{calm}"><p><b>{escape(first)}</b></p><p>{escape(second)}</p></div>'


def progress(view: View) -> str:
    """Return how much is done and how long the rest takes, if it is known how many elements there are."""
    stats, total = view.stats, view.stats.cardinality
    if total <= 0:
        return ""
    done, pace = min(1.0, stats.elements / total), pace_of(view)
    left = f", {duration((total - stats.elements) / pace)} left" if stats.running and pace and done < 1 else ""
    with_errors = " with errors" if stats.elements > total else ""  # those of members come before their batch
    words = f"{stats.elements:,}{with_errors} of {total:,}, {done:.0%}{left}"
    return (
        f'<div class="progress"><svg viewBox="0 0 100 1" preserveAspectRatio="none" role="img" '
        f'aria-label="progress: {words}"><rect width="{100 * done:.2f}" height="1"/></svg><span>{words}</span></div>'
    )


def duration(seconds: float) -> str:
    """Return a time in hours, minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def facts(view: View) -> list[str]:
    """Return the numbers above the picture."""
    stats, pace = view.stats, pace_of(view)
    now, what = ("now" if stats.running else "on average"), "batches" if stats.batched > 1 else "elements"
    before = view.history.before(5.0) if stats.running else None
    waiting = stats.waiting if before is None else wait_of(before, view.history.recent[-1])
    figures = {
        **({f"samples a second, {now}": decimal(pace * stats.batched)} if stats.batched > 1 else {}),
        f"{what} a second, {now}": decimal(pace),
        f"the consumer waits, {now}": f"{waiting:.0%}",
        f"{what} in all": f"{stats.elements:,}",
        f"{what} a second, on average": decimal(stats.pace),
        "since the first request": time_of(stats.seconds),
    }
    if stats.held_bytes:
        figures[f"in AUTOTUNE's buffers, of {memory(stats.budget_bytes)}"] = memory(stats.held_bytes)
    return [f"<div><dt>{escape(what)}</dt><dd>{escape(value)}</dd></div>" for what, value in figures.items()]


def charts(view: View, earlier: Sequence[View] = ()) -> str:
    """Return pace, waiting and memory over time, with those of earlier epochs before them."""
    views, stats = (*earlier, view), view.stats
    samples = [sample for one in views for sample in one.history.curve]
    now = max([one.at for one in samples], default=0.0)
    samples = [one for one in samples if one.at >= now - LONGEST]
    sized = [(one.stats.batched, *pair) for one in views for pair in one.history.pairs]
    sized = [found for found in sized if found[2].at >= now - LONGEST]
    if not sized:
        return ""
    what = "samples" if max([size for size, _, _ in sized]) > 1 else "elements"
    pace = [(after.at - now, between(before, after) * size) for size, before, after in sized]
    waits = [(after.at - now, 100 * wait_of(before, after)) for _, before, after in sized]
    held = ("in buffers", [(one.at - now, float(one.held)) for one in samples])
    used = ("of all processes", [(one.at - now, float(one.memory)) for one in samples])
    both = [one for one in (used, held) if any(value for _, value in one[1])]
    most = max([value for _, points in both for _, value in points], default=0.0)
    end = "now" if stats.running else "end"
    drawn = [
        chart("Pace", [(f"{what} a second", pace)], lambda value: decimal(value).removesuffix(".0"), end=end),
        chart("Waiting", [("of the consumer's time", waits)], lambda value: f"{value:.0f}%", 100.0, end),
        chart("Memory", both, lambda value: memory(round(value)), power_above(most), end),
    ]
    return f'<div class="charts">{"".join(drawn)}</div>'


def errors(stats: Statistics) -> str:
    """Return the last exceptions: those that the consumer got, and those that were dropped."""
    got = [f"<li>{escape(error)}</li>" for error in stats.errors[: -MOST_ERRORS - 1 : -1]]
    dropped = [
        f'<li class="dropped">{escape(error)}; dropped by {escape(step.step)}</li>'
        for step in stats.steps
        for error in step.dropped[: -MOST_ERRORS - 1 : -1]
    ]
    count = sum([step.failed for step in stats.steps])
    if not got and not dropped:
        return ""
    counted = "1 element" if count == 1 else f"{count:,} elements"
    return f'<h3>Last errors ({counted} failed)</h3><ul class="errors">{"".join([*got, *dropped])}</ul>'


def sources(stats: Statistics, number: int) -> str:
    """Return what each dataset of a mixture has given."""
    if not (rows := stats.source_rows):
        return ""
    table = scrolled(html_table(rows), f"sources-{number}", "what each dataset has given")
    return f"<section><h3>What each dataset has given</h3>{table}</section>"


def tuned(stats: Statistics, number: int) -> str:
    """Return AUTOTUNE's choices and why."""
    if not (rows := stats.tuned_rows):
        return ""
    table = scrolled(html_table(rows), f"tuned-{number}", "AUTOTUNE's choices", "words text")
    return f"<section><h3>What AUTOTUNE chose</h3>{table}</section>"


def processes(usage: Usage | None, number: int) -> str:
    """Return what this process and its workers use."""
    if usage is None:
        return ""
    rows = [(f"{one.name} ({one.pid})", f"{one.cores:.2f}", memory(one.memory)) for one in usage.processes]
    table = scrolled(html_table([("process", "cores busy", "memory"), *rows]), f"processes-{number}", "processes")
    return f"<section><h3>Processes</h3>{table}</section>"


def scrolled(table: str, name: str, label: str, kind: str = "") -> str:
    """Return a table that scrolls by itself where it is wider than the page, also by keyboard."""
    return (
        f'<div class="scroll {kind}" id="{name}" tabindex="0" role="region" aria-label="{escape(label)}">{table}</div>'
    )
