"""Decoders of members of a sample, by extension."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from asyncdata.errors import PlanError
from asyncdata.formats.json_values import json_value
from asyncdata.formats.npy import array_of

__all__ = ("INTEGERS", "JSON", "TEXTS", "Decoder", "Decoders")

Decoder: TypeAlias = Callable[[bytes], Any]

TEXTS: Final = ("txt", "text", "transcript")
INTEGERS: Final = ("cls", "cls2", "class", "count", "index", "inx", "id")
JSON: Final = ("json", "jsn")

STANDARD: Final[Mapping[str, Decoder]] = {
    **dict.fromkeys(TEXTS, lambda data: str(data, "utf-8")),
    **dict.fromkeys(INTEGERS, int),
    **dict.fromkeys(JSON, json_value),
    "npy": array_of,
}

PICKLED: Final = frozenset({"pyd", "pkl", "pickle", "pt", "pth"})
"""Extensions of pickled members, which can run any code when they are loaded."""


class Decoders:
    """Decoders by extension: the user's, and the standard ones; members with other extensions stay bytes."""

    def __init__(self, decoders: Mapping[str, Decoder] | None) -> None:
        self._raw = decoders is None
        self._decoders = {
            **STANDARD,
            **{name.lower().lstrip("."): function for name, function in (decoders or {}).items()},
        }
        self._found: dict[str, Decoder | None] = {}

    def value(self, extension: str, data: bytes) -> Any:
        """Decode a member; raises what its decoder raises."""
        if self._raw:
            return data
        try:
            decode = self._found[extension]
        except KeyError:
            decode = self._found[extension] = self._decoder(extension)
        return data if decode is None else decode(data)

    def _decoder(self, extension: str) -> Decoder | None:
        """Return the decoder of an extension: that of the full extension, or of its last part."""
        for name in (extension, extension.rpartition(".")[2]):
            if name in self._decoders:
                return self._decoders[name]
        last = extension.rpartition(".")[2]
        return refused(last) if last in PICKLED else None


def refused(extension: str) -> Decoder:
    """Return a decoder that refuses pickled members."""

    def refuse(data: bytes) -> Any:
        raise PlanError(
            f"a member .{extension} is pickled and can run any code when it is loaded: choose how to decode it, "
            f"WebDataset(decoders={{{extension!r}: pickle.loads}}), or {{{extension!r}: bytes}} to get its raw bytes"
        )

    return refuse
