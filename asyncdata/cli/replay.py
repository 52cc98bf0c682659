"""The command `asyncdata replay`: which records a step of a log had, and its element again."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from typing import Final

from asyncdata.cli.inspect import described, shortened, shown
from asyncdata.cli.logs import logs_in
from asyncdata.cli.pipeline_file import pipeline_of
from asyncdata.recorder.locations import words_of_record
from asyncdata.recorder.log_reader import step_origin

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION = """
Show which records the element of one step had, from the log that Options(record=) wrote, and make the element again.
The steps before it are not made.
"""

EXAMPLE: Final = """
Example: asyncdata replay run.jsonl pipeline.py:ds --step 1200, where the run had ad.Options(record="run.jsonl").
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `replay`."""
    parser.add_argument("log", metavar="RUN.jsonl", help="the log of one rank")
    parser.add_argument("pipeline", metavar="FILE.py:NAME", help="the pipeline: a dataset in that file, or a function")
    parser.add_argument("--step", type=int, required=True, metavar="N", help="the number of the element in its epoch")
    parser.add_argument("--epoch", type=int, metavar="E", help="its epoch, if the log has several with that step")
    parser.add_argument(
        "--records", action="store_true", help="print only the records, one a line, as Dataset.exclude reads them"
    )


def run(arguments: Namespace) -> int:
    """Print the records and the element."""
    origin = step_origin(logs_in([arguments.log]), arguments.step, arguments.epoch)
    ds = pipeline_of(arguments.pipeline)
    if arguments.records:
        for record in ds.locate(origin):
            print(json.dumps(record))
        return 0
    print(f"epoch {origin['epoch']}, step {origin['step']}")
    for record in ds.locate(origin):
        print(f"  {words_of_record(record)}")
    with ds.replay([origin]) as elements:
        for element in elements:
            print(f"spec   {shortened(described(element))}")
            print(f"value  {shortened(repr(shown(element)))}")
    return 0
