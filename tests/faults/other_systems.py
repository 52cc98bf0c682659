"""What macOS and Windows have not, on Linux: a program that calls `pretend` first runs as far as it would there.

Modules of the standard library are imported before, as these choose by the system where they are imported.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import email.message
import http.server
import importlib
import logging.handlers
import mmap
import multiprocessing.forkserver
import multiprocessing.popen_fork
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker
import os
import platform
import resource
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from tests.faults import windows

__all__ = ("pretend",)

LOADED = (asyncio, concurrent.futures, email.message, http.server, logging.handlers, multiprocessing, platform)
LOADED_TOO = (subprocess, tempfile, urllib.request, sysconfig.get_config_vars(), np)

LINUX = (
    "memfd_* MFD_* pidfd_* posix_fadvise POSIX_FADV_* posix_fallocate fdatasync sched_* SCHED_* eventfd* "
    "EFD_* getrandom GRND_* splice SPLICE_* copy_file_range RWF_* O_DIRECT O_TMPFILE O_PATH O_NOATIME "
    "O_LARGEFILE O_RSYNC getxattr listxattr setxattr removexattr XATTR_* pipe2 getres* setres* unshare "
    "setns CLONE_* timerfd_* TFD_* waitid P_PIDFD"
)
"""Names of `os` that only Linux has; a star stands for any ending."""

POSIX = (
    "fork* WNOHANG WIF* WEXITSTATUS WTERMSIG WSTOPSIG WUNTRACED WCONTINUED WCOREDUMP WEXITED WSTOPPED "
    "WNOWAIT wait wait3 wait4 getuid geteuid getgid getegid getgroups setuid setgid sete* setre* "
    "setgroups initgroups getgrouplist getpg* getsid setsid setpg* killpg nice getpriority setpriority "
    "PRIO_* pread preadv pwrite pwritev readv writev sendfile lockf mkfifo mknod major minor makedev "
    "statvfs fstatvfs fpathconf pathconf* sysconf* confstr* fchmod fchown lchown chown fchdir chroot sync "
    "openpty login_tty ttyname tcgetpgrp tcsetpgrp ctermid getloadavg uname register_at_fork posix_spawn* "
    "POSIX_* O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_SYNC O_DSYNC O_NDELAY O_NOCTTY O_ASYNC "
    "O_ACCMODE"
)
"""Names of `os` that Windows has not either."""

OTHERS: dict[Any, tuple[str, ...]] = {
    time: ("pthread_getcpuclockid", "CLOCK_BOOTTIME", "CLOCK_TAI"),
    select: ("epoll",),
    socket: ("SO_PEERCRED", "SO_PASSCRED", "AF_NETLINK", "AF_PACKET", "AF_VSOCK"),
    resource: ("RUSAGE_THREAD", "prlimit"),
    signal: ("sigtimedwait", "sigwaitinfo", "SIGRTMIN", "SIGPWR"),
    mmap: ("MAP_POPULATE", "MADV_HUGEPAGE", "MADV_DONTFORK", "MADV_REMOVE"),
}
NOT_ON_WINDOWS: dict[Any, tuple[str, ...]] = {
    select: ("poll",),
    socket: ("SO_REUSEPORT",),
    signal: ("SIGALRM", "SIGKILL", "SIGHUP", "SIGUSR1", "SIGCHLD", "setitimer", "pthread_sigmask", "pthread_kill"),
    mmap: ("MAP_SHARED", "MAP_PRIVATE", "PROT_READ", "PROT_WRITE"),
}


def pretend(system: str) -> None:
    """Make this process lack what `"darwin"` or `"win32"` has not."""
    asyncio.new_event_loop().close()  # from Python 3.14 on the first one chooses by the system
    remove_from_os(LINUX)
    remove(OTHERS)
    if sys.version_info >= (3, 13):
        os.process_cpu_count = os.cpu_count
    sys.modules["uvloop"] = None if system == "win32" else importlib.import_module("uvloop")  # type: ignore[assignment]
    if system == "win32":
        multiprocessing.get_all_start_methods = lambda: ["spawn"]
        windows.pretend()
        vars(shutil).update({"_use_fd_functions": False, "_rmtree_impl": vars(shutil)["_rmtree_unsafe"]})
        ssl.enum_certificates = lambda store: []  # type: ignore[attr-defined]
        remove_from_os(POSIX)
        remove(NOT_ON_WINDOWS)
    sys.platform = system


def remove_from_os(patterns: str) -> None:
    for name in [*vars(os)]:
        if any(fnmatchcase(name, pattern) for pattern in patterns.split()):
            delattr(os, name)


def remove(names: dict[Any, tuple[str, ...]]) -> None:
    for module, attributes in names.items():
        for name in attributes:
            if hasattr(module, name):
                delattr(module, name)
