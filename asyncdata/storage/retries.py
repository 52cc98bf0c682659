"""Retries: translates errors of requests, and says which are transient and how long to wait before the next try.

Reasons and measurements: docs/design.md, "Objects in stores".
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Final, cast

from asyncdata.errors import AsyncDataError, DataLossError
from asyncdata.redaction import redacted
from asyncdata.runtime.retry_count import count_retry

__all__ = (
    "KeyUnreadableError",
    "NoLengthError",
    "NoRangesError",
    "NotSatisfiableError",
    "RefusedError",
    "Retries",
    "ShortError",
    "Tries",
    "explained",
)

MARKUP: Final = re.compile(r"<(\?xml|!DOCTYPE|html|Error|ErrorResponse)\b", re.IGNORECASE)
SAID: Final = (re.compile(r"<Code>([^<]*)"), re.compile(r"<Message>([^<]*)"))

STATUS: Final = re.compile(r"status code: (\d{3})")

TRANSIENT: Final = frozenset({408, 425, 429, *range(500, 600)}) - {501, 505}
"""Statuses that are worth a retry."""

REFUSALS: Final = frozenset({429, 503})
"""Statuses of an endpoint that is overloaded or limits the rate of requests."""

UNREACHABLE: Final = ("dns error", "Connection refused")
"""Texts of errors that say that no endpoint was reached."""

FINAL: Final = ("builder error", "Header missing from response", "Failed to parse value for", "following redirect")
"""Texts of errors of a request or an answer that would be the same again."""

METADATA: Final = re.compile(r"http://(169\.254\.|metadata\.google|\[fd00:ec2)", re.IGNORECASE)
"""Addresses that a machine of a cloud asks for its credentials."""

NO_CREDENTIALS: Final = re.compile(
    r"169\.254\.|metadata\.google|fd00:ec2|Missing(Access|Region|Secret)|credential", re.IGNORECASE
)


KNOWN: Final = frozenset({PermissionError, OSError})

STATUSES: Final = {"FileNotFoundError": 404, "PermissionDeniedError": 403, "UnauthenticatedError": 401}
"""The statuses that obstore's error classes stand for."""

GENERIC: Final = frozenset({"GenericError", "JoinError"})


class RefusedError(ConnectionError):
    """The endpoint refuses requests because it has too many."""


class ShortError(ConnectionError):
    """An answer was shorter than announced."""


class NoRangesError(OSError):
    """The server does not support range requests."""


class NoLengthError(OSError):
    """The server does not say how long a file is."""


class NotSatisfiableError(OSError):
    """The requested range is beyond the end."""


class KeyUnreadableError(OSError):
    """A listing has a key that obstore cannot parse."""


class Retries:
    """The number of tries and the pauses between them: exponential backoff with jitter."""

    def __init__(self, most: int = 10, first: float = 0.1, longest: float = 15.0) -> None:
        self.most = most
        self.first = first
        self.longest = longest

    @classmethod
    def of(cls, config: Mapping[str, Any] | None) -> Retries:
        """Return the settings of an obstore `retry_config`."""
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
        """Return how many seconds to wait before the next try; raise the error if it is final or tries are used up."""
        if not isinstance(error, (ConnectionError, TimeoutError)):
            raise error
        most = self.retries.most
        if isinstance(error, ConnectionRefusedError):
            most = min(most, 4)  # a wrong address is reported soon
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
    return value.total_seconds() if isinstance(value, timedelta) else float(value)


def explained(error: Exception, url: str) -> Exception:
    """Return an error of obstore as a built-in exception that names the object and contains no secrets.

    `ConnectionError` and `TimeoutError` are transient.
    """
    if isinstance(error, (AsyncDataError, RuntimeError, ConnectionError, TimeoutError)) or type(error) in KNOWN:
        return error
    text, kind = str(error), type(error).__name__
    words, url = redacted(without_markup(text).partition("\n")[0]), redacted(url)
    found = STATUS.search(text)
    status = STATUSES.get(kind, int(found[1]) if found else 0)
    if status in {401, 403}:
        denied = PermissionError(errno.EACCES, f"access denied: {words}", url)
        return no_credentials(words, url) if METADATA.search(text) else denied
    if status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object" + bucket(text), url)
    if kind == "NotSupportedError" and "ange" in text:
        return NoRangesError(errno.ENOTSUP, "the server does not support range requests", url)
    if status == 416:
        return NotSatisfiableError(errno.EINVAL, words, url)
    other = KeyUnreadableError if kind == "InvalidPathError" else OSError
    return unanswered(text, words, url, status) if kind in GENERIC else other(errno.EIO, words, url)


def without_markup(text: str) -> str:
    """Return an error's text without the XML or HTML that the server answered: of it only the code and the message."""
    found = MARKUP.search(text)
    if found is None:
        return text
    said = [one[1].strip().partition("\n")[0] for one in map(partial(re.search, string=text), SAID) if one]
    return ": ".join([text[: found.start()].rstrip(": \n\ufeff"), *filter(None, said)])


def unanswered(text: str, words: str, url: str, status: int) -> Exception:
    """Return the error for a request without an answer, or with a status that has no fixed meaning."""
    if "Content-Length Header missing" in text:
        return NoLengthError(
            errno.ENOTSUP, "the server does not say how long it is: there is no Content-Length header", url
        )
    if status in REFUSALS:
        return RefusedError(f"{url}: the endpoint answers that it has too many requests: {words}")
    if (status and status not in TRANSIENT) or any(one in text for one in FINAL):
        return OSError(errno.EIO, words, url)
    if NO_CREDENTIALS.search(text) and not status:
        return no_credentials(words, url)
    return transient(text, words, url)


def no_credentials(words: str, url: str) -> PermissionError:
    """Return the error for a request for which no credentials were found."""
    return PermissionError(
        errno.EACCES,
        "no credentials were found; configure them as for the cloud's own tools, or in storage_options, or "
        f"read public objects with storage_options={{'skip_signature': True}} ({words})",
        url,
    )


def transient(text: str, words: str, url: str) -> Exception:
    """Return the error for a transient failure."""
    if "kind: Timeout" in text or "timed out" in text:
        return TimeoutError(f"{url}: {words}")
    if any(one in text for one in UNREACHABLE):
        return ConnectionRefusedError(f"{url}: no server answers: {words}")
    return ConnectionError(f"{url}: {words}")


def bucket(text: str) -> str:
    """Return a note if the bucket is missing."""
    return ", as there is no such bucket" if "NoSuchBucket" in text or "ContainerNotFound" in text else ""
