"""Small files written whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

__all__ = ("write_whole",)


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
