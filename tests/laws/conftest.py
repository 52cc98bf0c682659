"""Modules here that need packages of an extra."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore = (
    []
    if find_spec("pyarrow")
    else ["refused_tables.py", "table_types.py", "tables.py", "test_formats.py", "test_tables.py"]
)
