"""Hides secrets in texts: passwords, tokens and queries of URLs, and values of options that are secret by name."""

from __future__ import annotations

import re
from typing import Final

__all__ = ("error_text", "redacted")

HIDDEN: Final = "…"

WIDEST: Final = 500
"""The most characters of an exception's text."""

START: Final = r"[A-Za-z][A-Za-z0-9+.-]+:/"

URL: Final = re.compile(rf"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?P<slashes>//?)(?P<rest>(?:(?!{START}/)\S)*)")
"""A URL up to a space or the next one; with one slash where a `Path` has dropped the other."""

CLOSING: Final = re.compile(r"[\])}>,.;:'\"`]+$")
"""What ends a URL in a sentence and does not belong to it."""

HOST: Final = re.compile(r"(\[[^\]]*\]|[^:@]+)(:[0-9]*)?")

NAMED_BY_USER: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})
"""The schemes in which the part before the `@` is a container."""

WEB: Final = frozenset({"http", "https", "ws", "wss"})
"""The schemes in which all after a `?` is a query; in others it may be of a pattern."""

PAIR: Final = re.compile(
    r"""(?<![\w-])
    (?P<name>(?:\w+_)?
        (?:password|passwd|pwd|passphrase|secret|(?:secret_?)?access_?key(?:_?id)?|account_?key|api_?key|sas_?key|authorization
        |(?:access|auth|bearer|refresh|sas|security|session)_?token|SharedAccessSignature)
    |token|cookie|set-cookie|proxy-authorization|x-api-key)
    (?P<equals>['"]?\s*[=:]\s*(?:b(?=['"]))?)
    (?:'(?:[^'\\]|\\.)*(?:'|$)|"(?:[^"\\]|\\.)*(?:"|$)|(?:(?:bearer|basic|token)\s+)?[^\s,;)}\]&'"]+)""",
    re.IGNORECASE | re.VERBOSE,
)
"""A name and a value, as in connection strings, headers and dicts."""


BEARER: Final = re.compile(r"(?<=\bBearer )[\w.~+/=-]{6,}")


def redacted(text: str) -> str:
    """Return a text without the secrets in it; one without secrets is returned as it is.

    >>> redacted("reading https://ann:pass@example.org/a.txt?signature=abc failed")
    'reading https://example.org/a.txt?… failed'
    >>> redacted("host=db password=pass user=ann")
    'host=db password=… user=ann'
    """
    if ":/" in text:
        text = URL.sub(shown, text)
    if "=" in text or ":" in text:
        text = PAIR.sub(rf"\g<name>\g<equals>{HIDDEN}", text)
    return BEARER.sub(HIDDEN, text) if "Bearer " in text else text


def error_text(error: BaseException) -> str:
    """Return an exception with its notes as a text without secrets, at most 500 characters of it."""
    try:
        words = redacted("; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]))
    except Exception:
        words = type(error).__name__
    return words if len(words) <= WIDEST else f"{words[: WIDEST // 2]} … {words[-WIDEST // 2 :]}"


def shown(found: re.Match[str]) -> str:
    """Return a URL without its secrets."""
    scheme, slashes, rest = found["scheme"].lower(), found["slashes"], found["rest"]
    body, tail, is_cut = parts_of(rest, found.string[: found.start()][-1:])
    authority, slash, path = body.partition("/")
    if slashes == "/":
        is_path = "@" not in authority or ":" not in authority
        return found[0] if is_path else f"{found['scheme']}:/{authority.rpartition('@')[2]}{slash}{path}{tail}"
    place = without_user(scheme, authority, slash + path, is_cut)
    return f"{found['scheme']}://{without_query(scheme, place)}{tail}"


def parts_of(rest: str, quote: str) -> tuple[str, str, bool]:
    """Return a URL without what follows it, what follows it, and whether its end was cut off.

    A URL in quotes ends with them; where there are none, the text was shortened.
    """
    if quote and quote in "'\"`":
        end = re.search(rf"(?<!\\){quote}", rest)
        if end is not None:
            return rest[: end.start()], rest[end.start() :], False
    closing = CLOSING.search(rest)
    end = len(rest) if closing is None else closing.start()
    return rest[:end], rest[end:], bool(quote) and quote in "'\"`"


def without_user(scheme: str, authority: str, path: str, is_cut: bool) -> str:
    """Return the host, and what follows it, without user and password."""
    user, at, host = authority.rpartition("@")
    if at:
        is_container = scheme in NAMED_BY_USER and ":" not in user
        return f"{authority if is_container else host}{path}"
    if is_cut and not path:  # it may end before the `@`
        return HIDDEN
    if not authority or HOST.fullmatch(authority):
        return f"{authority}{path}"
    return path.rpartition("@")[2] if "@" in path else f"{HIDDEN}{path}"  # the password has a slash


def without_query(scheme: str, place: str) -> str:
    """Return an address with its query and fragment hidden, if it has any."""
    for sign in ("?", "#"):
        before, found, after = place.partition(sign)
        if found and ((scheme in WEB and sign == "?") or "=" in after):
            place = f"{before}{sign}{HIDDEN}"
    return place
