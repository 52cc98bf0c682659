"""Sequences of tokens: their checks, and how pieces of several make a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.promotion import in_one_dtype, unchanged
from asyncdata.elements.spec import TensorSpec
from asyncdata.elements.structure import leaf
from asyncdata.elements.tensors import any_tensor, as_array, from_array, is_tensor
from asyncdata.elements.validation import check_unmasked
from asyncdata.errors import StructureError
from asyncdata.transforms.padded_batch import fitting

__all__ = ("Piece", "RowLayout", "Tokens")

Array = npt.NDArray[Any]

INPUTS: Final = "inputs"
"""The name in a row of the tokens of an element without names."""

INPUT_IDS: Final = "input_ids"
LABELS: Final = "labels"
FIELDS: Final = (INPUT_IDS, LABELS, "position_ids", "cu_seqlens", "attention_mask")
"""What a row may have in the names of Hugging Face's models and flash attention."""

IGNORED: Final = -100
"""The label of a token that has no part in the loss, PyTorch's `ignore_index`."""


class Tokens(NamedTuple):
    """One sequence: its features by name, arrays of one length."""

    features: dict[str, Array]
    size: int
    tensors: bool = False
    """Whether a feature was a tensor of PyTorch: the features of the row are then."""


class Piece(NamedTuple):
    """Tokens `start` to `stop` of a sequence."""

    tokens: Tokens
    start: int
    stop: int

    def feature(self, name: str) -> Array:
        """Return the tokens of one feature."""
        return self.tokens.features[name][self.start : self.stop]


class RowLayout:
    """Rows of `length` tokens, filled up with `padding`: one value, or one by name.

    With `fields` rows have these in place of segments and positions.
    """

    def __init__(self, length: int, padding: Any, fields: Sequence[str] = ()) -> None:
        self.length = length
        self.fields = fields
        self.name = INPUT_IDS if fields else INPUTS
        self.padding = padding
        self.paddings: dict[str, Any] | None = cast("dict[str, Any]", padding) if isinstance(padding, dict) else None
        self.numbers = np.arange(length + 1, dtype=np.int32)
        self.checked: set[tuple[str, np.dtype[Any]]] = set()
        self.sound: set[np.dtype[Any]] = set()  # of arrays without names that were checked in full

    def tokens(self, element: Any) -> Tokens:
        """Return an element as a sequence; `StructureError` if it is none."""
        if type(element) is np.ndarray and element.ndim == 1 and element.dtype in self.sound:
            return Tokens({self.name: element}, len(element))
        named = isinstance(element, dict)
        given = cast("dict[str, Any]", element) if named else {self.name: element}
        if self.fields and INPUT_IDS not in given:
            raise StructureError(f"with fields= a sequence has a feature {INPUT_IDS!r}, but this one has {[*given]}")
        features = {name: array_of(name if named else "", value) for name, value in given.items()}
        sizes = {name: len(array) for name, array in features.items()}
        if len(set(sizes.values())) != 1:
            raise StructureError(f"the features of a sequence must have the same length, got {sizes}")
        if self.paddings is not None and self.paddings.keys() != features.keys():
            raise StructureError(f"padding_values has {[*self.paddings]}, and the sequence {[*features]}")
        if self.fields:
            self.check_labels(features)
        for name, array in features.items():
            if (name, array.dtype) not in self.checked:
                fitting(self.value(name), array.dtype, f"[{name!r}]")
                self.checked.add((name, array.dtype))
        if type(element) is np.ndarray and element.dtype != np.uint64:  # of which labels hold a part
            self.sound.add(element.dtype)
        return Tokens(features, next(iter(sizes.values())), any_tensor([*given.values()]))

    def check_labels(self, features: dict[str, Array]) -> None:
        """Raise `StructureError` for labels, or tokens that become labels, that are no integers of 64 bits."""
        labels = features.get(LABELS, features[INPUT_IDS] if LABELS in self.fields else None)
        if labels is None or not labels.size:
            return
        if labels.dtype.kind not in "biu":
            raise StructureError(f"labels must be integers, got {labels.dtype}")
        if labels.dtype == np.uint64 and labels.max() >= 2**63:
            raise StructureError(f"labels are int64, which cannot hold {labels.max()}")

    def value(self, name: str) -> Any:
        """Return the padding value of a feature."""
        if self.fields and name == LABELS:
            return IGNORED
        return self.padding if self.paddings is None else self.paddings[name]

    def row(self, pieces: Sequence[Piece]) -> dict[str, Array]:
        """Return pieces as one row: each feature, and for each token the number of its piece and its place there.

        Pieces are counted from 1; padding has segment 0.
        """
        sizes = np.array([piece.stop - piece.start for piece in pieces], np.int32)
        stops = sizes.cumsum(dtype=np.int32)
        used = int(stops[-1])
        segments, positions = np.zeros(self.length, np.int32), np.zeros(self.length, np.int32)
        segments[:used] = self.numbers[1 : len(pieces) + 1].repeat(sizes)
        np.subtract(self.numbers[:used], (stops - sizes).repeat(sizes), out=positions[:used])
        if self.fields:
            row = self.row_of_fields(pieces, stops, segments, positions)
        else:
            row = self.row_of_segments(pieces, used, segments, positions)
        tensors = any(piece.tokens.tensors for piece in pieces)
        return {name: from_array(array) for name, array in row.items()} if tensors else row

    def row_of_segments(
        self, pieces: Sequence[Piece], used: int, segments: Array, positions: Array
    ) -> dict[str, Array]:
        """Return each feature with its segments and positions."""
        row: dict[str, Array] = {}
        for number, name in enumerate(pieces[0].tokens.features):
            row[name] = self.filled(name, [piece.feature(name) for piece in pieces], used)
            row[f"{name}_segment_ids"] = segments.copy() if number else segments
            row[f"{name}_positions"] = positions.copy() if number else positions
        return row

    def row_of_fields(
        self, pieces: Sequence[Piece], stops: Array, segments: Array, positions: Array
    ) -> dict[str, Array]:
        """Return the features, and the fields that were asked for."""
        used = int(stops[-1])
        features = [name for name in pieces[0].tokens.features if name != LABELS]
        row = {name: self.filled(name, [piece.feature(name) for piece in pieces], used) for name in features}
        for field in self.fields:
            if field == LABELS:
                row[field] = self.labels(pieces, stops)
            elif field == "position_ids":
                row[field] = positions
            elif field == "cu_seqlens":
                row[field] = np.unique([0, *stops, self.length]).astype(np.int32)
            elif field == "attention_mask":
                row[field] = attention_mask(segments)
        return row

    def labels(self, pieces: Sequence[Piece], stops: Array) -> Array:
        """Return the labels, of which the first of each piece is ignored: no token of its sequence comes before it."""
        name = LABELS if LABELS in pieces[0].tokens.features else INPUT_IDS
        labels = np.full(self.length, IGNORED, np.int64)
        np.concatenate([piece.feature(name) for piece in pieces], out=labels[: stops[-1]])
        labels[[0, *stops[:-1]]] = IGNORED
        return labels

    def filled(self, name: str, parts: Sequence[Array], used: int) -> Array:
        """Return the parts of one feature one after another, and padding."""
        parts = in_one_dtype(parts, leaf(f"[{name!r}]"), "row")
        out = np.empty(self.length, np.result_type(parts[0]))
        np.concatenate(parts, out=out[:used])
        out[used:] = self.value(name)
        return out

    def signature(self, signature: Any) -> Any:
        """Return the signature of rows of these elements; `None` if theirs is not known, or they are not sequences."""
        given = cast("dict[str, Any]", signature) if isinstance(signature, dict) else {self.name: signature}
        row: dict[str, TensorSpec] = {}
        for name, spec in given.items():
            if not isinstance(spec, TensorSpec) or spec.shape is None or len(spec.shape) != 1:
                return None
            row[name] = TensorSpec((self.length,), spec.dtype)
            if self.fields:
                continue
            row[f"{name}_segment_ids"] = row[f"{name}_positions"] = TensorSpec((self.length,), np.int32)
        if self.fields:
            row.pop(LABELS, None)
            row.update({field: self.field_spec(field) for field in self.fields if field != INPUT_IDS})
        return row

    def field_spec(self, field: str) -> TensorSpec:
        if field == "cu_seqlens":
            return TensorSpec((None,), np.int32)
        if field == "attention_mask":
            return TensorSpec((self.length, self.length), np.bool_)
        return TensorSpec((self.length,), np.int64 if field == LABELS else np.int32)


def attention_mask(segments: Array) -> Array:
    """Return which tokens each one attends to: itself and those before it in its segment; padding to itself alone."""
    mask: Array = (segments[:, None] == segments) & (segments > 0)
    mask &= np.tri(len(segments), dtype=np.bool_)
    np.fill_diagonal(mask, True)  # else its softmax would be of nothing
    return mask


def array_of(name: str, value: Any) -> Array:
    """Return the tokens of one feature; `StructureError` if they are no array of numbers with one dimension."""
    what = f"feature {name!r} of a sequence" if name else "a sequence"
    check_unmasked(value, what)
    if is_tensor(value):
        value = as_array(value)
    if not isinstance(value, (np.ndarray, list)):
        raise StructureError(f"{what} must be an array of numbers or a list, got {type(value).__name__}")
    try:
        array = unchanged(cast("Any", value))
    except ValueError as error:
        raise StructureError(f"{what} is not an array: {error}") from None
    if array.ndim != 1 or array.dtype.kind in "OUS":
        raise StructureError(
            f"{what} must be an array of numbers with one dimension, got one of {array.dtype} and shape {array.shape}"
        )
    return array
