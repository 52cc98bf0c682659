"""The command line: `python -m asyncdata COMMAND`, or `asyncdata COMMAND`."""

from __future__ import annotations

import errno
import os
import select
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import Final, NoReturn

import asyncdata
from asyncdata.cli import (
    audit,
    bench,
    channel,
    compare,
    convert,
    dashboard,
    doctor,
    ingest,
    inspect,
    replay,
    trace_record,
)
from asyncdata.demo import command as demo
from asyncdata.redaction import redacted
from asyncdata.system.standard_descriptors import take_standard_descriptors

__all__ = ("main",)

COMMANDS: Final = {
    "demo": (demo, "train on real images"),
    "doctor": (doctor, "see what limits a pipeline"),
    "dashboard": (dashboard, "see live what a pipeline does"),
    "bench": (bench, "measure a pipeline"),
    "compare": (compare, "compare a DataLoader of PyTorch's with the drop-in"),
    "ingest": (ingest, "write what is posted into shards"),
    "channel": (channel, "inspect or trim a DurableChannel, and put back items that failed"),
    "inspect": (inspect, "show what files hold, and what is damaged"),
    "convert": (convert, "write files as shards of another format"),
    "replay": (replay, "the records of a step, and its element again"),
    "audit": (audit, "whether logs of a run show each record delivered once"),
    "trace-record": (trace_record, "the steps in which a record was delivered"),
}
"""The module of each command, which has its arguments and runs it, and what it does."""

FAILED, REFUSED, INTERRUPTED, UNREAD = 1, 2, 130, 141


class Parser(ArgumentParser):
    """An argument parser that answers a mistake in one line."""

    def error(self, message: str) -> NoReturn:
        """Print `message` alone, and leave."""
        self.exit(REFUSED, f"{self.prog}: {redacted(message)} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments name, and return the exit status of the process."""
    take_standard_descriptors()  # before the sockets of servers
    parser = Parser(prog="asyncdata", description="Input pipelines for training.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"asyncdata {asyncdata.__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, (command, words) in COMMANDS.items():
        added = commands.add_parser(name, help=words, description=command.DESCRIPTION, epilog=command.EXAMPLE)
        command.add_arguments(added)
        added.set_defaults(run=command.run)
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        parser.print_help()
        return 0
    chosen = parser.parse_args(given)
    try:
        return flushed(chosen.run(chosen))
    except KeyboardInterrupt:
        return answer(INTERRUPTED, "interrupted")
    except (asyncdata.PlanError, asyncdata.MissingDependencyError, OSError) as error:
        return UNREAD if is_unread(error) else answer(REFUSED, one_line(error))
    except (asyncdata.AsyncDataError, UnicodeDecodeError) as error:  # text that is not UTF-8
        return answer(FAILED, one_line(error))


def flushed(status: int) -> int:
    """Return `status` when all output has gone out."""
    sys.stdout.flush()
    return status


def is_unread(error: Exception) -> bool:
    """Return whether `error` says that nobody reads the output any more, as behind `| head`; then it goes nowhere."""
    if not isinstance(error, BrokenPipeError) or not hasattr(select, "poll"):
        return False
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    if not any(mask & select.POLLERR for _, mask in output.poll(0)):  # it is of a connection
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return True


def answer(status: int, line: str) -> int:
    """Print `line` where errors go, and return `status`."""
    print(f"asyncdata: {line}", file=sys.stderr)
    return status


def one_line(error: BaseException) -> str:
    notes: list[str] = getattr(error, "__notes__", [])
    missing = error.filename if isinstance(error, OSError) and error.strerror == os.strerror(errno.ENOENT) else None
    said = str(error) if missing is None else f"there is no file or folder {missing!r}"
    return redacted(" ".join("; ".join([said, *notes]).split()))


if __name__ == "__main__":
    sys.exit(main())
