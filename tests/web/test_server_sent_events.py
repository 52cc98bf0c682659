"""Events are parsed as the HTML standard says, wherever the stream is cut."""

from __future__ import annotations

import pytest

import asyncdata as ad
from asyncdata.web.server_sent_events import Event, EventParser

STREAM = (
    b"\xef\xbb\xbf: a comment\n\nid: 1\ndata: one\n\nevent: other\rdata:two\rdata:  lines\r\r"
    b"id: 3\r\ndata\r\n\r\nid\ndata: none\n\nid: a\0b\ndata: kept\nretry: 1500\nretry: x\nodd: 1\n\n"
    b"id: 9\n\ndata: unfinished\n"
)
EVENTS = [
    Event(b"one", "1", True),
    Event(b"two\n lines", "1", False),
    Event(b"", "3", True),
    Event(b"none", "", True),
    Event(b"kept", "", False),
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_wherever_it_is_cut(step: int) -> None:
    parser, found = EventParser(1000), list[Event]()
    for start in range(0, len(STREAM), step):
        found += parser.feed(STREAM[start : start + step])
    assert found == EVENTS
    assert parser.retry == 1.5
    assert parser.feed(b"\n") == [Event(b"unfinished", "9", True)]


def test_an_event_has_a_limit() -> None:
    for data in (b"data: " + b"x" * 200, b"data: 1234567890\n" * 20, b"data:\n" * 200, b"data\r" * 200):
        with pytest.raises(ad.DataLossError, match="more than 100 bytes"):
            EventParser(100).feed(data)
