"""The index of a folder of shards: a JSON file that names them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from asyncdata.errors import DataLossError
from asyncdata.storage import StorageOptions, is_local, read_head, without_query
from asyncdata.storage.cached import blocking

__all__ = ("inside", "joined", "reading_index")

LARGEST_INDEX: Final = 1 << 30
"""More bytes than any index has."""


@contextmanager
def reading_index(folder: str, what: str, storage: StorageOptions | None, name: str = "index.json") -> Generator[Any]:
    """Give what the index of a folder says; what its reading raises, inside too, is a `DataLossError` that names it."""
    path = joined(folder, name)
    try:
        content = blocking(lambda: read_head(path, LARGEST_INDEX, storage))
    except (FileNotFoundError, NotADirectoryError) as error:
        error.add_note(
            f"a folder of {what} has a file {name}: give the folder in which that is, here or by URL; a name on a "
            "hub is neither"
        )
        raise
    try:
        yield json.loads(content)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError, RecursionError) as error:
        raise DataLossError(
            f"{without_query(path)}: it is no index of {what}: {type(error).__name__}: {error}"
        ) from None


def inside(name: str) -> str:
    """Return a name that stays in its folder."""
    if posixpath.isabs(name) or ".." in re.split(r"[/\\]", name) or "://" in name:
        raise DataLossError(f"the shard {name!r} is outside of the folder")
    return name


def joined(folder: str, name: str) -> str:
    """Return the path or URL of a name in a folder; what follows a `?` in a URL stays at the end."""
    address, mark, query = folder.partition("?") if not is_local(folder) else (folder, "", "")
    return f"{address.rstrip('/')}/{name}{mark}{query}" if name else folder
