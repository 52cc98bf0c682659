"""What the YAML files of Megatron-Energon say of data sets, without code: it is named, and never imported."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from asyncdata.formats.braces import expand_braces

__all__ = (
    "Blended",
    "CodeError",
    "FieldMap",
    "Joined",
    "Reference",
    "Split",
    "Subset",
    "fields_of",
    "part_of",
    "split_of",
)

OWN: Final = re.compile(r"megatron\.energon(\.|$)")
"""Modules whose classes are names of kinds here."""

ACCESS: Final = re.compile(r"([^\[\]]+)((?:\[[^\[\]]+\])*)")


class CodeError(ValueError):
    """A file names code of the user's."""


class Split(NamedTuple):
    """The shards of a part of a data set, in order, and the keys of samples that are left out, by shard."""

    shards: list[str]
    excluded: dict[str, frozenset[str]]


def split_of(value: Any, part: str) -> Split:
    """Return a part of what `split.yaml` says."""
    known = checked(value, "split_parts", "exclude")
    parts = cast("dict[str, Any]", known["split_parts"])
    if part not in parts:
        raise LookupError(f"there is no part {part!r}, but {', '.join(map(repr, parts))}")
    shards = [*chain.from_iterable(map(expand_braces, strings(parts[part])))]
    left_out = {*chain.from_iterable(map(expand_braces, strings(known.get("exclude") or [])))}
    found = [shard for shard in shards if shard not in left_out]
    excluded = {
        shard: frozenset(name[len(shard) + 1 :] for name in left_out if name.startswith(f"{shard}/"))
        for shard in (found if any("/" in name for name in left_out) else ())
    }
    return Split(found, {shard: keys for shard, keys in excluded.items() if keys})


@dataclass(frozen=True)
class FieldMap:
    """The fields of samples by the members that they are made of, of which the first one that is there counts."""

    fields: dict[str, list[list[str]]]

    __name__ = "field_map"

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        try:
            return {"__key__": sample["__key__"], **{name: chosen(sample, ways) for name, ways in self.fields.items()}}
        except (LookupError, ValueError) as error:
            error.add_note(f"in the sample {sample['__key__']!r} of the members {[*sample]!r:.200}")
            raise


def chosen(sample: Any, ways: list[list[str]]) -> Any:
    """Return the first part of a sample that is there, of several."""
    for way in ways[:-1]:
        try:
            return part_at(sample, way)
        except (LookupError, ValueError):
            continue
    return part_at(sample, ways[-1])


def part_at(value: Any, way: list[str]) -> Any:
    """Return a part of a sample: of a dict by its key, of a list by its place."""
    for name in way:
        value = value[int(name) if isinstance(value, list) else name]
    return value


def fields_of(value: Any) -> tuple[FieldMap | None, dict[str, Any]]:
    """Return the fields of samples and the subflavors that `dataset.yaml` says; `CodeError` if it needs code."""
    names = ("__module__", "__class__", "sample_type", "field_map", "sample_loader", "part_filter", "subflavors")
    known = checked(value, *names)
    for name in ("sample_loader", "part_filter"):
        if name in known:
            raise CodeError(f"it names code, {name}: {known[name]!r:.80}")
    for kind in (known, known.get("sample_type")):
        if isinstance(kind, dict) and not OWN.match(str(cast("Any", kind).get("__module__", "megatron.energon"))):
            raise CodeError(f"it names code, __module__: {cast('Any', kind)['__module__']!r:.80}")
    mapped = known.get("field_map")
    found = None if mapped is None else FieldMap({name: ways_of(way) for name, way in mapped.items()})
    return found, dict(known.get("subflavors") or {})


def ways_of(text: str) -> list[list[str]]:
    """Return how a field is found: `json[caption],txt` is the caption in the JSON member, else the member `txt`."""
    found: list[list[str]] = []
    for option in text.split(","):
        match = ACCESS.fullmatch(option)
        if match is None:
            raise ValueError(f"the field {text!r} is neither a member nor a part of one, as json[caption]")
        found.append([match[1].lower(), *re.findall(r"\[([^\[\]]+)\]", match[2])])
    return found


@dataclass(frozen=True)
class Subset:
    """A part of a data set: first some samples by number, then a part of these by ratio."""

    samples: tuple[int, int | None] = (0, None)
    ratio: tuple[float, float] = (0.0, 1.0)

    def within(self, outer: Subset | None) -> Subset:
        """Return this part, of which a part around it is taken."""
        if outer is None:
            return self
        if outer.samples != (0, None):
            raise ValueError("a subset by numbers is for a single data set, not for several")
        first, last = self.ratio
        return Subset(self.samples, (first + outer.ratio[0] * (last - first), first + outer.ratio[1] * (last - first)))

    def bounds(self, count: int) -> tuple[int, int]:
        """Return which of so many samples are in it."""
        first, last = self.samples
        last = count if last is None else last
        if not 0 <= first <= last <= count:
            raise ValueError(f"the subset [{first}, {last}] is not in the {count} samples")
        return first + int((last - first) * self.ratio[0]), first + int((last - first) * self.ratio[1])


def subset_of(value: Any) -> Subset | None:
    """Return the subset that a reference names."""
    if value is None:
        return None
    first, last = checked(value, "range")["range"]
    if type(first) is int:
        return Subset((first, None if last == "end" else int(last)))
    ratio = [1.0 if end == "end" else float(end.removesuffix("%")) / 100 for end in (first, last)]
    if not 0 <= ratio[0] <= ratio[1] <= 1:
        raise ValueError(f"a subset is two percentages in order, got {first!r}, {last!r}")
    return Subset(ratio=(ratio[0], ratio[1]))


@dataclass(frozen=True)
class Reference:
    """A data set at a path, or a metadataset."""

    path: str
    part: str | None = None
    dataset_config: str | None = None
    split_config: str | None = None
    subflavors: Mapping[str, Any] | None = None
    subset: Subset | None = None
    nonmatch: str = "error"


@dataclass(frozen=True)
class Joined:
    """Data sets whose samples are joined by key with those of the first; names of the parts, or none."""

    parts: Sequence[Reference]
    names: Sequence[str] | None
    joiner: Any
    subset: Subset | None = None


@dataclass(frozen=True)
class Blended:
    """A mixture of data sets, by weights, or by how often each is repeated."""

    parts: Sequence[Reference | Joined]
    weights: Sequence[float]
    epochized: bool
    subset: Subset | None = None


ORDER: Final = ("shuffle_over_epochs_multiplier",)
"""What is said of the order, which the user chooses here."""

REFERENCE: Final = ("path", "split_part", "dataset_config", "split_config", "subflavors", "subset", *ORDER)


def part_of(value: Any, part: str) -> Reference | Joined | Blended:
    """Return a part of a metadataset, of version 2 or 1."""
    known = checked(value, "__module__", "__class__", "splits")
    if not OWN.match(str(known.get("__module__", "megatron.energon"))):
        raise CodeError(f"it names code, __module__: {known['__module__']!r:.80}")
    if part not in known["splits"]:
        raise LookupError(f"there is no part {part!r}, but {', '.join(map(repr, known['splits']))}")
    return content_of(known["splits"][part])


def content_of(value: Any) -> Reference | Joined | Blended:
    """Return what a part consists of."""
    for name, factor in (("blend", "weight"), ("datasets", "weight"), ("blend_epochized", "repetitions")):
        if name in value:
            known = checked(value, name, "subset", *ORDER)
            factors = [one.get(factor, 1) for one in known[name]]
            if not known[name] or not all(type(one) in (int, float) and one >= 0 for one in factors):
                raise ValueError(f"{name} is a list of data sets, each with a {factor}, got {factors}")
            parts = [single({key: one[key] for key in one if key != factor}) for one in known[name]]
            return Blended(parts, factors, factor == "repetitions", subset_of(known.get("subset")))
    return single(value)


def single(value: Any) -> Reference | Joined:
    """Return a reference or a join."""
    if "join" not in value:
        return reference(value)
    known = checked(value, "join", "joiner", "split_part", "subflavors", "subset", *ORDER)
    if known.get("split_part") or known.get("subflavors"):
        raise ValueError("a join has no split_part or subflavors of its own here: give them to its data sets")
    named = isinstance(known["join"], dict)
    references: list[Any] = [*(known["join"].values() if named else known["join"])]
    parts = [reference(one, "nonmatch") for one in references]
    if len(parts) < 2 or parts[0].nonmatch != "error":
        raise ValueError("a join has at least two data sets, of which the first one has no nonmatch")
    return Joined(parts, [*known["join"]] if named else None, known.get("joiner"), subset_of(known.get("subset")))


def reference(value: Any, *more: str) -> Reference:
    """Return a reference to a data set."""
    known = checked(value, *REFERENCE, *more)
    if (nonmatch := known.get("nonmatch", "error")) not in ("skip", "none", "error"):
        raise ValueError(f"nonmatch is skip, none or error, got {nonmatch!r}")
    return Reference(
        str(known["path"]),
        known.get("split_part"),
        known.get("dataset_config"),
        known.get("split_config"),
        known.get("subflavors"),
        subset_of(known.get("subset")),
        nonmatch,
    )


def checked(value: Any, *names: str) -> dict[str, Any]:
    """Return a mapping; `ValueError` if it has other names than these: what they mean would be left out."""
    if not isinstance(value, dict):
        raise TypeError(f"expected a mapping, got {value!r:.80}")
    known = cast("dict[str, Any]", value)
    if others := known.keys() - {*names}:
        raise ValueError(f"{', '.join(sorted(map(repr, others)))} is not supported; supported are {', '.join(names)}")
    return known


def strings(value: Any) -> list[str]:
    """Return a list of names."""
    if not isinstance(value, list):
        raise TypeError(f"expected a list of names, got {value!r:.80}")
    return [*map(str, cast("list[Any]", value))]
