"""The file of a request of type `multipart/form-data`, as forms and `curl -F` upload it."""

from __future__ import annotations

import re
from email.message import Message
from pathlib import PurePosixPath
from typing import Final

from asyncdata.web.decoding import BodyError

__all__ = ("is_multipart", "uploaded_file")

BY_NAME: Final = {
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".msgpack": "application/msgpack",
    ".ndjson": "application/x-ndjson",
}

BOUNDARY: Final = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")

ONE_FILE: Final = "multipart/form-data must have one file and nothing else: send each file, and other fields, alone"


def is_multipart(content_type: str) -> bool:
    """Return whether a body is that of a form."""
    return content_type.partition(";")[0].strip().lower() == "multipart/form-data"


def uploaded_file(content_type: str, body: bytes) -> tuple[str, bytes]:
    """Return the type and the content of the only file in a body; `BodyError` if there is another number of them."""
    boundary = parameters(content_type).get_boundary("").encode("latin-1", "replace")
    if not BOUNDARY.fullmatch(boundary):
        raise BodyError(400, "multipart/form-data needs a boundary= in its Content-Type")
    begin, end = b"--" + boundary + b"\r\n", b"\r\n--" + boundary
    head, blank, rest = body.removeprefix(begin).partition(b"\r\n\r\n")
    content, found, after = rest.partition(end)
    if not body.startswith(begin) or not blank or not found:
        raise BodyError(400, "the body is no multipart/form-data, or has no end")
    if not after.startswith(b"--"):
        raise BodyError(415, ONE_FILE)
    headers = dict(line.split(b":", 1) for line in head.lower().split(b"\r\n") if b":" in line)
    disposition = headers.get(b"content-disposition", b"").decode("latin-1")
    name = parameters(disposition).get_param("filename")
    if not isinstance(name, str):
        raise BodyError(415, ONE_FILE)
    told = headers.get(b"content-type", b"").strip().decode("latin-1")
    return BY_NAME.get(PurePosixPath(name).suffix, told), content


def parameters(header: str) -> Message:
    """Return a header's value with its parameters."""
    message = Message()
    message["content-type"] = header
    return message
