"""Imported in a fork server after the installed modules: the server ends if they have started threads, before it forks.

A thread is missing in a forked process, and what it held locked stays so there. A device in use cannot be forked, too,
and has threads.
"""

from __future__ import annotations

import os

from asyncdata.executors.process.preload_begins import BEFORE
from asyncdata.system.native_threads import unexpected_threads

__all__ = ()

if unexpected_threads() > BEFORE:
    os._exit(0)  # without waiting for them
