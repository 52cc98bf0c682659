"""Which files here are no tests."""

from __future__ import annotations

collect_ignore = ["programs"]  # each is run in a process of its own
