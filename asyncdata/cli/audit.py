"""The command `asyncdata audit`: whether logs show each record delivered once, over all ranks and restarts."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from typing import Final

from asyncdata.cli.logs import logs_in
from asyncdata.cli.pipeline_file import pipeline_of
from asyncdata.errors import PlanError
from asyncdata.observe.file_for_browsers import check_name
from asyncdata.recorder.audit import audit
from asyncdata.recorder.coverage import coverage_lines, coverage_of
from asyncdata.recorder.coverage_picture import PARTS, coverage_picture
from asyncdata.recorder.expected import ExpectedTickets

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION = """
Show, for each epoch in the logs that Options(record=) wrote, whether each record was delivered once, over all ranks and
restarts; which came twice and where; and which did not come. Steps that came after the state from which a run was
resumed do not count. With --against the pipeline is run, and what it gives is compared, record by record, and step by
step where the order is fixed. With --coverage it shows how many records each file or source gave, and in which part of
the epoch; with --picture too, as an SVG picture. The exit status is 0 if every epoch is complete, 1 if one is not, or
if that cannot be known.
"""

EXAMPLE: Final = """
Example: asyncdata audit 'run-*.jsonl' --against pipeline.py:ds, where the run had ad.Options(record="run.jsonl").
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `audit`."""
    parser.add_argument("logs", nargs="+", metavar="RUN.jsonl", help="logs of all ranks, or patterns")
    parser.add_argument("--against", metavar="FILE.py:NAME", help="the pipeline, to compare what it gives")
    parser.add_argument("--coverage", metavar="FILE.py:NAME", help="the pipeline, to show when which files came")
    parser.add_argument("--picture", metavar="FILE.svg", help="where to draw that: files over steps")


def run(arguments: Namespace) -> int:
    """Print what the logs show."""
    if arguments.picture and not arguments.coverage:
        raise PlanError("--picture draws which files came when: give the pipeline too, as --coverage FILE.py:NAME")
    picture = check_name("--picture", "SVG", arguments.picture) if arguments.picture else None
    logs = logs_in(arguments.logs)
    expected = None
    if arguments.against:
        ds = pipeline_of(arguments.against)
        expected = ExpectedTickets(ds.plan, ds.options())
    found = audit(logs, expected)
    plan = pipeline_of(arguments.coverage).plan if arguments.coverage else None
    for one in found:
        print(one)
        for line in () if plan is None else coverage_lines(one, plan):
            print(f"  {line}")
    if plan is not None and picture is not None:
        drawn = coverage_picture([(one, coverage_of(one, plan, PARTS)) for one in found])
        picture.write_text(drawn, encoding="utf-8")
        print(f"wrote {picture}")
    return 0 if all(one.complete for one in found) else 1
