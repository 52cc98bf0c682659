"""Recognises hosts that are this machine."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit

__all__ = ("is_loopback", "is_loopback_authority")


@lru_cache(maxsize=256)
def is_loopback(host: str | None) -> bool:
    """Return whether a host is this machine; `None` is a client of a local socket."""
    if host is None or host == "localhost":
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return (mapped or address).is_loopback


@lru_cache(maxsize=256)
def is_loopback_authority(authority: str) -> bool:
    """Return whether the value of a header `Host` names this machine; a malformed one names none.

    >>> is_loopback_authority("127.0.0.1:8000"), is_loopback_authority("evil.example"), is_loopback_authority("[")
    (True, False, False)
    """
    try:
        return is_loopback(urlsplit(f"//{authority}").hostname or "")
    except ValueError:
        return False
