"""The logs that a command line names, and what of them cannot be read."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from asyncdata.persistence.run_log_files import paths_of
from asyncdata.recorder.log_reader import Logs, read_logs

__all__ = ("logs_in",)


def logs_in(patterns: Sequence[str]) -> Logs:
    """Return what the logs have that names and patterns mean; print what was cut off or is damaged."""
    logs = read_logs(paths_of(patterns))
    for note in [*logs.notes, *logs.faults]:
        print(f"note: {note}", file=sys.stderr)
    return logs
