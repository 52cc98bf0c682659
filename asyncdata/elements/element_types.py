"""Types of elements, which the overloads of `Dataset`'s methods share."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias, TypeVar, TypeVarTuple

import numpy as np
import numpy.typing as npt

__all__ = ("Leaf", "NamedTupleLike", "Numbers", "OfDtype", "Parts", "Scalar", "T_co", "WithoutParts")

Numbers: TypeAlias = npt.NDArray[np.number[Any] | np.bool_]
"""Arrays of which PyTorch has tensors."""

Kept: TypeAlias = np.number[Any] | np.bool_ | np.object_ | np.datetime64 | np.timedelta64
"""NumPy's scalars that arrays of elements keep: of strings they are objects."""

WithoutParts: TypeAlias = complex | str | bytes | np.generic | npt.NDArray[Any] | None
"""Elements that are no structures."""

T_co = TypeVar("T_co", covariant=True)
"""An element."""

Parts = TypeVarTuple("Parts")
"""The parts of an element that is a tuple: a function gets each as an argument."""

Scalar = TypeVar("Scalar", bound=Kept)

Leaf = TypeVar("Leaf", bound=str | bytes | Kept | npt.NDArray[Kept])
"""What a dataset gives as it got it."""

Scalar_co = TypeVar("Scalar_co", bound=np.generic, covariant=True)


class OfDtype(Protocol[Scalar_co]):
    """An array, or a scalar of NumPy."""

    @property
    def dtype(self) -> np.dtype[Scalar_co]: ...


class NamedTupleLike(Protocol):
    """A named tuple: it is one argument of a function, and its fields are of other types in a batch."""

    def _asdict(self) -> dict[str, Any]: ...
