"""Run ids: which run of a program a log and a state are of, so that logs of two runs are not taken for one."""

from __future__ import annotations

import os
import secrets
from functools import cache
from hashlib import blake2b
from typing import Final

__all__ = ("JOB", "run_id")

JOBS: Final = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "RAY_JOB_ID")
"""Where launchers say which job all of its processes belong to."""

NO_JOB: Final = ("", "none")

JOB: Final = "job-"
"""How an id begins that all processes of a job have, on all machines."""


@cache
def run_id() -> str:
    """Return the id of what this process begins: that of its job, if a launcher said one, or one of its own.

    What is resumed from a state has the ids of the run that saved it instead.
    """
    for name in JOBS:
        job = os.environ.get(name, "")
        if job.lower() not in NO_JOB:
            return JOB + blake2b(f"{name}={job}".encode(), digest_size=6).hexdigest()
    return secrets.token_hex(6)
