"""What a damaged position lists is counted, and refused before anything of that size is made."""

from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad
from asyncdata.identity.position_check import check_distinct, check_sizes, counts_in
from asyncdata.runtime.tickets import END, UNORDERED
from tests.states import edited

HUGE = 10**12
BITS = "A" * 10  # sixty bits


@pytest.mark.parametrize(
    ("position", "counts"),
    [
        ({"run": [3, 5]}, [5]),
        ({"run": 7}, [7]),
        ({"run": [7]}, [[7]]),
        ({"run": [1, 2, 3]}, [[1, 2, 3]]),
        ({"run": None}, [None]),
        ({"state": {"run": [0, HUGE]}, "number": 3, "skip": 1}, [1]),
        ({"state": {}, "number": 3, "skip": 1, "count": 9}, [9]),
        ({"seen": 20, "size": 8}, [8]),
        ({"seen": 5, "size": 8}, [5]),
        ({"seen": 5}, []),
        ({"size": 5}, []),
        ({"seen": 5, "size": None}, []),
        ({"seen": True, "size": 8}, []),
        ({"packed": 10, "columns": [0, 6, BITS]}, []),
        ({"packed": 11, "columns": [0, 6, BITS]}, [11]),
        ({"packed": 12, "columns": [0, 5, BITS]}, []),
        ({"packed": 60, "columns": [0, 1, BITS]}, []),
        ({"packed": 61, "columns": [0, 1, BITS]}, [61]),
        ({"packed": 0, "columns": [0, 64, ""]}, []),
        ({"packed": HUGE, "columns": [0, 0, BITS]}, [HUGE]),
        ({"packed": 0, "columns": [0, 65, BITS]}, [0]),
        ({"packed": HUGE, "columns": 5}, [HUGE]),
        ({"packed": HUGE}, [HUGE]),
        ({"packed": 10, "columns": [0, 6]}, [10]),
        ({"packed": 10, "columns": [0, 6, BITS, 1]}, [10]),
        ({"packed": 10, "columns": [0, 6, 10]}, [10]),
        ({"packed": 10, "columns": [0, "6", BITS]}, [10]),
        ({"packed": -1, "columns": [0, 6, BITS]}, [-1]),
        ({"packed": "10", "columns": [0, 6, BITS]}, ["10"]),
        ({"packed": 10, "columns": {"0": 5, "1": [0, 6, BITS]}}, []),
        ({"packed": 10, "columns": {"0": 5, "1": 6}}, [10]),
        ({"from": {"run": [0, 4]}, "back": [{"run": [0, 3]}, 5]}, [4, 3]),
        (None, []),
    ],
    ids=str,
)
def test_each_number_of_elements_in_few_words_is_counted(position: Any, counts: list[Any]) -> None:
    for told in (position, [7, {"inner": position}]):
        assert sorted(map(str, counts_in(told))) == sorted(map(str, counts))


@pytest.mark.parametrize("count", [[7], [1, 2, 3], None, "5", -1, True, HUGE])
def test_a_number_that_cannot_be_is_refused(count: Any) -> None:
    with pytest.raises(ad.ResumeError, match=r"these steps hold at most \d+ \(the state is damaged"):
        check_sizes(ad.Dataset.range(9).shuffle(3, seed=1).plan, {"from": 5, "back": [{"run": count}]})


@pytest.mark.parametrize(
    "position",
    [
        {"from": 9, "back": [3, 3]},
        {"from": 9, "back": [[1, 3], [1, 3]]},
        {"from": 9, "back": [{"run": [2, 4]}, 5]},
        {"from": 9, "back": [{"run": [2, 4]}, {"run": [5, 1]}]},
        {"from": {"from": 9, "back": [3]}, "back": [3]},
        {"from": {UNORDERED: {"from": 9, "back": [3]}}, "back": [3]},
        {UNORDERED: {"from": 9, "back": [3, 4, 3]}},
        [2, {"from": 9, "back": [3, 3]}],
    ],
    ids=str,
)
def test_an_element_that_is_listed_twice_is_named(position: Any) -> None:
    with pytest.raises(ad.ResumeError, match=r"lists .*[35].* twice"):
        check_distinct(position)


@pytest.mark.parametrize(
    "position",
    [
        {"from": 9, "back": [3, [3, 3], 4]},
        {"from": 9, "back": [{"run": [2, 4]}, 6, {"run": [7, 2]}]},
        {"from": END, "back": [3]},
        [{"from": 9, "back": [3]}, {"from": 9, "back": [3]}],
        {UNORDERED: 9},
        {"from": None},
        None,
    ],
    ids=str,
)
def test_others_are_not(position: Any) -> None:
    check_distinct(position)


@pytest.mark.parametrize("position", [{"from": None, "back": [3]}, {"from": {UNORDERED: None}, "back": [3]}], ids=str)
def test_nothing_was_read_before_the_beginning(position: Any) -> None:
    with pytest.raises(ad.ResumeError, match="come after its position"):
        check_distinct(position)


@pytest.mark.parametrize("position", [[3, 4], [5, 4], [4, 3], [4, 5], {"from": [3, 4], "back": []}], ids=str)
def test_a_step_has_read_as_many_elements_as_its_input_gave(position: Any) -> None:
    with pytest.raises(ad.ResumeError, match=r"says that . elements were read, but its input says ."):
        resumed(position)


@pytest.mark.parametrize(
    "position",
    [[4, 4], {"from": [4, 4], "back": []}, [4, {"from": 5, "back": [4]}], [4, {"skip": 1, "from": 3}]],
    ids=str,
)
def test_what_its_input_gives_first_or_leaves_out_was_not_read(position: Any) -> None:
    assert resumed(position) == [(4, 4), (5, 5)]


def resumed(position: Any) -> list[Any]:
    """What comes of enumerated numbers from a position on."""
    ds = ad.Dataset.range(6).map(int).prefetch(2).enumerate()  # steps that keep tickets lie between
    with ds.iterate() as elements:
        for _ in range(4):
            next(elements)
        state = elements.state_dict()
    return list(ds.iterate(state=edited(state, position=position)))


@pytest.mark.parametrize("size", [[], {}, [7], "7", 8], ids=str)
def test_a_buffer_of_a_size_that_no_step_has_is_refused(size: Any) -> None:
    ds = ad.Dataset.range(5).shuffle(7, seed=0)
    with ds.iterate() as elements:
        next(elements)
        state = edited(elements.state_dict(), position={"seen": 5, "input": "end", "drained": 1, "size": size})
    with pytest.raises(ad.ResumeError):
        list(ds.iterate(state=state))
