"""Write the folder in `tests/data/tfds` with the package that defines the format; the tests read them without.

`pip install tensorflow-datasets==4.9.10 tensorflow`, then `python -m tests.data.write_tfds`. `splits.json` is what that
package reads of some splits: the values of `id`, in order.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ("FOLDER", "SPLITS", "VERSION", "sample")

FOLDER = Path(__file__).parent / "tfds"

VERSION = "1.2.0"

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef"
    "0000000049454e44ae426082"
)
"""A picture of one pixel; nothing here decodes it."""

SPLITS = [
    *("train", "test", "train+test", "all", "train[:10%]", "train[10%:]", "train[33%:66%]", "train[-25%:]"),
    *("train[:5]", "train[3:17]", "train[-4:]", "train[:-20]", "train[7:8]", "train[:3]+test[1:]"),
    *("train[:1shard]", "train[1shard]", "train[1shard:3shard]", "train[-1shard:]", "train[:-2shard]", "train[50.5%:]"),
]


def sample(number: int) -> dict[str, Any]:
    """Return a sample as it is read."""
    short = range(number % 3)
    return {
        "id": np.int64(number),
        **{name: np.dtype(name).type(number) for name in ("uint8", "uint16", "uint32", "int8", "float16", "float32")},
        "uint64": np.uint64(2**63 + number),
        "bool": np.bool_(number % 2 == 0),
        "string": f"s{number}".encode(),
        "scalar": np.int8(-number),
        "text": ("\xe9" * number).encode(),
        "label": np.int64(number % 3),
        "image": PNG,
        "box": np.array([0, 0.25, 0.5, 1], np.float32),
        "sound": np.arange(number),
        "tensor": np.full((2, 3), number, np.float32),
        "rows": np.full((number % 3, 2), number, np.int32),
        "zlib": np.full((2, 2), number, np.float32),
        "bytes": np.full((2, 2), number, np.int16),
        "any shape": np.full((number % 2 + 1, number % 3 + 1), number, np.int32),
        "strings": objects(f"a{number}".encode(), b"b"),
        "numbers": np.arange(number % 4),
        "three": np.full(3, number, np.float32),
        "labels": np.arange(number % 3),
        "images": objects(*[PNG] * len(short)),
        "nested": {"a": np.int32(number), "b": {"c": f"c{number}".encode()}},
        "dicts": {
            "x": np.arange(len(short)),
            "text": objects(*[f"t{row}".encode() for row in short]),
            "pair": np.array([[row, row] for row in short], np.float32).reshape(-1, 2),
        },
        "lists": [np.arange(row) for row in range(number % 4)],
        "words": {"in": [objects(*[b"w"] * row) for row in short]},
        "steps": {
            "seen": np.array([[0, 0], [1, 1], [2, 2]], np.float32),
            "reward": np.array([0, 0.5, 1], np.float32),
            "is_last": np.array([False, False, True]),
        },
    }


def objects(*values: bytes) -> Any:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def described(tfds: Any) -> Any:
    features = tfds.features
    kinds = ("uint8", "uint16", "uint32", "int8", "float16", "float32", "uint64")
    inner = {"x": np.int64, "text": features.Text(), "pair": features.Tensor(shape=(2,), dtype=np.float32)}
    step = {"seen": features.Tensor(shape=(2,), dtype=np.float32), "reward": np.float32, "is_last": np.bool_}
    return features.FeaturesDict(
        {
            "id": np.int64,
            **{name: np.dtype(name) for name in kinds},
            "bool": np.bool_,
            "string": np.str_,
            "scalar": features.Scalar(np.int8),
            "text": features.Text(),
            "label": features.ClassLabel(names=["cat", "dog", "bird"]),
            "image": features.Image(shape=(1, 1, 3), encoding_format="png"),
            "box": features.BBoxFeature(),
            "sound": features.Audio(shape=(None,)),
            "tensor": features.Tensor(shape=(2, 3), dtype=np.float32),
            "rows": features.Tensor(shape=(None, 2), dtype=np.int32),
            "zlib": features.Tensor(shape=(2, 2), dtype=np.float32, encoding="zlib"),
            "bytes": features.Tensor(shape=(2, 2), dtype=np.int16, encoding="bytes"),
            "any shape": features.Tensor(shape=(None, None), dtype=np.int32, encoding="zlib"),
            "strings": features.Tensor(shape=(2,), dtype=np.str_),
            "numbers": features.Sequence(np.int64),
            "three": features.Sequence(np.float32, length=3),
            "labels": features.Sequence(features.ClassLabel(num_classes=5)),
            "images": features.Sequence(features.Image(shape=(1, 1, 3), encoding_format="png")),
            "nested": {"a": np.int32, "b": {"c": features.Text()}},
            "dicts": features.Sequence(inner),
            "lists": features.Sequence(features.Sequence(np.int64)),
            "words": features.Sequence({"in": features.Sequence(features.Text())}),
            "steps": features.Dataset(step),
        }
    )


def given(number: int, tfds: Any) -> dict[str, Any]:
    """Return a sample as the package takes it."""
    import io

    made = sample(number)
    for name in ("dicts", "words", "steps"):
        rows = len(next(iter(made[name].values())))
        made[name] = [{key: column[row] for key, column in made[name].items()} for row in range(rows)]
    box = tfds.features.BBox(*made["box"].tolist())
    images = {"image": io.BytesIO(PNG), "images": [io.BytesIO(PNG) for _ in made["images"]]}
    return made | images | {"box": box, "text": made["text"].decode(), "string": made["string"].decode()}


def write(folder: Path) -> None:
    import tensorflow_datasets as tfds

    class Mine(tfds.core.GeneratorBasedBuilder):
        VERSION = tfds.core.Version(VERSION)

        def _info(self) -> Any:
            return tfds.core.DatasetInfo(builder=self, features=described(tfds))

        def _split_generators(self, _: Any) -> Any:
            return {"train": self._generate_examples(range(23)), "test": self._generate_examples(range(30, 35))}

        def _generate_examples(self, numbers: Any) -> Any:
            for number in numbers:
                yield number, given(number, tfds)

    with tempfile.TemporaryDirectory() as place:
        builder = Mine(data_dir=place, file_format="tfrecord")
        builder.download_and_prepare(download_config=tfds.download.DownloadConfig(num_shards=4))
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(str(builder.data_path), folder)
        found = {split: [int(one["id"]) for one in tfds.as_numpy(builder.as_dataset(split))] for split in SPLITS}
        (FOLDER / "splits.json").write_text(json.dumps(found))


def main() -> None:
    write(FOLDER / "mine")


if __name__ == "__main__":
    main()
