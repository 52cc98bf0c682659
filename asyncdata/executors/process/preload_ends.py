"""Imported in a fork server after the installed modules: the server ends if one of them has failed, or has started
threads, before it forks.

A thread is missing in a forked process, and what it held locked stays so there. A device in use cannot be forked, too,
and has threads. The server goes on after an `ImportError`, and parts of a package that were imported before it stay: in
a worker they would be no attributes of the package, which is imported anew.
"""

from __future__ import annotations

import os
import sys
from inspect import currentframe

from asyncdata.executors.process.preload_begins import BEFORE
from asyncdata.system.native_threads import unexpected_threads

__all__ = ()


def modules_to_import() -> list[str]:
    """Return the modules that this server was told to import, which are with its callers."""
    frame = currentframe()
    while frame is not None and "preload" not in frame.f_locals:
        frame = frame.f_back
    return [] if frame is None else frame.f_locals["preload"]


def has_failed(modules: list[str]) -> bool:
    """Return whether an installed module, behind `preload_begins`, was not imported, or a package that it is in."""
    begin = f"{__package__}.preload_begins"
    installed = [name.split(".") for name in (modules[modules.index(begin) :] if begin in modules else [])]
    return any(".".join(parts[: count + 1]) not in sys.modules for parts in installed for count in range(len(parts)))


if unexpected_threads() > BEFORE or has_failed(modules_to_import()):
    os._exit(0)  # without waiting for them
