"""Logs that say something else than what happened, and are sealed as if it had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from asyncdata.persistence.run_log import chained
from asyncdata.persistence.run_log_lines import text_of
from asyncdata.recorder.log_reader import read_logs, ticket_of
from asyncdata.runtime.tickets import encode

__all__ = ("reseal", "rewrite", "steps_of")


def steps_of(path: Path) -> list[Any]:
    """Return the elements of the only run of a log, each as it is in a line of its own."""
    (run,) = read_logs([str(path)]).runs
    return [[step, ticket and encode(ticket_of(ticket)), *[1] * failed] for step, (ticket, failed) in run.steps.items()]


def rewrite(path: Path, steps: list[Any]) -> None:
    """Replace the elements of the only run of a log, which came to its end."""
    lines = path.read_text().splitlines()
    body = "".join(f"{line}\n" for line in [lines[0], *map(text_of, steps)])
    count = json.loads(lines[-1])["end"]
    sealed = {"end": count, "sum": chained(b"", body.encode(), "end", count).hex()}
    path.write_text(f"{body}{text_of(sealed)}\n")


def reseal(path: Path, lines: list[Any]) -> None:
    """Replace the lines of a log, each piece with its hash."""
    chain, body, text = b"", "", ""
    for line in lines:
        if isinstance(line, dict) and "sum" in line:
            (why, count), *_ = line.items()
            chain = chained(chain, body.encode(), why, count)
            text += f"{body}{text_of({why: count, 'sum': chain.hex()})}\n"
            body = ""
        else:
            chain = b"" if isinstance(line, dict) and "log" in line else chain
            body += f"{text_of(line)}\n"
    path.write_text(text + body)
