"""Write the folders of Energon in `tests/data/energon`, and what its own reader gives; the tests read them without it.

`pip install megatron-energon==7.4.1`, then `PYTHONHASHSEED=0 python tests/data/write_energon.py`: without the same seed
in `energon prepare` and the reader, a join of samples of which several are left out is not found.
"""

from __future__ import annotations

import dataclasses
import io
import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

__all__ = ("FOLDER",)

FOLDER = Path(__file__).parent / "energon"

METADATASETS = {
    "joined.yaml": """
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    join:
      image: {path: images, split_part: train}
      caption: {path: captions, split_part: train, nonmatch: skip}
    joiner: {__module__: joiner, __class__: Pair}
  val:
    join:
    - {path: images, split_part: train}
    - {path: captions, split_part: train, nonmatch: skip}
    joiner: {__module__: joiner, __class__: Pair}
""",
    "mixed.yaml": """
__module__: megatron.energon
__class__: MetadatasetV2
splits:
  train:
    blend:
    - {weight: 3, path: images, subflavors: {kind: image}}
    - {weight: 1, path: ./captions}
  val:
    blend_epochized:
    - {repetitions: 2, path: images, split_part: train}
    - {repetitions: 0.5, path: captions, split_part: train, subset: {range: [25%, 100%]}}
  test:
    path: images
    split_part: train
    subset: {range: [0, 5]}
""",
}

JOINER = """
from megatron.energon import Sample, edataclass

@edataclass
class Pair(Sample):
    image: object
    caption: object

    @classmethod
    def from_joined(cls, *parts, **named):
        first, second = parts or (named["image"], named["caption"])
        return cls.derive_from(second, image=first, caption=second)
"""


def write_archive(path: Path, members: dict[str, bytes], form: int) -> None:
    with tarfile.open(path, "w", format=form) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def write_folder(name: str, first: int, extensions: dict[str, str], *how: str) -> None:
    folder = FOLDER / name
    folder.mkdir(parents=True)
    for shard in range(4):
        members: dict[str, bytes] = {}
        for number in range(2 + shard):
            key = f"{first + 10 * shard + number:03}"
            key = f"sub/{'long' * 30}{key}" if shard == 2 and number == 1 else key
            for extension, text in extensions.items():
                members[f"{key}.{extension}"] = text.replace("#", key).encode()
        write_archive(folder / f"shard_{shard}.tar", members, tarfile.PAX_FORMAT if shard == 1 else tarfile.GNU_FORMAT)
    prepare(folder, *how)


def read(path: Path, part: str, count: int) -> list[Any]:
    from megatron.energon import Cooker, DefaultTaskEncoder, WorkerConfig, get_loader, get_val_dataset, stateless

    class Encoder(DefaultTaskEncoder):
        cookers = [Cooker(stateless(lambda sample: sample))]  # noqa: RUF012

        @stateless
        def encode_sample(self, sample: Any) -> Any:
            return sample

        def batch(self, samples: Any) -> Any:
            return samples[0]

        def encode_batch(self, batch: Any) -> Any:
            return batch

    config = WorkerConfig(rank=0, world_size=1, num_workers=0)
    ds = get_val_dataset(path, split_part=part, worker_config=config, batch_size=1, task_encoder=Encoder())
    return [plain(sample) for sample, _ in zip(get_loader(ds), range(count), strict=False)]


def plain(value: Any) -> Any:
    """Return a sample, or a part of one, as JSON can hold it: the fields that are no metadata, and the key."""
    if dataclasses.is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        named = {name: part for name, part in value.items() if name == "__key__" or not name.startswith("__")}
        return {name: plain(part) for name, part in named.items()}
    return value.decode() if isinstance(value, bytes) else value


def prepare(path: Path, *how: str) -> None:
    energon = str(Path(sys.executable).with_name("energon"))
    subprocess.run([energon, "prepare", str(path), "--non-interactive", "--num-workers", "1", *how], check=True)


IMAGES = ("--split-ratio", "3,1,0", "--sample-type", "CrudeWebdataset")

FIELDS = json.dumps({"image": "png,cap", "caption": "meta.json[list][1]"})

CAPTIONS = (
    *("--split-parts", "train:shard_{0..2}.tar", "--split-parts", "val:shard_3.tar"),
    *("--sample-type", "CaptioningSample", "--field-map", FIELDS),
)

READ = {
    "images": ["train", "val"],
    "captions": ["train", "val"],
    "joined.yaml": ["train", "val"],
    "mixed.yaml": ["test"],
}


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    tarfile.RECORDSIZE = 1024  # type: ignore[misc]
    write_folder("images", 0, {"raw": "raw #", "json": '{"text": "#", "list": [1, "#"]}'}, *IMAGES)
    write_folder("captions", 1, {"cap": "cap #", "meta.json": '{"list": [0, "#"]}'}, *CAPTIONS)
    split = FOLDER / "images" / ".nv-meta" / "split.yaml"
    split.write_text(split.read_text().replace("exclude: []", "exclude:\n- shard_0.tar/{000,005}\n- shard_1.tar\n"))
    for name, text in METADATASETS.items():
        (FOLDER / name).write_text(text.lstrip())
    (FOLDER / "joiner.py").write_text(JOINER)
    sys.path.insert(0, str(FOLDER))
    prepare(FOLDER / "joined.yaml")
    found = {f"{name} {part}": read(FOLDER / name, part, 100) for name, parts in READ.items() for part in parts}
    (FOLDER / "expected.json").write_text(json.dumps(found, indent=1))
    for unused in (FOLDER / "joiner.py", *FOLDER.glob("*/.nv-meta/index.*")):
        unused.unlink()
    for folder in ("joined.yaml.cache", "__pycache__"):
        shutil.rmtree(FOLDER / folder, ignore_errors=True)


if __name__ == "__main__":
    main()
