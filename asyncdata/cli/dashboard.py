"""The command `asyncdata dashboard`: a pipeline is read, and a page shows it live."""

from __future__ import annotations

import threading
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from math import inf
from typing import Final

from asyncdata.cli import pipeline_file
from asyncdata.cli.doctor import read
from asyncdata.cli.pipeline_file import pipeline_of
from asyncdata.observe.dashboard_server import PORT, dashboard
from asyncdata.observe.file_for_browsers import check_name

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION: Final = """
Read a pipeline, and serve a page that shows what its steps do, which one limits it, and what to change. Ctrl+C ends it.
"""

EXAMPLE: Final = """
Example: asyncdata dashboard pipeline.py:ds --step 0.05, as if a training step took 50 ms, where the file pipeline.py
has ds = ad.Dataset.list_files("*.jpg").map(decode).batch(32).
"""


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `dashboard`."""
    pipeline_file.add_arguments(parser, inf)
    parser.add_argument("--port", type=int, default=PORT, metavar="N", help=f"of the page (default {PORT}, 0: any)")
    parser.add_argument("--report", metavar="FILE.html", help="save the page there in the end")


def run(arguments: Namespace) -> int:
    """Read the pipeline; the page stays until Ctrl+C, or ends after the seconds that were asked for."""
    if arguments.report is not None:
        check_name("--report", "HTML", arguments.report)  # before the pipeline is read
    ds = pipeline_of(arguments.pipeline)
    with ds.iterate() as elements, dashboard(elements, port=arguments.port) as page:
        print(f"the dashboard is at {page.url}, until Ctrl+C", flush=True)
        with suppress(KeyboardInterrupt):
            read(elements, arguments.seconds, arguments.step)
            if arguments.seconds == inf:
                threading.Event().wait()
        if arguments.report is not None:
            page.save(arguments.report)
            print(f"saved in {arguments.report}")
    return 0
