"""Files of our own: written whole or not at all, and where those go that can be made again."""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

__all__ = ("cache_folder", "sync_folder", "write_whole")


def write_whole(path: str | os.PathLike[str], content: bytes, *, durable: bool) -> None:
    """Write a file in place of another, if there is one; who reads it meanwhile gets one of the two.

    If `durable`, it is on the disk when this returns, should the machine stop then.
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
    """Have the disk know a file's new name, where folders can be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Return the folder that cached files go to: `$ASYNCDATA_CACHE`, or the platform's own place.

    Raises `RuntimeError` if there is no home to look for it in.
    """
    if chosen := os.environ.get("ASYNCDATA_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", "~/AppData/Local")).expanduser() / "asyncdata" / "Cache"
    if sys.platform == "darwin":
        return Path("~/Library/Caches/asyncdata").expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "asyncdata"
