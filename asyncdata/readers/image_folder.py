"""ImageFolderDataset: the contents of files, each with the number of its folder as its label."""

from __future__ import annotations

import glob
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, cast

from asyncdata.dataset import Dataset
from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.graph.node import check_count
from asyncdata.options import AUTOTUNE
from asyncdata.readers.files import CacheFolder, StorageMapping
from asyncdata.sources.file_names import FileNames
from asyncdata.storage import StorageOptions, is_local, local_path, read_file, store_for, without_query
from asyncdata.transforms.map import Map

__all__ = ("ImageFolderDataset",)

EXTENSIONS: Final = ("bmp", "gif", "jpeg", "jpg", "pgm", "png", "ppm", "tif", "tiff", "webp")


class ImageFolderDataset(Dataset[tuple[bytes, int]]):
    """The files in the subfolders of a folder, each as its `bytes` and a label: the number of its subfolder.

    `path/cat/1.jpg` and `path/dog/in/2.jpg` belong to the classes `cat` and `dog`, as in torchvision's `ImageFolder`:
    `class_names` are the names of the subfolders in order. Nothing is decoded: decode in a `map(num_parallel_calls=)`.
    Files are listed when the dataset is made, and come in the order of their paths. They have random access:
    `shuffle()` needs no buffer, and `dataset[i]` reads one file.

    >>> import asyncdata as ad, tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cat/1.jpg", "dog/1.jpg", "dog/2.jpg"):
    ...         path = pathlib.Path(folder, name)
    ...         path.parent.mkdir(exist_ok=True)
    ...         _ = path.write_bytes(b"(a %b)" % path.parent.name.encode())
    ...     ds = ad.ImageFolderDataset(folder)
    ...     ds.class_names, len(ds), list(ds)
    (['cat', 'dog'], 3, [(b'(a cat)', 0), (b'(a dog)', 1), (b'(a dog)', 1)])
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        extensions: Sequence[str] | None = EXTENSIONS,
        class_names: Sequence[str] | None = None,
        num_parallel_reads: int | None = AUTOTUNE,
        *,
        storage_options: StorageMapping = None,
        cache_dir: CacheFolder = None,
    ) -> None:
        """Read the files below `path`, a folder or a URL, that have one of these `extensions`; all files for `None`.

        `class_names` are the subfolders to read, in the order of their labels; by default all, sorted.
        `num_parallel_reads` files are read at once. A file that cannot be read is an error in its place.
        `storage_options` and `cache_dir` are as for `TFRecordDataset`.
        """
        method = "ImageFolderDataset"
        if num_parallel_reads is not None:
            check_count(method, "num_parallel_reads", num_parallel_reads, 1, (AUTOTUNE,))
        if isinstance(class_names, str):
            raise PlanError(f"{method}(class_names=) must be a list of names, got {class_names!r:.80}")
        storage = StorageOptions.of(method, storage_options, cache_dir)
        root = root_of(path)
        classes = classes_of(root, extensions, storage)
        self.class_names: list[str] = sorted(classes) if class_names is None else [*class_names]
        """The names of the subfolders; a label is an index of this list."""
        if missing := [name for name in self.class_names if name not in classes]:
            raise PlanError(
                f"{method}(class_names=): {missing[0]!r} is not among the folders with files, {sorted(classes)}"
            )
        files = sorted(file for name in self.class_names for file in classes[name])
        call = Call(method, labelled_by(len(root), self.class_names, storage_options, cache_dir))
        super().__init__(Map.of(FileNames(files), call, num_parallel_reads, None, None))


def root_of(path: str | os.PathLike[str]) -> str:
    """Return a folder with a slash at its end."""
    try:
        folder = os.fspath(path)
    except TypeError:
        raise PlanError(f"ImageFolderDataset(path=) must be a folder, as a str or PathLike, got {path!r:.80}") from None
    return (local_path(folder) if is_local(folder) else folder).rstrip("/") + "/"


def classes_of(root: str, extensions: Sequence[str] | None, storage: StorageOptions | None) -> dict[str, list[str]]:
    """Return the files below each subfolder; `FileNotFoundError` if there are none."""
    store, path = store_for(glob.escape(root) + "*/**", storage)
    endings = None if extensions is None else tuple(f".{extension.lower().lstrip('.')}" for extension in extensions)
    found: dict[str, list[str]] = {}
    for entry in store.list(path):
        if endings is None and is_local(root) and os.path.isdir(entry.path):
            continue
        name, slash, rest = entry.path[len(root) :].partition("/")
        if slash and rest and (endings is None or entry.path.lower().endswith(endings)):
            found.setdefault(name, []).append(entry.path)
    if not found:
        kinds = "" if endings is None else f" with one of the extensions {endings}"
        raise FileNotFoundError(f"ImageFolderDataset: there is no file{kinds} in a subfolder of {without_query(root)}")
    return found


def labelled_by(
    begin: int, names: Sequence[str], storage_options: StorageMapping, cache_dir: CacheFolder
) -> Callable[[str], Awaitable[tuple[bytes, int]]]:
    """Return a function that reads a file and returns its content and its label, from the subfolder in its path."""
    numbers = {name: number for number, name in enumerate(names)}

    async def labelled(file: str) -> tuple[bytes, int]:
        return await read_file(file, storage_options=storage_options, cache_dir=cache_dir), numbers[
            file[begin : file.index("/", begin)]
        ]

    def at_once(file: str) -> tuple[bytes, int] | None:
        content: bytes | None = cast("Any", read_file).at_once(file)
        return None if content is None else (content, numbers[file[begin : file.index("/", begin)]])

    cast("Any", labelled).at_once = at_once
    return labelled
