"""The dashboards of the ranks of one run on this machine, which find each other by files in a private folder."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from asyncdata.system.loopback import is_loopback
from asyncdata.system.optional_packages import require
from asyncdata.system.rank import Rank

__all__ = ("RankPages", "rank_here", "run_of")

RUN: Final = (
    "TORCHELASTIC_RUN_ID",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_JOB_ID",
    "SLURM_STEP_ID",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
)
"""The variables with which launchers tell the ranks of a run where they meet."""

HERE: Final = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
MOST_BYTES: Final = 1000


def run_of(world: int) -> str:
    """Return a name of the run that its ranks share; empty if the launcher tells nothing of it."""
    told = {name: os.environ[name] for name in RUN if os.environ.get(name)}
    content = json.dumps([world, told], sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()[:32] if told else ""


def rank_here(rank: int) -> int:
    """Return the number of this rank on its machine, if the launcher tells it; else among all."""
    told = next((os.environ[name] for name in HERE if os.environ.get(name, "").isdecimal()), "")
    return int(told or rank)


class RankPages:
    """Tells other ranks the URL of this one's page, and finds theirs.

    Each rank writes a file into a folder that is only this user's, with its URL and its process. A file of a process
    that is gone counts as none: one that was killed leaves it there.
    """

    def __init__(self, run: str, rank: int) -> None:
        self.psutil: Any = require("psutil", "the dashboard", "'asyncdata[dashboard]'")
        self.run, self.rank = run, rank
        self.folder = private_folder()
        self.told = b""

    @classmethod
    def of(cls, found: Rank) -> RankPages | None:
        """Return the pages of this process's run; `None` if that is unknown, or no folder is only this user's."""
        run = run_of(found.world) if found.world > 1 else ""
        with suppress(OSError):
            return cls(run, found.rank) if run else None
        return None

    def path(self, rank: object) -> Path:
        return self.folder / f"{self.run}-{rank}.json"

    def enter(self, url: str) -> None:
        """Tell the others the URL of this rank's page."""
        told = {"url": url, "pid": os.getpid(), "began": self.psutil.Process().create_time()}
        self.told = json.dumps(told).encode()
        with suppress(OSError):  # the page is shown all the same
            unfinished = self.path(self.rank).with_suffix(f".{os.getpid()}")
            unfinished.write_bytes(self.told)
            unfinished.replace(self.path(self.rank))

    def leave(self) -> None:
        """Remove what `enter` wrote, unless the rank has begun again since."""
        with suppress(OSError):
            if self.path(self.rank).read_bytes() == self.told:
                self.path(self.rank).unlink()

    def others(self) -> list[str]:
        """Return the URLs of the other ranks' pages, if this is the lowest rank here; else nothing."""
        urls: dict[int, str] = {}
        for path in self.folder.glob(self.path("*").name):
            rank = path.stem.rpartition("-")[2]
            if rank.isdecimal() and int(rank) != self.rank and (url := self.url(path)):
                urls[int(rank)] = url
        return [url for _, url in sorted(urls.items())] if self.rank < min(urls, default=self.rank) else []

    def url(self, path: Path) -> str:
        """Return the URL of a rank that runs on this machine; empty if it does not."""
        try:
            told = json.loads(path.read_bytes()[:MOST_BYTES])
            url, began = str(told["url"]), float(told["began"])
            runs = abs(self.psutil.Process(int(told["pid"])).create_time() - began) < 1
            return url if runs and is_loopback(urlsplit(url).hostname or "") else ""
        except (OSError, ValueError, TypeError, KeyError, self.psutil.Error):
            return ""


def private_folder() -> Path:
    """Return the folder of this user's runs; `OSError` if others may write into it."""
    user = str(os.getuid()) if hasattr(os, "getuid") else ""  # the temporary folder of Windows is the user's own
    folder = Path(tempfile.gettempdir()) / f"asyncdata-dashboards-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if user and (found.st_uid != os.getuid() or found.st_mode & 0o077 or not folder.is_dir() or folder.is_symlink()):
        raise PermissionError(f"{folder} is not only this user's")
    return folder
