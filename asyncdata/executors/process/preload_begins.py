"""Imported in a fork server before the installed modules: what they import is not looked for in the current folder.

The fork server would find modules there first, the program only those beside its script.
"""

from __future__ import annotations

import sys

from asyncdata.system.native_threads import unexpected_threads

__all__ = ("BEFORE",)

sys.path[:] = [folder for folder in sys.path if folder]

BEFORE = unexpected_threads()
"""How many threads there were before."""
