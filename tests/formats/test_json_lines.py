"""JSON Lines: what a line is, whatever pieces bytes come in and whichever package reads them."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncdata.errors import DataLossError
from asyncdata.formats import json_lines, json_values
from asyncdata.formats.json_lines import JsonLinesParser
from asyncdata.formats.json_values import decoder, msgspec_json, read_json
from tests.reference import failed
from tests.reference import json_lines as meaning


@pytest.fixture(params=[read_json, pytest.param(None, marks=pytest.mark.formats)], ids=["json", "msgspec"])
def reads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read by Python's own package, and by the quicker one."""
    if request.param is None:
        decoder.cache_clear()
        assert decoder() is not read_json
    else:
        for module in (json_lines, json_values):
            monkeypatch.setattr(module, "decoder", lambda: request.param)
            monkeypatch.setattr(module, "lines_decoder", lambda: None)


@pytest.mark.formats
def test_msgspec_whose_errors_are_others_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 0.21 a line that is not valid JSON would end the pipeline, and so would NaN."""
    assert msgspec_json() is not None
    monkeypatch.setattr("msgspec.DecodeError", type("DecodeError", (Exception,), {}))
    assert msgspec_json() is None


def parsed(data: bytes, cuts: list[int] = [], limit: int = 1000) -> list[Any]:  # noqa: B006
    parser, found, bounds = JsonLinesParser("file"), list[Any](), sorted({0, *cuts, len(data)})
    for start, stop in pairwise(bounds):
        parser.feed(data[start:stop])
        while lines := parser.parse(limit):
            found += lines
    parser.finish()
    while lines := parser.parse(limit):
        found += lines
    return found


def plain(found: list[Any]) -> list[Any]:
    return [repr(failed(one) if isinstance(one, Exception) else one) for one in found]


pieces = st.sampled_from(
    [
        b"\n",
        b"\r\n",
        b"\n\n",
        b" ",
        b"1",
        b'{"a": [1, null]}',
        b'"x',
        b'\xff"',
        b"NaN",
        b"\xef\xbb\xbf",
        b'"' + b"y" * 70_000,
    ]
)


@pytest.mark.usefixtures("reads")
class TestReadBoth:
    def test_values(self) -> None:
        values: list[Any] = [
            {"a": 1},
            [1, 2.5, None],
            "text \u00fc",
            True,
            None,
            -0.0,
            10**30,
            {"": {}},
            "\ud800",
            math.inf,
        ]
        data = "\r\n".join(map(json.dumps, values)).encode()
        assert plain(parsed(data)) == plain(values)
        assert parsed(b"\xef\xbb\xbf" + data)[0] == {"a": 1}

    def test_what_json_takes_is_taken(self) -> None:
        found = parsed(b'NaN\n1e999\n{"a": 1, "a": 2}\n')
        assert repr(found) == "[nan, inf, {'a': 2}]"

    @pytest.mark.parametrize(
        "line", [b"{", b"1 2", b"01", b"'a'", b'"\xff"', b'"\x01"', b"[" * 100_000, b"9" * 5000, b"[1,\r", b"nan"]
    )
    def test_what_is_no_json_fails_in_its_place(self, line: bytes) -> None:
        first, error, last = parsed(b"1\n\n" + line + b"\n2")
        assert (first, last) == (1, 2)
        assert isinstance(error, DataLossError)
        assert str(error).startswith("file: the line at byte 3 is not valid JSON: ")

    def test_a_value_over_two_lines_is_two_errors(self) -> None:
        assert plain(parsed(b"[1,\n2]\n3")) == [*plain([DataLossError(), DataLossError()]), "3"]

    @given(
        lines=st.lists(
            st.sampled_from([b"{}", b"[[1]", b"2]", b"[2]", b'{"a":', b"{}}", b"[1]{}", b"[1] [2]", b"{}, []", b'["']),
            min_size=1,
            max_size=8,
        ),
        ends=st.booleans(),
    )
    def test_each_line_has_one_value_also_if_all_together_are_valid(self, lines: list[bytes], ends: bool) -> None:
        data = b"\n".join(lines) + b"\n" * ends
        assert plain(parsed(data)) == plain([*meaning(data)])

    @pytest.mark.parametrize("data", [b"", b"\n", b"\n \n\t\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n"])
    def test_nothing(self, data: bytes) -> None:
        assert parsed(data) == []

    @pytest.mark.parametrize("end", range(1, 30))
    def test_truncated_at_every_byte(self, end: int) -> None:
        data = b'{"a": 1}\n\n{"b": "\xc3\xbc"}\r\n[2]\n'[:end]
        assert plain(parsed(data)) == plain([*meaning(data)])


@given(
    data=st.lists(pieces, max_size=20).map(b"".join), cuts=st.lists(st.integers(0, 200_000)), limit=st.integers(1, 5)
)
def test_values_do_not_depend_on_how_bytes_come(data: bytes, cuts: list[int], limit: int) -> None:
    cuts = [min(cut, len(data)) for cut in cuts]
    assert plain(parsed(data, cuts, limit)) == plain([*meaning(data)])


def test_the_error_of_a_compressed_file_says_where() -> None:
    parser = JsonLinesParser("file.gz", compressed=True)
    parser.feed(b"1\nx\n")
    assert "the line at uncompressed byte 2 is not valid JSON" in str(parser.parse(2)[1])


def test_many_blank_lines_are_passed_by_in_one_call() -> None:
    parser = JsonLinesParser()
    parser.feed(b"\n" * 1_000_000 + b"1\n")
    assert parser.parse(5) == [1]
