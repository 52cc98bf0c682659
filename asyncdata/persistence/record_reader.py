"""Elements read from their records, in order or by number; a damaged one is a failure in its place."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from asyncdata.elements.columns import ColumnBatch
from asyncdata.errors import DataLossError, StructureError
from asyncdata.executors.function_call import noted
from asyncdata.formats.element_codec import decode_element
from asyncdata.formats.element_vectorized import decode_uniform
from asyncdata.runtime.block import Block, Blocks, Failure
from asyncdata.sources.parsed_files import Spot

__all__ = ("decoded", "elements_at")


def decoded(records: Sequence[Any]) -> list[Any] | ColumnBatch:
    """Return the elements of records, errors in the places of those that are lost."""
    alike = decode_uniform(records)
    return [element_of(record) for record in records] if alike is None else alike


def element_of(record: Any) -> Any:
    """Return the element of a record, or the error in its place."""
    try:
        return decode_element(record) if isinstance(record, bytes) else record
    except (DataLossError, StructureError) as error:
        return error


async def elements_at(records: Blocks, spots: Sequence[Spot], method: str) -> Blocks:
    """Yield the elements of these records, which are at these spots."""
    done = 0
    async with aclosing(records):
        async for block in records:
            items = decoded(block.items)
            if isinstance(items, ColumnBatch):
                done += len(items)
                yield Block.of_columns([items], block.tickets)
                continue
            for place, item in enumerate(items):
                if isinstance(item, Exception):
                    items[place] = noted(item, f"{method}({spots[done + place][0]})", block.tickets[place])
            done += len(items)
            yield Block(items, block.tickets, Failure in set(map(type, items)))
