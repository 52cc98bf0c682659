"""The command `asyncdata trace-record`: in which steps, and on which ranks, a record was delivered."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any, Final

from asyncdata.cli.logs import logs_in
from asyncdata.cli.pipeline_file import pipeline_of
from asyncdata.errors import DataLossError
from asyncdata.recorder.locations import words_of_record
from asyncdata.recorder.log_reader import ticket_of
from asyncdata.runtime.tickets import encode

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION = """
Show in which steps of which ranks and epochs a record was delivered, from the logs that Options(record=) wrote: also in
steps that a restart made again. The exit status is 1 if it is in none of them.
"""

EXAMPLE: Final = """
Example: asyncdata trace-record data/00003.tfrecord:17 pipeline.py:ds 'run-*.jsonl', where the run had
ad.Options(record="run.jsonl").
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `trace-record`."""
    parser.add_argument(
        "record",
        type=name_and_number,
        metavar="NAME[:NUMBER]",
        help="a file, or a source as `replay` shows it, and the number there, from 0; without it any record",
    )
    parser.add_argument("pipeline", metavar="FILE.py:NAME", help="the pipeline: a dataset in that file, or a function")
    parser.add_argument("logs", nargs="+", metavar="RUN.jsonl", help="logs of all ranks, or patterns")


def name_and_number(text: str) -> tuple[str, int | None]:
    """Return the name of a file and the number of a record in it, `None` for all of them."""
    name, _, number = text.rpartition(":")
    return (name, int(number)) if name and number.isdecimal() else (text, None)


def run(arguments: Namespace) -> int:
    """Print the steps."""
    ds, found, logs, unknown = pipeline_of(arguments.pipeline), 0, logs_in(arguments.logs), 0
    names = dict[str, None]()
    for run in logs.runs:
        for step, (ticket, failed) in run.steps.items():
            try:
                records = ds.locate({**run.header, "step": step, "ticket": encode(ticket_of(ticket))})
            except DataLossError:  # the log does not say it
                unknown, records = unknown + 1, []
            for record in records:
                names[name_of(record)] = None
                if is_record(record, *arguments.record):
                    found += 1
                    how = ", which failed" if failed else ""
                    print(f"epoch {run.epoch}, step {step} of {run.rank}{how}: {words_of_record(record)} ({run.path})")
    if not found:
        print("in none of these logs", *(["as far as they can be read"] if logs.faults else []), sep=", ")
        name, _ = arguments.record
        if names and not any(is_named(other, name) for other in names):
            print(f"they have no record of {name}, but of {', '.join([*names][:10])}")
    if unknown:
        print(f"of {unknown} steps it is not known which records they had")
    return 0 if found else 1


def is_record(record: Mapping[str, Any], name: str, number: int | None) -> bool:
    """Return whether a record is one that is meant; a file may be named without its folder."""
    place = record.get("record", record.get("index"))
    return number in (None, place) and is_named(name_of(record), name)


def name_of(record: Mapping[str, Any]) -> str:
    return str(record.get("file", record.get("source", record.get("cache", ""))))


def is_named(found: str, name: str) -> bool:
    return found == name or found.endswith((f"/{name}", f"\\{name}"))
