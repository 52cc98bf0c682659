"""The commands `asyncdata channel dead-letters` and `put-back`: items that failed in a consumer's pipeline."""

from __future__ import annotations

import asyncio
import os
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from asyncdata.cli.arguments import local
from asyncdata.errors import PlanError
from asyncdata.system.optional_packages import require
from asyncdata.web.dead_letters import DeadLetters, Letter
from asyncdata.web.decoding import format_of
from asyncdata.web.durable import DurableChannel, send_checked
from asyncdata.web.folder import ChannelFolder

__all__ = ("add_actions",)


def add_actions(actions: Any) -> None:
    """Add the two actions to those of `asyncdata channel`."""
    listing: ArgumentParser = actions.add_parser("dead-letters", help="list the items that failed in a pipeline")
    listing.add_argument("path", type=local, metavar="PATH", help="the folder of the channel")
    listing.add_argument("ids", nargs="*", metavar="ID", help="show these items, with their errors")
    listing.set_defaults(action=show)
    putting: ArgumentParser = actions.add_parser("put-back", help="send items that failed to the channel again")
    putting.add_argument("path", type=local, metavar="PATH", help="the folder of the channel")
    putting.add_argument("ids", nargs="*", metavar="ID", help="the items; all, without one")
    putting.add_argument(
        "--to",
        metavar="URL",
        help="the address of /ingest of the service that has the channel open; the token is in ASYNCDATA_TOKEN",
    )
    putting.set_defaults(action=put_back)


def chosen(letters: DeadLetters, ids: Sequence[str]) -> list[Letter]:
    """Return the letters with these IDs, all that were not put back without one."""
    if unknown := [name for name in ids if name not in letters.content.letters]:
        raise PlanError(f"{letters.path} has no item {', '.join(unknown)}: `asyncdata channel dead-letters` lists them")
    waiting = letters.content.waiting
    return [letter for letter in waiting if letter.id in ids] if ids else waiting


def show(arguments: Namespace) -> int:
    """Print one line for each item, or the complete letters of some."""
    folder = ChannelFolder(arguments.path)
    print(f"channel {folder.id} in {folder.path}")
    for letter in chosen(DeadLetters(folder), arguments.ids):
        failed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(letter.failed_at))
        print(f"{letter.id:<14} {failed}  {letter.error:.120}")
        if arguments.ids:
            print("".join(f"  {note}\n" for note in letter.notes), end="")
            print(f"  {letter.content_type or 'the channel had lost it'}{' in base64' if letter.is_base64 else ''}")
            print(f"  {letter.body}")
    return 0


def put_back(arguments: Namespace) -> int:
    """Send items again, each once; the status is 1 if some were refused."""
    folder = ChannelFolder(arguments.path)
    letters, name = DeadLetters(folder), folder.id
    some = chosen(letters, arguments.ids)
    if arguments.to is None:
        refused = asyncio.run(send_all(folder, letters, some, name))
    else:
        refused = post_all(arguments.to, letters, some, name)
    for letter, why in refused:
        print(f"{letter.id:<14} refused: {why}")
    print(f"{len(some) - len(refused)} of {len(some)} items put back")
    return 1 if refused else 0


def key_of(channel: str, letter: Letter) -> str:
    """Return the idempotency key by which an item that is put back twice is stored once."""
    return f"dead letter {letter.id} of {channel}"


async def send_all(
    folder: ChannelFolder, letters: DeadLetters, some: Sequence[Letter], name: str
) -> list[tuple[Letter, str]]:
    """Store items in the channel, and return those that were refused, and why."""
    try:
        channel = DurableChannel(folder.path)
    except PlanError as error:
        raise PlanError(f"{error}; put them back through the service: --to http://127.0.0.1:8000/ingest") from None
    refused: list[tuple[Letter, str]] = []
    async with channel:
        for letter in some:
            try:
                kind, body = letter.request()
            except PlanError as error:
                refused.append((letter, str(error)))
                continue
            await send_checked(channel, body, key_of(name, letter), letter.version, format_of(kind))
            letters.mark_put_back(letter)
    return refused


def post_all(url: str, letters: DeadLetters, some: Sequence[Letter], name: str) -> list[tuple[Letter, str]]:
    """Post items to a service, and return those that were refused, and why."""
    httpx = require("httpx", "asyncdata channel put-back --to", "'asyncdata[web]'")
    token = os.environ.get("ASYNCDATA_TOKEN")
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    refused: list[tuple[Letter, str]] = []
    with httpx.Client(headers=headers, timeout=60) as client:
        for letter in some:
            why = posted(client.post, url, letter, name)
            if why is None:
                letters.mark_put_back(letter)
            else:
                refused.append((letter, why))
    return refused


def posted(post: Callable[..., Any], url: str, letter: Letter, name: str) -> str | None:
    """Post one item; return why it was refused, if it was."""
    try:
        kind, body = letter.request()
    except PlanError as error:
        return str(error)
    headers = {"Content-Type": kind, "Idempotency-Key": key_of(name, letter)}
    params = {} if letter.version is None else {"version": str(letter.version)}
    reply = post(url, content=body, headers=headers, params=params)
    return None if reply.is_success else f"{reply.status_code} {reply.text:.300}"
