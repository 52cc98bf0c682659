"""Arrays in NumPy's file format, without objects."""

from __future__ import annotations

import ast
import re
import struct
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ("LONGEST", "MAGIC", "NpyHeader", "array_of", "header_of")

MAGIC: Final = b"\x93NUMPY"

LONG: Final = re.compile(r"(?<=\d)L(?=[,) ])")
"""The suffix that Python 2 wrote after some integers."""

LONGEST: Final = 1 << 16
"""The largest header in bytes."""


class NpyHeader(NamedTuple):
    """The header of a file: the array's dtype and shape, and where its data begins."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    begin: int

    @property
    def nbytes(self) -> int:
        """The size of the data in bytes."""
        size = self.dtype.itemsize
        for length in self.shape:
            size *= length
        return size

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return self.nbytes // self.shape[0] if self.shape and self.shape[0] else 0

    @property
    def by_columns(self) -> bool:
        """Whether the values of a row are not contiguous."""
        return self.fortran and len(self.shape) > 1


def header_of(data: bytes) -> NpyHeader:
    """Return the header of a file; `ValueError` for other data, and for objects, which are pickled."""
    if not data.startswith(MAGIC):
        raise ValueError("it does not begin as a .npy file does")
    if len(data) < 12 or not 1 <= data[6] <= 3:
        raise ValueError(
            "its header is cut short" if len(data) < 12 else f"it is of version {data[6]}, which is unknown"
        )
    wide = data[6] > 1
    (length,) = struct.unpack_from("<I" if wide else "<H", data, 8)
    begin = (12 if wide else 10) + length
    if length > LONGEST or begin > len(data):
        raise ValueError("its header is cut short" if length <= LONGEST else f"its header has {length} bytes")
    try:
        header: Any = ast.literal_eval(
            LONG.sub("", data[begin - length : begin].decode("utf-8" if data[6] == 3 else "latin-1"))
        )
        dtype = np.lib.format.descr_to_dtype(header["descr"])
        shape, fortran = tuple(map(int, header["shape"])), bool(header["fortran_order"])
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise ValueError(f"its header is damaged: {error}") from None
    if dtype.hasobject:
        raise ValueError("it holds pickled objects, which can run any code when they are loaded")
    if min(shape, default=0) < 0:
        raise ValueError(f"its header is damaged: the shape {shape}")
    return NpyHeader(dtype, shape, fortran, begin)


def array_of(data: bytes) -> npt.NDArray[Any]:
    """Return the array in a file; `ValueError` if it is damaged or holds objects.

    >>> import io
    >>> file = io.BytesIO()
    >>> np.save(file, np.arange(3))
    >>> array_of(file.getvalue())
    array([0, 1, 2])
    """
    header = header_of(data)
    if len(data) - header.begin != header.nbytes:
        raise ValueError(f"its array needs {header.nbytes} bytes, but has {len(data) - header.begin}")
    array = np.empty(header.shape, header.dtype, "F" if header.fortran else "C")
    if header.nbytes:
        numbers = np.frombuffer(data, header.dtype, offset=header.begin)
        array[...] = numbers.reshape(header.shape, order="F" if header.fortran else "C")
    return array
