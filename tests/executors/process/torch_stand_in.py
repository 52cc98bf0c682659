"""What of torch a pipeline touches, for machines that have none: a tensor shares its array's memory, and cannot travel
by itself."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np

float32 = np.float32


class Tensor:
    """An array under another name; `__module__` is torch's, as there."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.device = SimpleNamespace(type="cpu")

    def is_contiguous(self) -> bool:
        return self.array.flags.c_contiguous

    @property
    def dtype(self) -> Any:
        return self.array.dtype

    layout = "torch.strided"
    requires_grad = False

    def resolve_conj(self) -> Tensor:
        return self

    resolve_neg = resolve_conj

    def numel(self) -> int:
        return self.array.size

    def element_size(self) -> int:
        return self.array.itemsize

    def detach(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.array

    def __reduce__(self) -> NoReturn:
        raise RuntimeError("a tensor was sent in its own way")


Tensor.__module__ = "torch"


def from_numpy(array: Any) -> Tensor:
    return Tensor(array)


def full(shape: tuple[int, ...], value: Any, dtype: Any) -> Tensor:
    return Tensor(np.full(shape, value, dtype))


def set_num_threads(count: int) -> None:
    """Take it, as torch does."""
