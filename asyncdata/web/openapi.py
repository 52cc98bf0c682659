"""The requests and replies of an ingest application, as an OpenAPI description."""

from __future__ import annotations

import json
from typing import Any, final

from asyncdata.web.decoding import FORMATS
from asyncdata.web.http import JSON, Message, Receive, Send, respond

__all__ = ("OpenApi", "description")

ACCEPTED: dict[str, Any] = {
    "type": "object",
    "required": ["accepted"],
    "properties": {
        "accepted": {"type": "integer", "minimum": 0, "description": "how many items the body has"},
        "duplicate": {"type": "boolean", "description": "they were accepted before, with the same idempotency key"},
    },
}

REFUSED: dict[str, Any] = {
    "type": "object",
    "required": ["error", "accepted"],
    "properties": {
        "error": {"type": "string"},
        "accepted": {"type": "integer", "const": 0},
        "line": {"type": "integer", "minimum": 1, "description": "the number of the wrong line"},
        "detail": {
            "type": "array",
            "description": "the wrong fields of an item that is not of the declared type",
            "items": {
                "type": "object",
                "required": ["loc", "msg", "type"],
                "properties": {
                    "loc": {"type": "array", "items": {"type": ["string", "integer"]}},
                    "msg": {"type": "string"},
                    "type": {"type": "string"},
                },
            },
        },
    },
}

UPLOAD: dict[str, Any] = {
    "type": "object",
    "required": ["file"],
    "properties": {"file": {"type": "string", "contentMediaType": "application/octet-stream"}},
}

ENCODINGS = ["identity", "gzip", "deflate", "br", "zstd"]
"""Of request bodies; the last two where their packages are installed."""

STATUSES = {
    "400": "the body, its length, the idempotency key or the version is malformed",
    "401": "the request is not authenticated",
    "403": "only clients on the server's machine are served",
    "408": "the body took too long",
    "409": "the admission is unknown, has expired or was used; send the request without it, or not at all",
    "411": "the server needs the length of a body over HTTP/2",
    "413": "the body or an item is too large",
    "415": "the type of content is not supported, or its encoding, and then Accept-Encoding has those that are",
    "422": "an item is not of the declared type, or the idempotency key was used before with another body",
    "429": "the channel is full; send the request again after Retry-After seconds",
    "503": "the channel is closed, or too many bytes are being received; send the request again after Retry-After "
    "seconds",
}


NOT_SERVED = {status: STATUSES[status] for status in ("401", "403")}

ADMITTED: dict[str, Any] = {
    "type": "object",
    "required": ["admission", "version", "seconds"],
    "properties": {
        "admission": {"type": "string", "description": "for the header Admission of POST /ingest"},
        "version": {"type": "integer"},
        "seconds": {"type": "number", "description": "after so many without a request with it, it ends"},
    },
}

FAILED: dict[str, Any] = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}


@final
class OpenApi:
    """`GET /openapi.json`: the description, without authentication."""

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        await respond(send, 200, json.dumps(description()).encode(), [JSON])


def description() -> dict[str, Any]:
    """Return the description."""
    health = {
        "200": {"description": "items are accepted"},
        "503": {"description": "no items are accepted, or the consumer has ended"},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "asyncdata ingest", "version": "1"},
        "paths": {
            "/ingest": {"post": ingest()},
            "/admit": {"post": admit()},
            "/admit/{id}": {"delete": release()},
            "/health": {"get": {"summary": "Say whether items are accepted.", "responses": health}},
            "/metrics": {"get": {"summary": "Count what was accepted, for Prometheus.", "responses": metrics()}},
        },
    }


def ingest() -> dict[str, Any]:
    """Return the description of `POST /ingest`."""
    refused = {"application/json": {"schema": REFUSED}}
    retry = {"Retry-After": {"schema": {"type": "integer"}}}
    advice = {"415": {"Accept-Encoding": {"schema": {"type": "string"}}}, "429": retry, "503": retry}
    responses: dict[str, Any] = {
        "200": {"description": "all items are accepted", "content": {"application/json": {"schema": ACCEPTED}}}
    }
    for status, what in STATUSES.items():
        more = {"headers": advice[status]} if status in advice else {}
        responses[status] = {"description": what, "content": refused, **more}
    return {
        "summary": "Accept all items of the body, or none.",
        "parameters": [
            {
                "name": "Idempotency-Key",
                "in": "header",
                "schema": {"type": "string", "minLength": 1, "maxLength": 1024},
            },
            {"name": "Content-Encoding", "in": "header", "schema": {"type": "string", "enum": ENCODINGS}},
            {"name": "Admission", "in": "header", "schema": {"type": "string"}},
            {"name": "version", "in": "query", "schema": {"type": "integer"}},
        ],
        "requestBody": {
            "required": True,
            "content": {**{kind: {"schema": {}} for kind in FORMATS}, "multipart/form-data": {"schema": UPLOAD}},
        },
        "responses": responses,
    }


def admit() -> dict[str, Any]:
    """Return the description of `POST /admit`."""
    content = {"application/json": {"schema": ADMITTED}}
    failed = {"application/json": {"schema": FAILED}}
    retry = {"Retry-After": {"schema": {"type": "integer"}}}
    responses: dict[str, Any] = {"200": {"description": "the work may begin", "content": content}}
    for status, what in {
        **NOT_SERVED,
        "400": "the version or the time is malformed",
        "404": "the channel has no max_lag: nobody needs to ask",
        "429": "as much work is under way as may be; ask again after Retry-After seconds",
        "503": "the channel is closed; ask again after Retry-After seconds",
    }.items():
        more = {"headers": retry} if status in ("429", "503") else {}
        responses[status] = {"description": what, "content": failed, **more}
    wait = {"type": "number", "minimum": 0, "maximum": 30}
    return {
        "summary": "Ask whether work with a version of a model or policy may begin.",
        "parameters": [
            {"name": "version", "in": "query", "required": True, "schema": {"type": "integer"}},
            {"name": "wait", "in": "query", "description": "seconds to wait for it", "schema": wait},
        ],
        "responses": responses,
    }


def release() -> dict[str, Any]:
    """Return the description of `DELETE /admit/{id}`."""
    released = {"type": "object", "required": ["released"], "properties": {"released": {"type": "boolean"}}}
    failed = {"application/json": {"schema": FAILED}}
    responses: dict[str, Any] = {
        "200": {"description": "it has ended, now or before", "content": {"application/json": {"schema": released}}}
    }
    for status, what in NOT_SERVED.items():
        responses[status] = {"description": what, "content": failed}
    return {
        "summary": "End an admission with which nothing is sent.",
        "parameters": [{"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}],
        "responses": responses,
    }


def metrics() -> dict[str, Any]:
    """Return the replies of `GET /metrics`."""
    refused = {"application/json": {"schema": REFUSED}}
    return {
        "200": {"description": "counts", "content": {"text/plain": {"schema": {"type": "string"}}}},
        **{status: {"description": STATUSES[status], "content": refused} for status in ("401", "403")},
    }
