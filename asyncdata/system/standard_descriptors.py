"""Standard input, output and error of a process that was started without some of them, as daemons and cron may do."""

from __future__ import annotations

import os
from contextlib import suppress

__all__ = ("take_standard_descriptors",)


def take_standard_descriptors() -> None:
    """Open the null device as standard input, output and error where these are closed.

    Otherwise the next files and sockets get their numbers: what a library prints would be written into them, and libuv
    aborts the process when one of them is closed. Processes that are started later inherit the null device.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            with suppress(OSError):  # no descriptor is left, which the caller will notice
                taken = os.open(os.devnull, os.O_RDWR)
                if taken == number:
                    os.set_inheritable(taken, True)
                else:  # another thread has opened a file meanwhile
                    os.close(taken)
