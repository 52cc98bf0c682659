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
    Event(None, "9", True),
]


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_wherever_it_is_cut(step: int) -> None:
    parser, found = EventParser(1000), list[Event]()
    for start in range(0, len(STREAM), step):
        found += parser.feed(STREAM[start : start + step])
    assert found == EVENTS
    assert parser.retry == 1.5
    assert parser.feed(b"\n") == [Event(b"unfinished", "9", False)]


@pytest.mark.parametrize("end", [b"\r", b"\n", b"\r\n"])
def test_an_event_is_complete_with_its_last_byte(end: bytes) -> None:
    parser = EventParser(1000)
    for number in range(3):
        text = b"id: %d" % number + end + b"data: x" + end
        assert parser.feed(text) == []
        found = [event for byte in end for event in parser.feed(bytes([byte]))]
        assert found == [Event(b"x", str(number), True)]


def test_a_line_end_in_two_pieces_is_one() -> None:
    parser = EventParser(1000)
    pieces = (b"data: 1\r", b"\n", b"", b"\n", b"data: 2\r", b"", b"\ndata: 3\r", b"\r", b"\n\ndata: 4\n\r")
    assert [event.data for piece in pieces for event in parser.feed(piece)] == [b"1", b"2\n3", b"4"]


def test_an_event_has_a_limit() -> None:
    for data in (b"data: " + b"x" * 200, b"data: 1234567890\n" * 20, b"data:\n" * 200, b"data\r" * 200):
        with pytest.raises(ad.DataLossError, match="more than 100 bytes"):
            EventParser(100).feed(data)


def test_events_before_one_that_is_too_long_are_given() -> None:
    parser = EventParser(100)
    assert [event.data for event in parser.feed(b"data: 1\n\ndata: " + b"x" * 200)] == [b"1"]
    with pytest.raises(ad.DataLossError, match="more than 100 bytes"):
        parser.feed(b"")
