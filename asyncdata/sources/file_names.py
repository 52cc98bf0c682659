"""FileNames: a list of files, whose identity has a digest of their names and sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from asyncdata.graph.node import PHYSICAL
from asyncdata.sources.file_list_digest import Files, stamps
from asyncdata.sources.in_memory import Items
from asyncdata.storage import StorageOptions

__all__ = ("FileNames",)


@dataclass(frozen=True, eq=False)
class FileNames(Items):
    """The names of files."""

    storage: StorageOptions | None = field(default=None, repr=False, metadata=PHYSICAL)
    """With which options these files were listed."""

    @property
    def identity(self) -> str:
        """A digest of the names and the files' sizes."""
        return str(Files.of(self.items))

    @property
    def contents(self) -> tuple[Any, ...]:
        return *super().contents, stamps(self.items)

    def difference(self, words: str) -> str:
        was = Files.parse(words)
        return "" if was is None else was.difference(self.items)
