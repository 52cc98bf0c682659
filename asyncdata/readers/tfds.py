"""TfdsDataset: the samples in the folders that TensorFlow Datasets writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any, Final

from asyncdata.dataset import Dataset
from asyncdata.elements.validation import check_flag
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.formats.tfds_features import ExampleDecoder, class_labels, feature_of
from asyncdata.formats.tfds_splits import Piece, Split, pieces_of, splits_in
from asyncdata.readers.array_record import array_records_of
from asyncdata.readers.files import CacheFolder, FileArguments, StorageMapping, one_path
from asyncdata.readers.folder_index import inside, joined, reading_index
from asyncdata.readers.tfrecord import records_of
from asyncdata.sources.array_record import array_record
from asyncdata.storage import StorageOptions, read_head
from asyncdata.storage.cached import blocking
from asyncdata.transforms.map import Map

__all__ = ("TfdsDataset",)

METHOD: Final = "TfdsDataset"

LARGEST_LABELS: Final = 1 << 28
"""More bytes than any file of the names of classes has."""


class TfdsDataset(Dataset[dict[str, Any]]):
    """The samples in the folders that TensorFlow Datasets and RLDS write, as dicts of values by feature.

    Neither that package nor TensorFlow is needed. Values are those of `tfds.as_numpy`: NumPy's scalars and arrays,
    `bytes` for texts, dicts for nested features, dicts of arrays for sequences of these (the steps of an episode), and
    lists of arrays for sequences of sequences. Pictures and videos stay encoded, for a function in `map`.

    `class_names` are the names of classes, by the feature that is a label. A corrupt record is one `DataLossError` in
    its place; a shard that is cut short, or has other records than `dataset_info.json` says, is one, and the next shard
    follows.

    >>> import asyncdata as ad, json, pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     splits = [{"name": "train", "shardLengths": ["4"]}]
    ...     info = {"name": "mine", "fileFormat": "tfrecord", "splits": splits}
    ...     _ = pathlib.Path(folder, "dataset_info.json").write_text(json.dumps(info))
    ...     features = {"featuresDict": {"features": {"n": {"tensor": {"dtype": "int32"}}}}}
    ...     _ = pathlib.Path(folder, "features.json").write_text(json.dumps(features))
    ...     with ad.TFRecordWriter(pathlib.Path(folder, "mine-train.tfrecord-00000-of-00001")) as writer:
    ...         for n in range(4):
    ...             writer.write(ad.make_example({"n": n}))
    ...     list(ad.TfdsDataset(folder, split="train[:50%]"))
    [{'n': np.int32(0)}, {'n': np.int32(1)}]
    """

    def __init__(
        self,
        filenames: str | PathLike[str],
        split: str,
        num_parallel_reads: int | None = None,
        *,
        index: bool = False,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read a `split` of a folder with `dataset_info.json` and `features.json`, such as `/data/mnist/3.0.1`.

        `"train"`, `"train[:10%]"`, `"train[-100:]"`, `"train[2shard]"`, `"train+test"` and `"all"` mean what they do
        for `tfds.load`; only shards with records of the split are read, in order. `index`, `num_parallel_reads`,
        `storage_options` and `cache_dir` are as for `TFRecordDataset`; files of ArrayRecord have random access without
        `index`, and must be local. Files of other formats, and features of kinds that are not supported, are an error.
        """
        storage = StorageOptions.of(METHOD, storage_options, cache_dir)
        root = one_path(METHOD, filenames, storage)
        indexed = bool(check_flag(METHOD, "index", index))
        with reading_index(root, "TensorFlow Datasets", storage, "dataset_info.json") as info:
            kind, splits = str(info.get("fileFormat", "tfrecord")), splits_in(info)
        if kind not in ("tfrecord", "array_record"):
            raise PlanError(f"{METHOD}: {root} has files of {kind}; those of tfrecord and array_record are read")
        with reading_index(root, "TensorFlow Datasets", storage, "features.json") as features:
            decode, labels = ExampleDecoder(feature_of(features)), class_labels(features)
        self.class_names: dict[str, list[str]] = names_of(root, labels, storage)
        """The names of the classes, by feature, as `"objects/label"`; a label is an index of such a list."""
        found = [
            records_in(piece, root, kind, indexed, num_parallel_reads, storage) for piece in pieces_in(split, splits)
        ]
        whole = found[0]
        for more in found[1:]:
            whole = whole.concatenate(more)
        super().__init__(Map.of(whole.plan, Call(METHOD, decode), None, None, None))


def pieces_in(split: Any, splits: Mapping[str, Split]) -> list[Piece]:
    """Return what to read for a split; `PlanError` if there is none such."""
    if not isinstance(split, str):
        raise PlanError(f"{METHOD}(split=) must be a name, such as 'train[:10%]', got {split!r:.80}")
    try:
        return pieces_of(split, splits)
    except (ValueError, IndexError) as error:
        raise PlanError(f"{METHOD}(split={split!r:.80}): {error}") from None


def records_in(
    piece: Piece, root: str, kind: str, index: bool, reads: int | None, storage: StorageOptions | None
) -> Dataset[bytes]:
    """Return the records of some shards."""
    paths = [joined(root, inside(name)) for name in piece.names]
    if kind == "array_record":
        array_record()  # raises here if it is not installed
        plan = array_records_of(paths, reads, piece.lengths)
    else:
        counts = dict(zip(paths, piece.lengths, strict=True))
        plan = records_of(FileArguments("TFRecordDataset", paths, reads, storage), index, samples=counts)
    records = Dataset[bytes](plan)
    return records if piece.take is None else records.skip(piece.skip).take(piece.take)


def names_of(root: str, labels: Sequence[str], storage: StorageOptions | None) -> dict[str, list[str]]:
    """Return the names of classes by feature, of those that have names."""
    found: dict[str, list[str]] = {}
    for label in labels:
        path = joined(root, inside(f"{label.replace('/', '-')}.labels.txt"))
        try:
            content = blocking(lambda path=path: read_head(path, LARGEST_LABELS, storage))
        except FileNotFoundError:
            continue
        found[label] = [line for line in content.decode().split("\n") if line]
    return found
