"""ParquetEncoder: writes rows as row groups of a Parquet file; the first row group decides the types; without I/O."""

from __future__ import annotations

import base64
import datetime
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from asyncdata.elements.validation import check_unmasked
from asyncdata.errors import StructureError
from asyncdata.formats.arrow_columns import arrow

__all__ = ("ParquetEncoder", "RowTypes")

METHOD: Final = "write_parquet"

GROUP_BYTES: Final = 1 << 25
"""About how many bytes of values are a row group."""

GROUP_ROWS: Final = 1 << 17
"""The most rows of a row group."""


class WriteBuffer(io.RawIOBase):
    """A file that buffers what is written until it is taken."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[bytes] = []
        self.at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def write(self, data: Any, /) -> int:
        self.parts.append(bytes(data))
        self.at += len(self.parts[-1])
        return len(self.parts[-1])

    def taken(self) -> bytes:
        """Return what was written since the last call."""
        parts, self.parts = self.parts, []
        return b"".join(parts)


@dataclass
class RowTypes:
    """The schema of all files of a dataset; if it is not given, the first row group decides it."""

    schema: Any = None

    def text(self) -> str:
        """Return the schema as text, "" if there is none yet."""
        return "" if self.schema is None else base64.b64encode(self.schema.serialize()).decode()

    @classmethod
    def from_text(cls, text: str) -> RowTypes:
        """Parse a schema from text."""
        pa = arrow("pyarrow", METHOD)
        return cls(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))))


class ParquetEncoder:
    """Encodes rows, dicts of values by column, as the row groups of one file; `before` rows are in earlier files."""

    def __init__(self, types: RowTypes, codec: str = "SNAPPY", group_bytes: int = GROUP_BYTES, before: int = 0) -> None:
        self._types = types
        self._codec = codec
        self._group_bytes = min(group_bytes, GROUP_BYTES)
        self._rows: list[Mapping[str, Any]] = []
        self._first = before  # the number of the first of these rows
        self._size = 0
        self._file = WriteBuffer()
        self._writer: Any = None

    def add(self, element: Any) -> bytes:
        """Take a row; return a row group once it is complete."""
        if not isinstance(element, Mapping):
            raise StructureError(f"{METHOD} needs rows: dicts of values by column, got {type(element).__name__}")
        row = cast("Mapping[str, Any]", element)
        self._rows.append(row)
        self._size += sum(map(size_of, row.values()))
        return self._group() if self._size >= self._group_bytes or len(self._rows) == GROUP_ROWS else b""

    def finish(self) -> bytes:
        """Return the last row group, and the file's metadata."""
        self._write()
        self._open().close()
        return self._file.taken()

    def _group(self) -> bytes:
        """Return the rows that were gathered as a row group."""
        self._write()
        return self._file.taken()

    def _write(self) -> None:
        if self._rows:
            try:
                if self._types.schema is None:
                    self._types.schema = schema_of(self._rows)
                table = table_of(self._rows, self._types.schema, self._first)
                self._open().write_table(table, row_group_size=len(self._rows))
            except (StructureError, arrow("pyarrow", METHOD).ArrowException) as error:
                raise located(error, self._first, self._first + len(self._rows) - 1) from error.__cause__
            self._first += len(self._rows)
            self._rows, self._size = [], 0

    def _open(self) -> Any:
        if self._writer is None:
            known = self._types.schema
            schema = arrow("pyarrow", METHOD).schema([]) if known is None else known
            pq = arrow("pyarrow.parquet", METHOD)
            self._writer = pq.ParquetWriter(self._file, schema, compression=self._codec, write_page_checksum=True)
        return self._writer


def located(error: Exception, first: int, last: int) -> StructureError:
    """Return an error of a row group that says in which elements the problem is."""
    problem = error if isinstance(error, StructureError) else StructureError(f"{METHOD}: {error}")
    if not hasattr(problem, "__notes__"):
        where = f"element {first}" if first == last else f"one of the elements {first} to {last}"
        problem.add_note(f"{where} of the dataset")
    return problem


def size_of(value: Any) -> int:
    """Return the approximate size of a value in bytes."""
    if isinstance(value, (bytes, str)):
        return len(value)
    return int(getattr(value, "nbytes", 8))


def schema_of(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return the columns of rows, and the types that fit all their values."""
    pa = arrow("pyarrow", METHOD)
    names: dict[Any, None] = dict.fromkeys(name for row in rows for name in row)
    fields: list[Any] = []
    for name in names:
        if not isinstance(name, str):
            raise StructureError(f"{METHOD}: the name of a column must be a str, got {name!r:.80}")
        try:
            fields.append(pa.field(name, type_of(pa, [row.get(name) for row in rows])))
        except (ValueError, TypeError, NotImplementedError) as error:
            raise StructureError(f"{METHOD}: the column {name!r} has no type: {error}") from error
    return pa.schema(fields)


def type_of(pa: Any, values: Sequence[Any]) -> Any:
    """Return the type of a column: arrays of one shape become lists of a fixed size."""
    arrays = [cast("npt.NDArray[Any]", value) for value in values if isinstance(value, np.ndarray) and value.ndim]
    if not arrays or not is_in_arrow(arrays[0].dtype):
        return pa.infer_type([listed(value) for value in values])
    there = sum(value is not None for value in values)
    if len(arrays) < there or len({array.dtype for array in arrays}) > 1:
        raise ValueError("arrays of one dtype, and None, can be in one column")
    shapes = {array.shape for array in arrays}
    kind = pa.from_numpy_dtype(arrays[0].dtype)
    if {len(shape) for shape in shapes} == {1}:
        alike = len(shapes) == 1 and len(arrays) > 1  # one array does not show whether others have the same shape
        alike = alike and arrays[0].size > 0  # Parquet has no lists of the fixed size 0
        return pa.list_(kind, arrays[0].size) if alike else pa.list_(kind)
    if len(shapes) > 1:
        raise ValueError(f"arrays of several axes must have one shape, got {sorted(shapes)[:3]}")
    if not arrays[0].size:
        raise ValueError(f"arrays of several axes must have values, got the shape {arrays[0].shape}")
    return pa.fixed_shape_tensor(kind, arrays[0].shape)


def is_in_arrow(dtype: np.dtype[Any]) -> bool:
    """Return whether Arrow has a dtype of numbers or times."""
    return dtype.kind in "biuf" or (dtype.kind in "mM" and np.datetime_data(dtype)[0] in ("s", "ms", "us", "ns"))


def listed(value: Any) -> Any:
    """Return an array without axes, or of a dtype that Arrow does not have, as Python values."""
    return cast("npt.NDArray[Any]", value).tolist() if isinstance(value, np.ndarray) else value


def table_of(rows: Sequence[Mapping[str, Any]], schema: Any, first: int = 0) -> Any:
    """Return rows, from number `first` on, as columns of these types; `StructureError` for what does not fit."""
    pa = arrow("pyarrow", METHOD)
    known = set(schema.names)
    for number, row in enumerate(rows, first):
        if not known.issuperset(row):
            error = StructureError(
                f"{METHOD}: a row has the column {min(set(map(str, row)) - known)!r}, which was not in the first row "
                f"group; its columns are {schema.names}; give schema=, or the same columns in each row"
            )
            error.add_note(f"element {number} of the dataset")
            raise error
    return pa.Table.from_arrays([column_of(pa, field, rows, first) for field in schema], schema=schema)


def column_of(pa: Any, field: Any, rows: Sequence[Mapping[str, Any]], first: int) -> Any:
    """Return the values of a column."""
    values = [row.get(field.name) for row in rows]
    for value in values:
        if isinstance(value, np.ndarray) and value.ndim:  # without axes it is None if it is masked
            check_unmasked(value, f"{METHOD}: a value of the column {field.name!r}")
    try:
        return array_of(pa, values, field.type)
    except (ValueError, TypeError, NotImplementedError, OverflowError) as error:
        place = next((place for place, value in enumerate(values) if not fits(pa, value, field.type)), None)
        value = values if place is None else values[place]
        problem = StructureError(
            f"{METHOD}: the column {field.name!r} is {field.type}, which {value!r:.80} does not fit: {error}; the "
            "first row group decided the types; give schema= for others"
        )
        if place is not None:
            problem.add_note(f"element {first + place} of the dataset")
        raise problem from error


def fits(pa: Any, value: Any, kind: Any) -> bool:
    """Return whether a column of this type can store a value."""
    try:
        array_of(pa, [value], kind)
    except (ValueError, TypeError, NotImplementedError, OverflowError):
        return False
    return True


def check_lossless(pa: Any, found: Any, kind: Any) -> None:
    """Raise if converting values of the type `found` to `kind` would lose information, which Arrow does not report."""
    if pa.types.is_struct(found) and pa.types.is_struct(kind):
        types = {kind.field(place).name: kind.field(place).type for place in range(kind.num_fields)}
        for place in range(found.num_fields):
            field = found.field(place)
            if field.name not in types:
                raise ValueError(f"there is no field {field.name!r}")
            check_lossless(pa, field.type, types[field.name])
    elif is_listed(pa, found) and is_listed(pa, kind):
        check_lossless(pa, found.value_type, kind.value_type)
    elif pa.types.is_integer(kind) and (pa.types.is_floating(found) or pa.types.is_decimal(found)):
        raise ValueError("they are not integers")
    elif pa.types.is_boolean(kind) and not (pa.types.is_boolean(found) or pa.types.is_null(found)):
        raise ValueError("they are not booleans")


def is_listed(pa: Any, kind: Any) -> bool:
    """Return whether values are lists."""
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def array_of(pa: Any, values: Sequence[Any], kind: Any) -> Any:
    """Return values as an Arrow array."""
    if isinstance(kind, pa.FixedShapeTensorType):
        shape = tuple(kind.shape)
        if any(value is not None and np.shape(value) != shape for value in values):
            raise ValueError(f"the shape {shape} is needed")
        rows = [None if value is None else np.ravel(value) for value in values]
        return pa.ExtensionArray.from_storage(kind, array_of(pa, rows, kind.storage_type))
    if pa.types.is_fixed_size_list(kind) and not kind.list_size:
        raise ValueError("Parquet has no lists of the fixed size 0")
    if pa.types.is_fixed_size_list(kind) and values and all(type(value) is np.ndarray for value in values):
        rows = np.stack(cast("list[npt.NDArray[Any]]", values))
        if rows.ndim == 2 and rows.shape[1] == kind.list_size:
            check_lossless(pa, pa.from_numpy_dtype(rows.dtype.newbyteorder("=")), kind.value_type)
            return pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1), kind.value_type), type=kind)
    if (same := numpy_type(pa, values, kind)) is not None:
        made = array_of(pa, values, same).view("int64")
        return (made.cast("int32") if kind.bit_width == 32 else made).view(kind)
    plain = values if is_listed(pa, kind) else [listed(value) for value in values]
    found = pa.infer_type(plain)
    check_lossless(pa, found, kind)
    check_texts(pa, plain, kind)
    try:
        made = pa.array(plain, kind, from_pandas=False)
    except TypeError:
        made = pa.array([dates_of_python(value) for value in plain], kind)
    if pa.types.is_temporal(kind) and pa.types.is_temporal(found):
        check_times(pa, plain, made, found)
    return made


def numpy_type(pa: Any, values: Sequence[Any], kind: Any) -> Any:
    """Return the type that stores NumPy's times by the same numbers as a type of which NumPy has none, else `None`:
    times with a zone, which are in UTC, and times of day."""
    if not any(isinstance(value, (np.datetime64, np.timedelta64)) for value in values):
        return None
    if pa.types.is_time(kind):
        return pa.duration(kind.unit)
    return pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) and kind.tz is not None else None


def dates_of_python(value: Any) -> Any:
    """Return NumPy's dates as Python's, as Arrow takes no others as objects; other values unchanged."""
    if isinstance(value, dict):
        return {name: dates_of_python(part) for name, part in cast("dict[Any, Any]", value).items()}
    found: Any = value
    return found.tolist() if isinstance(value, (np.datetime64, np.ndarray)) and found.dtype == "M8[D]" else found


def check_texts(pa: Any, values: Sequence[Any], kind: Any) -> None:
    """Raise for bytes in a column of strings, and the other way round, which Arrow would convert."""
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    if is_text or is_binary:
        wrong = bytes if is_text else str
        if any(issubclass(one, wrong) for one in set(map(type, values))):
            raise ValueError(f"{'str' if is_text else 'bytes'} is needed, got {wrong.__name__}")


def check_times(pa: Any, values: Sequence[Any], made: Any, found: Any) -> None:
    """Raise if times lose their time zone or a part of a second, which Arrow does not report for Python's."""
    kind = made.type
    if pa.types.is_timestamp(kind):
        naive = {value.tzinfo is None for value in values if isinstance(value, datetime.datetime)}
        if naive - {kind.tz is None}:
            raise ValueError("times with and without a time zone cannot be in one column")
    if found != kind and not made.cast(found).equals(pa.array(values, found)):
        raise ValueError("a part of the time would be lost")
