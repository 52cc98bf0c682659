"""EnergonDataset: the samples in folders and metadatasets of Megatron-Energon."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Never, TypeVar, cast

from asyncdata.dataset import Dataset
from asyncdata.elements.validation import check_flag
from asyncdata.errors import DataLossError, PlanError
from asyncdata.formats.energon import (
    Blended,
    CodeError,
    FieldMap,
    Joined,
    Reference,
    Subset,
    fields_of,
    part_of,
    split_of,
)
from asyncdata.formats.record_limits import MAX_RECORD_BYTES
from asyncdata.formats.sample_decoders import Decoder
from asyncdata.graph.node import check_count, finite
from asyncdata.options import INFINITE_CARDINALITY
from asyncdata.readers.files import CacheFolder, FileArguments, Filename, StorageMapping, checked, source_of
from asyncdata.readers.folder_index import inside, joined
from asyncdata.readers.webdataset import checked_decoders
from asyncdata.redaction import redacted
from asyncdata.sources.energon import EnergonFile, EnergonFiles
from asyncdata.storage import StorageOptions, is_local, read_head, without_query
from asyncdata.storage.cached import blocking
from asyncdata.system.optional_packages import require

__all__ = ("EnergonDataset", "energon_parts")

METHOD: Final = "EnergonDataset"

META: Final = ".nv-meta"

LARGEST: Final = 1 << 28
"""More bytes than any file of metadata has."""

JOINS: Final = {"skip": "inner", "none": "left", "error": "exact"}
"""What `nonmatch` is called here."""

T = TypeVar("T")


@dataclass(frozen=True)
class How:
    """How the data sets of a metadataset are read."""

    index: bool
    shuffle: bool
    repeat: bool
    seed: int | None
    reads: int | None
    decoders: Mapping[str, Decoder] | None
    max_record_bytes: int
    dataset_config: str | None
    split_config: str
    storage: StorageOptions | None


class EnergonDataset(Dataset[Any]):
    """The samples of a part of a folder that `energon prepare` has prepared, or of a metadataset (a `.yaml` file).

    Megatron-Energon is not needed; PyYAML is, for its YAML files. A sample is a dict as `WebDataset` gives it. If
    `.nv-meta/dataset.yaml` has a `field_map`, it has these fields and `"__key__"`; with subflavors, there or in a
    metadataset, also `"__subflavors__"`. Shards come in the order of `split.yaml`; excluded shards and samples are
    left out.

    A metadataset (version 2, and blends of version 1) becomes a mixture: `blend` is `sample_from_datasets` with its
    weights, `blend_epochized` gives each data set as often as it says, and `join` is `Dataset.join` by `"__key__"`,
    whose elements are tuples, or dicts if the data sets have names. They may be nested, and have a `subset`.

    Code that is named in a file (`sample_loader`, `part_filter`, `joiner`, `__module__` of yours) is never imported: it
    is a `PlanError`, unless `dataset_config=None`. Then samples come as they are stored, for your functions in `map`.

    >>> import asyncdata as ad, json, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     samples = ad.Dataset.from_list([{"__key__": f"{n}", "txt": "cat"} for n in range(4)])
    ...     shards = [pathlib.Path(path).name for path in samples.write_webdataset(folder, 2)]
    ...     pathlib.Path(folder, ".nv-meta").mkdir()
    ...     split = {"split_parts": {"train": shards}, "exclude": [f"{shards[0]}/1"]}
    ...     _ = pathlib.Path(folder, ".nv-meta", "split.json").write_text(json.dumps(split))
    ...     [sample["__key__"] for sample in ad.EnergonDataset(folder, index=True)]
    ['0', '2', '3']
    """

    def __init__(
        self,
        path: Filename,
        split: str = "train",
        *,
        index: bool = False,
        shuffle: bool = False,
        repeat: bool = True,
        seed: int | None = None,
        num_parallel_reads: int | None = None,
        decoders: Mapping[str, Decoder] | None = {},
        dataset_config: str | None = "dataset.yaml",
        split_config: str = "split.yaml",
        max_record_bytes: int = MAX_RECORD_BYTES,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read the part `split` of a folder with `.nv-meta`, or of a metadataset.

        With `index=True` any sample can be read by its number, by the `.tar.idx` files beside the archives; an index
        that is missing, or of other archives, is made anew, as for `WebDataset`. Joins, subsets, `blend_epochized` and
        `shuffle` need it. Archives must not be compressed.

        `shuffle` shuffles each data set, all of it and anew in each epoch, before it is mixed or joined, in an order
        that `seed` chooses; `seed` also draws from the data sets of a blend. In a blend each data set begins again when
        it has ended, so that it is endless; with `repeat=False` each comes once, as for validation.

        `dataset_config` and `split_config` are names of files in `.nv-meta`. The other arguments are as for
        `WebDataset`.
        """
        how = How(
            check_flag(METHOD, "index", index),
            check_flag(METHOD, "shuffle", shuffle),
            check_flag(METHOD, "repeat", repeat),
            seed,
            num_parallel_reads,
            checked_decoders(decoders),
            check_count(METHOD, "max_record_bytes", max_record_bytes, 1),
            dataset_config,
            split_config,
            StorageOptions.of(METHOD, storage_options, cache_dir),
        )
        found = opened_at(Reference(checked(METHOD, path, how.storage), split), how, {}, None)
        super().__init__(found.plan)


def energon_parts(folder: str, storage: StorageOptions | None = None) -> list[str]:
    """Return the names of the parts of a folder of Energon's."""
    split = read_first([f"{folder}/{META}/split.yaml", f"{folder}/{META}/split.json"], storage)
    return [*split[1]["split_parts"]]


def opened_at(part: Reference, how: How, subflavors: Mapping[str, Any], subset: Subset | None) -> Dataset[Any]:
    """Return the data set at a path, a folder or a metadataset."""
    name = without_query(part.path)
    part = replace(part, subset=narrowed(part.subset, subset))
    given = {**(part.subflavors or {}), **subflavors}
    if name.endswith(".jsonl"):
        raise PlanError(f"{METHOD}: {name} is JSON Lines: read it by JsonLinesDataset")
    if not name.endswith((".yaml", ".yml")):
        return in_folder(part, how, given)
    content = read_values(part.path, how.storage)
    with explained(part.path):
        found = part_of(content, part.part or "train")
    return content_at(found, part, how, given)


def narrowed(own: Subset | None, outer: Subset | None) -> Subset | None:
    return outer if own is None else own.within(outer)


def content_at(
    found: Reference | Joined | Blended, around: Reference, how: How, subflavors: Mapping[str, Any]
) -> Dataset[Any]:
    """Return what a part of a metadataset consists of, whose paths are relative to its file."""
    with explained(around.path):
        subset = narrowed(found.subset, around.subset)
    if isinstance(found, Reference):
        near = replace(found, path=beside(around.path, found.path), part=found.part or around.part)
        return opened_at(replace(near, subset=None), how, subflavors, subset)
    if isinstance(found, Joined):
        return joined_at(found, replace(around, subset=subset), how, subflavors)
    parts = [content_at(part, replace(around, subset=subset), how, subflavors) for part in found.parts]
    return epochized(parts, found.weights, how) if found.epochized else blended(parts, found.weights, how)


def beside(path: str, name: str) -> str:
    """Return a path that is relative to the folder of a file."""
    if not is_local(name) or os.path.isabs(name):
        return name
    if is_local(path):
        return os.path.normpath(os.path.join(os.path.dirname(path), name))
    scheme, _, place = path.partition("://")
    return f"{scheme}://{posixpath.normpath(posixpath.join(posixpath.dirname(place), name))}"


def blended(parts: list[Dataset[Any]], weights: Any, how: How) -> Dataset[Any]:
    """Return a mixture by weights."""
    if how.repeat:
        parts = [part if part.plan.cardinality == INFINITE_CARDINALITY else part.repeat() for part in parts]
    return Dataset.sample_from_datasets(parts, [*weights], how.seed, stop_on_empty_dataset=False)


def epochized(parts: list[Dataset[Any]], repetitions: Any, how: How) -> Dataset[Any]:
    """Return a mixture in which each data set comes as often as is said, its samples spread evenly."""
    found: list[Dataset[Any]] = []
    sizes: list[int] = []
    for part, times in zip(parts, repetitions, strict=True):
        size = known_size(part, "blend_epochized")
        more = int((times - int(times)) * size)
        once = part.repeat(int(times))
        found.append(once.concatenate(part.take(more)) if more else once)
        sizes.append(int(times) * size + more)
    return Dataset.sample_from_datasets(found, [*map(float, sizes)], how.seed, stop_on_empty_dataset=False)


def known_size(ds: Dataset[Any], what: str) -> int:
    if not finite(ds.plan.cardinality):
        raise PlanError(f"{METHOD}: {what} needs to know how many samples {ds.plan.label()} has: give index=True")
    return ds.plan.cardinality


def joined_at(found: Joined, around: Reference, how: How, subflavors: Mapping[str, Any]) -> Dataset[Any]:
    """Return data sets joined by key with the first one."""
    if found.joiner is not None and how.dataset_config is not None:
        refuse_code(around.path, f"it names code, joiner: {found.joiner!r:.80}")
    first, *others = found.parts
    ds = content_at(first, around, how, subflavors)
    for number, part in enumerate(others):
        plain = replace(how, shuffle=False)
        other = content_at(part, replace(around, subset=None), plain, subflavors)
        ds = ds.join(other, (key_of_first, "__key__"), cast("Any", JOINS[part.nonmatch]))
        ds = ds.map(flattened) if number else ds
    return ds if found.names is None else ds.map(Named(tuple(found.names)))


def key_of_first(first: dict[str, Any], *_: Any) -> Any:
    """Return the key of the first of joined samples."""
    return first["__key__"]


def flattened(before: tuple[Any, ...], other: Any) -> tuple[Any, ...]:
    """Return joined samples and one more."""
    return (*before, other)


@dataclass(frozen=True)
class Named:
    """Gives joined samples their names."""

    names: tuple[str, ...]

    def __call__(self, *samples: Any) -> dict[str, Any]:
        return dict(zip(self.names, samples, strict=True))


@dataclass(frozen=True)
class Flavored:
    """Adds the subflavors that samples have."""

    subflavors: dict[str, Any]

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {**sample, "__subflavors__": dict(self.subflavors)}


def in_folder(part: Reference, how: How, subflavors: Mapping[str, Any]) -> Dataset[Any]:
    """Return the samples of a part of a folder."""
    mapped, own = fields_in(part, how)
    ds = samples_in(part, how)
    ds = ds.shuffle(seed=how.seed) if how.shuffle else ds
    ds = ds if mapped is None else ds.map(mapped)
    flavors = {**own, **subflavors}
    return ds.map(Flavored(flavors)) if flavors else ds


def fields_in(part: Reference, how: How) -> tuple[FieldMap | None, dict[str, Any]]:
    """Return the fields and subflavors of a folder."""
    if how.dataset_config is None:
        return None, {}
    path = config_path(part.path, part.dataset_config or how.dataset_config)
    try:
        content = read_values(path, how.storage)
    except FileNotFoundError:
        if (part.dataset_config or how.dataset_config) != "dataset.yaml":
            raise
        return None, {}  # energon prepare --skip-dataset-yaml
    with explained(path):
        return fields_of(content)


def config_path(folder: str, name: str) -> str:
    """Return the path of a file in a folder's `.nv-meta`; `PlanError` if the name is that of something else."""
    if not isinstance(name, str) or "/" in name:  # pyright: ignore[reportUnnecessaryIsInstance]
        shown = redacted(repr(name))
        raise PlanError(f"{METHOD}: a config is a file in {META}, such as 'split.yaml', got {shown:.80}")
    return joined(folder, f"{META}/{name}")


def samples_in(part: Reference, how: How) -> Dataset[Any]:
    """Return the samples of a part of a folder as they are stored."""
    names = [part.split_config or how.split_config]
    names += ["split.json"] if names == ["split.yaml"] else []
    path, content = read_first([config_path(part.path, name) for name in names], how.storage)
    with explained(path):
        split = split_of(content, part.part or "train")
    shards = [joined(part.path, inside(name)) for name in split.shards]
    excluded = {joined(part.path, name): keys for name, keys in split.excluded.items()}
    files = EnergonFiles(how.decoders, how.max_record_bytes, excluded, how.storage) if how.index else None
    given, most = FileArguments(METHOD, shards, how.reads, how.storage), how.max_record_bytes
    plan = given.plan(energon_file, files, decoders=how.decoders, excluded=excluded, max_record_bytes=most)
    ds = Dataset[Any](plan)
    return ds if part.subset is None else subset_of(ds, part, files, shards)


def subset_of(ds: Dataset[Any], part: Reference, files: EnergonFiles | None, shards: list[str]) -> Dataset[Any]:
    """Return a subset of samples, whose numbers count those that are left out too."""
    if files is None:
        raise PlanError(f"{METHOD}: {part.path} has a subset, which needs to know where samples are: give index=True")
    with explained(part.path):
        bounds = (part.subset or Subset()).bounds(files.stored(shards))
    first, last = (files.left_before(shards, bound) for bound in bounds)
    return ds.skip(first).take(last - first)


def energon_file(filename: Filename, excluded: Mapping[str, frozenset[str]], **how: Any) -> EnergonFile:
    """Return the source for one archive."""
    archive = source_of(EnergonFile, filename, **how)
    return replace(archive, excluded=excluded.get(archive.path, frozenset()))


def read_first(paths: list[str], storage: StorageOptions | None) -> tuple[str, Any]:
    """Return the first file that is there, and what it says."""
    for path in paths[:-1]:
        try:
            return path, read_values(path, storage)
        except FileNotFoundError:
            continue
    try:
        return paths[-1], read_values(paths[-1], storage)
    except FileNotFoundError as error:
        error.add_note(f"a folder of Energon's has a folder {META}: prepare it by `energon prepare`")
        raise


def read_values(path: str, storage: StorageOptions | None) -> Any:
    """Return what a YAML or JSON file says; `DataLossError` if it is damaged."""
    content = blocking(lambda: read_head(path, LARGEST, storage))
    if without_query(path).endswith(".json"):
        return parsed(path, json.loads, content, ValueError)
    yaml = require("yaml", METHOD, "'asyncdata[energon]'")
    return parsed(path, yaml.safe_load, content, yaml.YAMLError)


def parsed(path: str, parse: Callable[[bytes], T], content: bytes, damage: type[Exception]) -> T:
    try:
        return parse(content)
    except (damage, RecursionError, ValueError) as error:
        raise DataLossError(f"{without_query(path)}: it is damaged: {type(error).__name__}: {error}") from None


@contextmanager
def explained(path: str) -> Generator[None]:
    """Raise errors in what a file says as `PlanError`s that name it."""
    try:
        yield
    except CodeError as error:
        refuse_code(path, str(error))
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise PlanError(f"{METHOD}: {without_query(path)}: {error}") from None


def refuse_code(path: str, what: str) -> Never:
    """Raise the error for a file that names code."""
    raise PlanError(
        f"{METHOD}: {without_query(path)}: {what}, which is not imported: give dataset_config=None for samples as they "
        "are stored, and call your function in map: EnergonDataset(..., dataset_config=None).map(your_function)"
    ) from None
