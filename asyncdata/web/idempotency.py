"""Idempotency keys: whether a request came before, with the same body."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from asyncdata.errors import PlanError

__all__ = (
    "BODY_DIGEST",
    "KEY_DIGEST",
    "UNKNOWN_BODY",
    "KeyReusedError",
    "check_same_body",
    "digest_of_body",
    "digest_of_key",
)

KEY_DIGEST: Final = 16
BODY_DIGEST: Final = 8

UNKNOWN_BODY: Final = bytes(BODY_DIGEST)
"""The digest of a body that is not known: earlier versions of asyncdata stored the keys alone."""


class KeyReusedError(PlanError):
    """An idempotency key came with another body before."""


def digest_of_key(key: str) -> bytes:
    """Return the digest of an idempotency key."""
    return blake2b(key.encode(), digest_size=KEY_DIGEST).digest()


def digest_of_body(form: str, body: bytes) -> bytes:
    """Return the digest of a body of some format."""
    return blake2b(body, digest_size=BODY_DIGEST, person=form.encode()).digest()


def check_same_body(before: bytes, now: bytes) -> None:
    """Raise if a key came with another body before; these are the digests of both."""
    if UNKNOWN_BODY not in (before, now) and before != now:
        raise KeyReusedError(
            "the idempotency key was used before with another body: a request that is sent again has the same body, "
            "and another request needs another key"
        )
