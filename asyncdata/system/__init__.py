"""What surrounds a pipeline: processes and forks, signals, cores and memory of the machine, optional packages."""

from __future__ import annotations

__all__ = ()
