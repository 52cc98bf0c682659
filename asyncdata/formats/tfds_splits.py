"""Splits as TensorFlow Datasets has them: `train[:10%]+test`, and the shards that a split is in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, Final

__all__ = ("Piece", "Split", "pieces_of", "splits_in")

PART: Final = re.compile(r"(?P<name>[\w-]+)(?:\[(?P<slice>[^\[\]]+)\])?")

BOUND: Final = re.compile(r"(?P<value>-?[\d_.]+)(?P<unit>%|shard)?")

TEMPLATE: Final = "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}"
"""How shards are named where an index does not say it."""

PLACE: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Split:
    """The shards of a split, and how many records each has."""

    names: Sequence[str]
    lengths: Sequence[int]


@dataclass(frozen=True)
class Piece:
    """Some consecutive shards, of whose records `skip` are left out first, and then at most `take` are read; all for
    `None`."""

    names: Sequence[str]
    lengths: Sequence[int]
    skip: int = 0
    take: int | None = None


def splits_in(info: Mapping[str, Any]) -> dict[str, Split]:
    """Return the splits that an index has, by name; `ValueError` for one whose records are not counted."""
    found: dict[str, Split] = {}
    for entry in info["splits"]:
        lengths = [int(length) for length in entry.get("shardLengths", [])]
        if not lengths and (entry.get("numShards") or entry.get("numBytes", "0") not in ("0", 0)):
            raise ValueError(f"its split {entry['name']!r} has no shardLengths, and is not empty")
        words = {"DATASET": info["name"], "SPLIT": entry["name"], "FILEFORMAT": info.get("fileFormat", "tfrecord")}
        template = entry.get("filepathTemplate") or TEMPLATE
        names = [shard_name(template, words, number, len(lengths)) for number in range(len(lengths))]
        found[entry["name"]] = Split(names, lengths)
    return found


def shard_name(template: str, words: Mapping[str, str], number: int, count: int) -> str:
    """Return the name of a shard by a template; `KeyError` for an unknown word in it."""
    shard, shards = f"{number:05}", f"{count:05}"
    known = {**words, "SHARD_INDEX": shard, "NUM_SHARDS": shards, "SHARD_X_OF_Y": f"{shard}-of-{shards}"}
    return PLACE.sub(lambda place: known[place[1]], template)


def pieces_of(split: str, splits: Mapping[str, Split]) -> list[Piece]:
    """Return what to read for a split; `ValueError` if there is none such."""
    found: list[Piece] = []
    for part in split.split("+"):
        match = PART.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{split!r} is no split: 'train', 'train[:10%]', 'train[2shard]' or 'train+test' are")
        name, bounds = match["name"], match["slice"]
        if name == "all" and bounds is None:
            found.extend(Piece(one.names, one.lengths) for one in splits.values())
            continue
        if name not in splits:
            raise ValueError(f"there is no split {name!r}, but {sorted(splits)}")
        found.extend(sliced(splits[name], *range_of(bounds, splits[name].lengths)))
    if not any(piece.names for piece in found):
        raise ValueError("it has no records")
    return [piece for piece in found if piece.names]


def range_of(bounds: str | None, lengths: Sequence[int]) -> tuple[int, int]:
    """Return the first record of a slice, and the one after its last."""
    if bounds is None:
        return 0, sum(lengths)
    matches = [BOUND.fullmatch(bound) if bound else None for bound in bounds.split(":")]
    units = {match["unit"] for match in matches if match is not None}
    single = len(matches) == 1
    if any(bound and not match for bound, match in zip(bounds.split(":"), matches, strict=True)) or len(matches) > 2:
        raise ValueError(f"[{bounds}] is no slice of a split")
    if len(units) != 1 or (single and units != {"shard"}):
        raise ValueError(f"[{bounds}] is no slice of a split: it needs bounds of one unit, '%', 'shard' or none")
    (unit,) = units
    values = [None if match is None else match["value"] for match in matches]
    begin = place_of(values[0], unit, lengths, 0)
    if single:
        shard = range(len(lengths))[int(str(values[0]))]
        return begin, begin + lengths[shard]
    return begin, place_of(values[1], unit, lengths, sum(lengths))


def place_of(value: str | None, unit: str | None, lengths: Sequence[int], default: int) -> int:
    """Return the record that a bound means; percentages are rounded to the closest one."""
    count = sum(lengths)
    if value is None:
        return default
    if unit == "shard":
        return sum(lengths[: int(value)])
    place = round(float(value) * count / 100) if unit == "%" else int(value)
    if abs(place) > count:
        raise ValueError(f"the bound {value} is beyond the {count} records of the split")
    return place if place >= 0 else count + place


def sliced(split: Split, begin: int, end: int) -> list[Piece]:
    """Return records `begin` to `end`: a part of the first shard, whole shards, and a part of the last one."""
    found: list[Piece] = []
    for number, (first, last) in enumerate(pairwise(accumulate(split.lengths, initial=0))):
        start, stop = max(begin, first), min(end, last)
        if start >= stop:
            continue
        name, length = split.names[number], split.lengths[number]
        if (start, stop) != (first, last):
            found.append(Piece([name], [length], start - first, stop - start))
        elif found and found[-1].take is None:
            found[-1] = Piece([*found[-1].names, name], [*found[-1].lengths, length])
        else:
            found.append(Piece([name], [length]))
    return found
