"""What a request's failure is, whether it may pass, and how long to wait before it is made again."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, cast

from asyncdata.errors import AsyncDataError, DataLossError
from asyncdata.runtime.retry_count import count_retry

__all__ = (
    "NoRangesError",
    "NotSatisfiableError",
    "RefusedError",
    "Retries",
    "ShortError",
    "Tries",
    "explained",
    "without_secrets",
)

STATUS: Final = re.compile(r"status code: (\d{3})")

QUERY: Final = re.compile(r"\?[^\s)\]}>\"']*")
"""The query of a URL, in which signatures are."""

USER: Final = re.compile(r"://[^\s/@]*@")

PASSING: Final = frozenset({408, 425, 429, *range(500, 600)}) - {501, 505}
"""Statuses of answers that may be others when the same is asked again."""

REFUSALS: Final = frozenset({429, 503})
"""Statuses of an endpoint that has too many requests."""

NOBODY: Final = ("dns error", "Connection refused")
"""What tells that there was no endpoint to talk to."""

NO_CREDENTIALS: Final = re.compile(
    r"169\.254\.|metadata\.google|fd00:ec2|Missing(Access|Region|Secret)|credential", re.IGNORECASE
)


KNOWN: Final = frozenset({PermissionError, OSError})

STATUSES: Final = {"FileNotFoundError": 404, "PermissionDeniedError": 403, "UnauthenticatedError": 401}
"""What obstore's kinds of errors stand for."""

GENERIC: Final = frozenset({"GenericError", "JoinError"})


class RefusedError(ConnectionError):
    """The endpoint has too many requests."""


class ShortError(ConnectionError):
    """An answer ended before all of what was promised."""


class NoRangesError(OSError):
    """The server gives no parts of files."""


class NotSatisfiableError(OSError):
    """There are no bytes at the place that was asked for."""


class Retries:
    """How often a request is made and how long is waited in between: jittered, and twice as long each time."""

    def __init__(self, most: int = 10, first: float = 0.1, longest: float = 15.0) -> None:
        self.most = most
        self.first = first
        self.longest = longest

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> Retries:
        """Return what obstore's `retry_config` says."""
        config = config or {}
        backoff = cast("dict[str, Any]", config.get("backoff") or {})
        return cls(
            int(config.get("max_retries", 10)),
            seconds(backoff.get("init_backoff", 0.1)),
            seconds(backoff.get("max_backoff", 15.0)),
        )


class Tries:
    """The tries of one request."""

    def __init__(self, retries: Retries) -> None:
        self.retries = retries
        self.failed = 0

    def pause(self, error: Exception) -> float:
        """Return how many seconds to wait before the next try; raise the error if it will not pass, or has not."""
        if not isinstance(error, (ConnectionError, TimeoutError)):
            raise error
        most = self.retries.most
        if isinstance(error, ConnectionRefusedError):
            most = min(most, 4)  # a wrong address is told soon
        if self.failed >= most:
            last = DataLossError(str(error)) if isinstance(error, ShortError) else error
            if self.failed:
                last.add_note(f"after {self.failed + 1} tries")
            raise last from None
        longest = min(self.retries.longest, self.retries.first * 2**self.failed)
        self.failed += 1
        count_retry()
        return longest * random.uniform(0.5, 1.0)


def seconds(value: Any) -> float:
    """Return a duration in seconds."""
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def explained(error: Exception, url: str) -> Exception:
    """Return what a failure of obstore's is: an error of Python's that names the object and has no secrets.

    `ConnectionError` and `TimeoutError` may pass.
    """
    if isinstance(error, (AsyncDataError, RuntimeError, ConnectionError, TimeoutError)) or type(error) in KNOWN:
        return error
    text, kind = str(error), type(error).__name__
    words = without_secrets(text.partition("\n")[0])
    found = STATUS.search(text)
    status = STATUSES.get(kind, int(found[1]) if found else 0)
    if status in {401, 403}:
        return PermissionError(errno.EACCES, f"access denied: {words}", url)
    if status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object" + bucket(text), url)
    if kind == "NotSupportedError" and "ange" in text:
        return NoRangesError(errno.ENOTSUP, "the server does not support range requests", url)
    if status == 416:
        return NotSatisfiableError(errno.EINVAL, words, url)
    return unanswered(text, words, url, status) if kind in GENERIC else OSError(errno.EIO, words, url)


def unanswered(text: str, words: str, url: str, status: int) -> Exception:
    """Return the error for a request that nobody has answered, or with a status of no certain meaning."""
    if status in REFUSALS:
        return RefusedError(f"{url}: the endpoint refuses requests, as it has too many: {words}")
    if (status and status not in PASSING) or "builder error" in text:
        return OSError(errno.EIO, words, url)
    if NO_CREDENTIALS.search(text) and not status:
        return PermissionError(
            errno.EACCES,
            "no credentials were found; configure them as for the cloud's own tools, or in storage_options, or "
            f"read public objects with storage_options={{'skip_signature': True}} ({words})",
            url,
        )
    return passing(text, words, url)


def passing(text: str, words: str, url: str) -> Exception:
    """Return the error for what may pass."""
    if "kind: Timeout" in text or "timed out" in text:
        return TimeoutError(f"{url}: {words}")
    if any(one in text for one in NOBODY):
        return ConnectionRefusedError(f"{url}: no server answers: {words}")
    return ConnectionError(f"{url}: {words}")


def bucket(text: str) -> str:
    """Say if it is the bucket that is not there."""
    return ", as there is no such bucket" if "NoSuchBucket" in text or "ContainerNotFound" in text else ""


def without_secrets(words: str) -> str:
    """Return a message without what URLs in it have of passwords and signatures."""
    return USER.sub("://", QUERY.sub("?…", words))
