"""Blocks: parts, pieces, joins, and the tickets that go with the items."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncdata.runtime.block import Block, Failure
from asyncdata.runtime.tickets import FilteredTickets, Ordinals, children

OOPS = Failure(ValueError("oops"))


def block(*items: object, start: int = 0) -> Block:
    return Block(list(items), Ordinals(start, start + len(items)), any(type(item) is Failure for item in items))


def test_a_part_knows_whether_something_in_it_failed() -> None:
    whole = block(0, OOPS, 2, 3)
    assert whole.slice(0, 2).failed
    assert not whole.slice(2, 4).failed
    assert list(whole.slice(2, 4).tickets) == [2, 3]


def test_pieces_of_a_good_block_are_the_block_itself() -> None:
    whole = block(0, 1)
    assert list(whole.pieces()) == [whole]


def test_pieces_set_failures_apart() -> None:
    pieces = [(piece.items, list(piece.tickets), piece.failed) for piece in block(0, 1, OOPS, 3).pieces()]
    assert pieces == [([0, 1], [0, 1], False), ([OOPS], [2], True), ([3], [3], False)]


def test_joined_ordinals_stay_ordinals_where_they_follow_each_other() -> None:
    followed = Block.join([block(0, 1), block(2, start=2)]).tickets
    assert (type(followed), list(followed)) == (Ordinals, [0, 1, 2])
    assert list(Block.join([block(0, 1), block(5, start=5)]).tickets) == [0, 1, 5]
    odd = Block([0, 2], FilteredTickets(Ordinals(0, 3), [0, 2]))
    assert list(Block.join([odd, block(4, start=4)]).tickets) == [0, 2, 4]


def test_tickets_of_children_name_their_parent() -> None:
    assert list(children(7, Ordinals(0, 2))) == [(7, 0), (7, 1)]


@given(st.lists(st.one_of(st.integers(), st.just(OOPS)), min_size=1), st.data())
def test_cutting_and_joining_changes_nothing(items: list[object], data: st.DataObject) -> None:
    whole = block(*items)
    cut = data.draw(st.integers(0, len(items)))
    parts = [part for part in (whole.slice(0, cut), whole.slice(cut, len(items))) if part.items]
    again = Block.join(parts)
    assert (again.items, list(again.tickets), again.failed) == (whole.items, list(whole.tickets), whole.failed)
    assert [item for piece in whole.pieces() for item in piece.items] == items
