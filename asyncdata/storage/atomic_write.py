"""Atomic writes of small files, and the folder for files that can be recreated."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

__all__ = ("cache_folder", "sync_folder", "write_atomically")


def write_atomically(path: str | os.PathLike[str], content: bytes, *, durable: bool) -> None:
    """Write a file, or replace an existing one; readers see either the old or the new content.

    If `durable`, the file survives a crash of the machine after this returns.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name.lstrip('.')}.{secrets.token_hex(4)}")
    try:
        with open(partial, "xb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(partial, target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    if durable:
        sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, on systems where folders can be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the folder for cached files: `$ASYNCDATA_CACHE`, or the platform's cache folder.

    Raises `RuntimeError` if the user has no home folder.
    """
    if chosen := os.environ.get("ASYNCDATA_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "asyncdata" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/asyncdata").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "asyncdata"
