"""Files of states: of one process, of all processes of a run, and what they hold as text.

What a state holds is in `states.py`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from asyncdata.errors import PlanError, ResumeError
from asyncdata.identity.state_merging import has_nested_shares, merged, shares_of_all
from asyncdata.runtime.json_text import parse_json
from asyncdata.runtime.resharding import Share
from asyncdata.runtime.tickets import END, Position
from asyncdata.sources.file_list_digest import label_text
from asyncdata.states import checked
from asyncdata.storage import local_path, write_atomically
from asyncdata.storage.regular_file import is_regular
from asyncdata.system.checksum import has_checksum, with_checksum

__all__ = ("SHARE_FILES", "inspect_state", "load", "load_shares", "merge_states", "save", "save_share", "share_file")

SHARE_FILES: Final = "asyncdata*.json"
"""The pattern of names that `share_file` returns."""

OWN_FOLDER: Final = "give each checkpoint a folder of its own, or remove the files of the others"
"""What to do about files of several checkpoints in one folder."""

MOST_NAMES: Final = 8
"""How many names of files an error has."""


def save(path: str | os.PathLike[str], state: Mapping[str, Any]) -> None:
    """Write a state to a file atomically, also if the machine stops meanwhile; only a file is replaced, no link.

    `PlanError` for what `load` would refuse: a dict of yours that has a state in it belongs in your own checkpoint.

    >>> import asyncdata as ad, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.json")
    >>> with ad.Dataset.range(10).iterate() as numbers:
    ...     _ = next(numbers), next(numbers)
    ...     save(path, numbers.state_dict())
    >>> next(ad.Dataset.range(10).iterate(state=load(path)))
    2
    """
    where = local_path(path, "a state")
    if not isinstance(state, Mapping) or "version" not in state:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(
            f"checkpoint.save() takes what state_dict() returns, got {state!r:.80}: write a dict with a state in it "
            "with json.dump, or into your checkpoint"
        )
    if "checksum" in state and not has_checksum(state):
        raise PlanError(
            "checkpoint.save() takes what state_dict() returns, and this state was changed since: what belongs to it "
            "goes into a file of its own, or with it into your checkpoint"
        )
    if not is_regular(where):
        raise FileExistsError(
            errno.EEXIST, "a state replaces a file, and this is a link, pipe, device or folder", where
        )
    if not os.path.isdir(os.path.dirname(where) or "."):
        raise FileNotFoundError(errno.ENOENT, "there is no such folder, make it first", os.path.dirname(where))
    write_atomically(where, json.dumps(state, separators=(",", ":")).encode(), durable=True)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a state that `save` wrote; `ResumeError` if the file does not hold a state.

    >>> import asyncdata as ad, os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "state.json")
    >>> save(path, iter(ad.Dataset.range(10)).state_dict())
    >>> next(ad.Dataset.range(10).iterate(state=load(path)))
    0
    """
    content = Path(local_path(path, "a state")).read_bytes()
    try:
        state = parse_json(content)
    except ValueError as error:
        raise ResumeError(f"{os.fspath(path)}: not a state: {len(content)} bytes that are not JSON: {error}") from error
    if not isinstance(state, dict) or "version" not in state:
        raise ResumeError(f"{os.fspath(path)}: not a state: {state!r:.80}")
    return cast("dict[str, Any]", state)


def save_share(folder: str | os.PathLike[str], state: Mapping[str, Any], checkpoint: int | str | None = None) -> None:
    """Write the state of one process into a folder that all processes write to, such as that of the model's checkpoint.

    The file is named by the share, `asyncdata-1-of-4.json`. Without `shard()` or `balance()` all processes have the
    same state, in `asyncdata.json`. `checkpoint` is what all states of one checkpoint have in common, such as the
    training step: `load_shares` refuses a folder in which some files are of another one, as after a machine has stopped
    while it overwrote them.

    >>> import asyncdata as ad, os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with ad.Dataset.range(12).shard(4, 1).iterate() as numbers:
    ...     _ = next(numbers)
    ...     save_share(folder, numbers.state_dict(), checkpoint=1000)
    >>> os.listdir(folder)
    ['asyncdata-1-of-4.json']
    """
    marked = state if checkpoint is None else with_checksum({**state, "checkpoint": checkpoint})
    save(Path(local_path(folder, "a state")) / share_file(state), marked)


def share_file(state: Mapping[str, Any]) -> str:
    """Return the name of the file that holds the state of one share."""
    shares = dict.fromkeys(map(Share._make, checked(state)["shares"]))
    return f"asyncdata{''.join(f'-{share.number}-of-{share.num_shards}' for share in shares)}.json"


def load_shares(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the states of all processes, as `save_share` wrote them, to resume with as many processes or another number.

    Give the result to `load_state_dict` or `iterate(state=)`. If as many processes resume, each finds the state of its
    own share in it, also where one `shard()` comes after another. If there are more or fewer, the states are merged, as
    by `merge_states`. `ResumeError` if a share is missing, or one is of another checkpoint.

    >>> import asyncdata as ad, tempfile
    >>> def share(count, index):
    ...     return ad.Dataset.range(12).shard(count, index).batch(2)
    >>> folder = tempfile.mkdtemp()
    >>> for index in range(2):                       # two processes
    ...     with share(2, index).iterate() as batches:
    ...         _ = next(batches)
    ...         save_share(folder, batches.state_dict())
    >>> list(share(2, 1).iterate(state=load_shares(folder)))
    [array([5, 7]), array([ 9, 11])]
    >>> [list(share(4, index).iterate(state=load_shares(folder))) for index in range(4)]
    [[array([4, 8])], [array([5, 9])], [array([ 6, 10])], [array([ 7, 11])]]
    """
    folder = os.fspath(folder)
    files = sorted(Path(local_path(folder, "a state")).glob(SHARE_FILES))
    if not files:
        raise ResumeError(f"{folder}: no state found: save_share writes files {SHARE_FILES}")
    states = [load(file) for file in files]
    saved: dict[Any, str] = {}
    for file, state in zip(files, states, strict=True):
        saved.setdefault(state.get("checkpoint"), file.name)
    if len(saved) > 1:
        found = ", ".join(f"{name} of checkpoint {checkpoint!r}" for checkpoint, name in saved.items())
        raise ResumeError(f"{folder}: the states are not of one checkpoint: {found}; {OWN_FOLDER}")
    if not has_nested_shares(shares_of_all([*map(checked, states)])):
        names = ", ".join(file.name for file in files[:MOST_NAMES])
        more = f" and {len(files) - MOST_NAMES} more" if len(files) > MOST_NAMES else ""
        raise ResumeError(
            f"{folder}: a process has not saved its state, or files of another number of processes are left; "
            f"found {names}{more}: {OWN_FOLDER}"
        )
    return {"ranks": states}


def merge_states(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the states of all processes that read shares of a dataset into one, wherever each stopped.

    Another number of processes can resume from it; each builds the same pipeline with its own `shard(num_shards,
    index)`. Elements that were not delivered are divided between them, in another order; nothing is lost or repeated.
    All states must be of the same epoch. `ResumeError` if they do not belong together.

    >>> import asyncdata as ad
    >>> def share(count, index):
    ...     return ad.Dataset.range(12).shard(count, index).batch(2)
    >>> states = []
    >>> for index in range(3):
    ...     with share(3, index).iterate() as batches:
    ...         _ = next(batches)
    ...         states.append(batches.state_dict())
    >>> [list(share(2, index).iterate(state=merge_states(states))) for index in range(2)]
    [[array([6, 8]), array([10])], [array([7, 9]), array([11])]]
    """
    return merged([checked(state) for state in states])


def inspect_state(state: Mapping[str, Any]) -> str:
    """Return a readable text of a state.

    >>> import asyncdata as ad
    >>> with ad.Dataset.range(10).batch(2).iterate() as batches:
    ...     _ = next(batches)
    ...     print(inspect_state(batches.state_dict()))
    plan       range(10) → batch(2)
    epoch      0
    delivered  1
    position   [2]
    size       129 bytes
    """
    position = checked(state)["position"]
    shown = "at the beginning" if position is None else "at the end" if position == END else readable(position)
    size = len(json.dumps(state, separators=(",", ":")))
    shares = ", ".join(f"{share.number} of {share.num_shards}" for share in map(Share._make, state["shares"]))
    rows = {
        "plan": " → ".join(map(label_text, state["plan"])),
        **({"shares": f"{len(position or ())} merged" if "merged" in state else shares} if shares else {}),
        "epoch": state["epoch"],
        "delivered": state["delivered"],
        "position": shown,
        "size": f"{size} bytes",
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items())


def readable(position: Position) -> str:
    """Return a position as text, without unreadable parts."""

    def shorter(fields: dict[str, Any]) -> Any:
        return f"{fields['packed']} elements" if "packed" in fields else fields

    return json.dumps(json.loads(json.dumps(position), object_hook=shorter))
