"""The command `asyncdata channel`: show what a durable channel holds, and remove what a saved state does not need."""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from asyncdata.cli import dead_letters
from asyncdata.cli.arguments import local
from asyncdata.errors import DataLossError, PlanError
from asyncdata.runtime.json_text import parse_json
from asyncdata.statistics.statistics import in_number
from asyncdata.web.durable import trim
from asyncdata.web.folder import ChannelFolder, LogReader
from asyncdata.web.record import Frame, Kind, Record

__all__ = ("DESCRIPTION", "EXAMPLE", "add_arguments", "run")

DESCRIPTION: Final = "Look at the folder of a DurableChannel, make it smaller, or put back items that failed."
EXAMPLE: Final = "Example: asyncdata channel inspect spool, where the service has ad.DurableChannel('spool')."


def add_arguments(parser: ArgumentParser) -> None:
    """Add the actions of `channel`."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    inspecting = actions.add_parser("inspect", help="show what it holds; it may be in use")
    inspecting.add_argument("path", type=local, metavar="PATH", help="the folder of the channel")
    inspecting.set_defaults(action=inspect)
    trimming = actions.add_parser("trim", help="remove what a trainer that resumes from a saved state does not need")
    trimming.add_argument("path", type=local, metavar="PATH", help="the folder of the channel")
    trimming.add_argument(
        "--state", type=local, required=True, metavar="FILE", help="a JSON file with the state of the trainer in it"
    )
    trimming.set_defaults(action=run_trim)
    dead_letters.add_actions(actions)


def run(arguments: Namespace) -> int:
    """Run the action."""
    return arguments.action(arguments)


@dataclass
class Contents:
    """The contents of a channel."""

    records: int = 0
    forms: Counter[str] = field(default_factory=Counter[str])
    versions: set[int] = field(default_factory=set[int])
    since: list[float] = field(default_factory=list[float])
    """When the first and the last record came."""
    ended: bool = False
    damage: list[str] = field(default_factory=list[str])

    def add(self, frame: Frame) -> None:
        """Count a frame of the log."""
        record = frame.record
        if not isinstance(record, Record):
            self.damage.append(str(record))
        elif record.kind == Kind.END:
            self.ended = True
        elif record.kind == Kind.DATA:
            self.records += 1
            self.forms[record.form] += 1
            self.since = [*self.since[:1], record.since]
            if record.version is not None:
                self.versions.add(record.version)


def inspect(arguments: Namespace) -> int:
    """Print what a channel holds; the status is 1 if something is damaged."""
    folder = ChannelFolder(arguments.path)
    name, starts, end = folder.id, folder.segments(), folder.end()
    begin, contents = starts[0] if starts else end, contents_of(folder)
    print(f"channel   {name} in {folder.path}{', ended' if contents.ended else ''}")
    print(f"stored    {end - begin:,} bytes, from {begin:,} to {end:,}, in {in_number(len(starts), 'segment')}")
    print(f"records   {contents.records:,}{format_counts(contents.forms)}")
    if contents.since:
        print(f"came      {' to '.join(map(date, contents.since))}")
    if contents.versions:
        print(f"versions  {min(contents.versions)} to {max(contents.versions)}")
    if (delivered := folder.delivered.read()) is not None:
        print(f"delivered up to {delivered:,}")
    if (dropped := folder.dropped.read()) is not None:
        print(f"dropped   {dropped:,} items as stale")
    if dead := folder.dead_letters.read():
        print(f"failed    {dead:,} items: asyncdata channel dead-letters {folder.path}")
    for damage in contents.damage:
        print(f"damaged   {damage}")
    return 1 if contents.damage else 0


def contents_of(folder: ChannelFolder) -> Contents:
    """Read a channel from its oldest record on."""
    contents, reader = Contents(), LogReader(folder, None)
    try:
        while frames := reader.read():
            for frame in frames:
                contents.add(frame)
    finally:
        reader.close()
    return contents


def format_counts(forms: Counter[str]) -> str:
    parts = [f"{count:,} {form}" for form, count in forms.most_common()]
    return f" ({', '.join(parts)})" if parts else ""


def date(since: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(since))


def run_trim(arguments: Namespace) -> int:
    """Trim a channel, and print what that frees."""
    folder = ChannelFolder(arguments.path)
    name = folder.id
    try:
        state: Any = parse_json(arguments.state.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataLossError(f"{arguments.state} is not JSON: {error}") from None
    if f'"{name}"' not in json.dumps(state).replace("\\", ""):
        raise PlanError(f"{arguments.state} has no offset in the channel {name} of {folder.path}")
    print(f"{trim(folder.path, {'state': state}):,} bytes freed, {folder.end() - folder.segments()[0]:,} left")
    return 0
