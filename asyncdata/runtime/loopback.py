"""Recognises hosts that are this machine."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address

__all__ = ("is_loopback",)


@lru_cache(maxsize=256)
def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine; `None` is a client of a local socket."""
    if host is None or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
