"""Which hosts are this machine."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address

__all__ = ("is_loopback",)


@lru_cache(maxsize=256)
def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine; who has no address came by a local socket."""
    if host is None or host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
