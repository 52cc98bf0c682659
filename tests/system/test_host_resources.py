"""What may be used of machines that are only told of, by folders such as Linux has them."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path

import pytest

from asyncdata.system import host_resources
from asyncdata.system.host_resources import available_bytes, idle_cores, idle_seconds, most_bytes, quota, usable_cores

MB = 1 << 20
MEMINFO = {"proc/meminfo": "MemTotal: 8192 kB\nMemFree: 10 kB\nMemAvailable: 4096 kB\nHugePages_Total: 0\n"}
V2 = {"proc/self/cgroup": "0::/jobs/one\n", **MEMINFO}
V1 = {"proc/self/cgroup": "5:cpu,cpuacct:/docker/x\n4:memory:/docker/x\n1:name=systemd:/\n", **MEMINFO}


def root_of(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({}, math.inf),
        (V2, math.inf),
        ({**V2, "sys/fs/cgroup/jobs/one/cpu.max": "max 100000\n"}, math.inf),
        ({**V2, "sys/fs/cgroup/jobs/one/cpu.max": "150000 100000\n"}, 1.5),
        (
            {
                **V2,
                "sys/fs/cgroup/jobs/cpu.max": "50000 100000\n",
                "sys/fs/cgroup/jobs/one/cpu.max": "150000 100000\n",
            },
            0.5,
        ),
        ({**V2, "sys/fs/cgroup/cpu.max": "400000 100000\n"}, 4.0),  # in a container that is told the host's path
        ({**V1, "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n"}, math.inf),
        (
            {
                **V1,
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_quota_us": "250000\n",
                "sys/fs/cgroup/cpu,cpuacct/docker/x/cpu.cfs_period_us": "100000\n",
            },
            2.5,
        ),
        ({**V2, "sys/fs/cgroup/jobs/one/cpu.max": "nonsense"}, math.inf),
        ({**V2, "sys/fs/cgroup/jobs/one/cpu.max": "100000 0"}, math.inf),
        ({"proc/self/cgroup": "nonsense\n0::/../..\n"}, math.inf),
    ],
)
def test_the_quota_of_cores_is_the_least_of_all_groups_around(
    tmp_path: Path, files: dict[str, str], cores: float
) -> None:
    assert quota(root_of(tmp_path, files)) == cores


@pytest.mark.parametrize(("limit", "cores"), [(math.inf, 8), (1.5, 2), (0.1, 1), (4.0, 4), (64.0, 8)])
def test_usable_cores_are_those_of_the_affinity_within_the_quota(
    monkeypatch: pytest.MonkeyPatch, limit: float, cores: int
) -> None:
    monkeypatch.setattr(host_resources, "quota", lambda: limit)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 8, raising=False)
    assert usable_cores() == cores


def test_cores_are_counted_in_one_place() -> None:
    """Which knows affinity and quotas. The dashboard shows the whole machine."""
    package = Path(host_resources.__file__).parents[1]
    counting = re.compile(r"cpu_count|sched_getaffinity|available_cpu_count")
    found = {path.stem for path in package.rglob("*.py") if counting.search(path.read_text(encoding="utf-8"))}
    assert found == {"host_resources", "processes"}
    assert "os.cpu_count" not in (package / "observe" / "processes.py").read_text(encoding="utf-8")


def test_usable_cores_of_this_machine() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 1)


@pytest.mark.parametrize(
    ("files", "free", "most"),
    [
        (V2, 4 * MB, 8 * MB),
        (
            {**V2, "sys/fs/cgroup/jobs/one/memory.max": "max\n", "sys/fs/cgroup/jobs/one/memory.current": "77\n"},
            4 * MB,
            8 * MB,
        ),
        (
            {
                **V2,
                "sys/fs/cgroup/jobs/memory.max": f"{3 * MB}\n",
                "sys/fs/cgroup/jobs/memory.current": f"{2 * MB}\n",
                "sys/fs/cgroup/jobs/memory.stat": f"anon 5\ninactive_file {MB // 2}\nactive_file {MB // 4}\n",
                "sys/fs/cgroup/jobs/one/memory.max": f"{6 * MB}\n",
                "sys/fs/cgroup/jobs/one/memory.current": f"{MB}\n",
            },
            MB + MB // 2 + MB // 4,
            3 * MB,
        ),
        (
            {
                **V1,
                "sys/fs/cgroup/memory/memory.limit_in_bytes": f"{3 * MB}\n",
                "sys/fs/cgroup/memory/memory.usage_in_bytes": f"{2 * MB}\n",
                "sys/fs/cgroup/memory/memory.stat": f"inactive_file 1\ntotal_inactive_file {MB}\n",
            },
            2 * MB,
            3 * MB,
        ),
        (
            {**V2, "sys/fs/cgroup/memory.max": f"{MB}\n", "sys/fs/cgroup/memory.current": f"{2 * MB}\n"},
            0,
            MB,
        ),
    ],
)
def test_memory_is_what_the_machine_and_all_groups_around_have_left(
    tmp_path: Path, files: dict[str, str], free: int, most: int
) -> None:
    root = root_of(tmp_path, files)
    assert (available_bytes(root), most_bytes(root)) == (free, most)


def test_memory_where_no_file_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available_bytes(tmp_path) == most_bytes(tmp_path) >= 1 << 20
    monkeypatch.delattr(os, "sysconf", raising=False)
    assert available_bytes(tmp_path) == most_bytes(tmp_path) == 4 << 30


def test_memory_of_this_machine() -> None:
    assert 0 < available_bytes() <= most_bytes()


def test_idle_cores_are_those_that_the_process_may_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda _: 100)
    rows = [
        f"{name} 10 20 30 {idle} 5 0 0 0 0 0" for name, idle in [("cpu", 999), ("cpu0", 95), ("cpu1", 7), ("cpu2", 95)]
    ]
    assert idle_seconds(root_of(tmp_path, {"proc/stat": "\n".join([*rows, "intr 1 2", ""])})) == 2.0
    assert idle_seconds(tmp_path / "nowhere") is None


def test_two_looks_tell_how_many_cores_were_idle() -> None:
    assert idle_cores((1.0, 10.0), (3.0, 13.0)) == 1.5
    assert idle_cores((1.0, 10.0), (1.05, 10.1)) is None
    assert idle_cores((1.0, None), (3.0, 13.0)) is None
