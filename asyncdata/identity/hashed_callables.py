"""What callables of other packages hold: functions that they call in another way, and the numbers of fitted models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np

from asyncdata.errors import PlanError
from asyncdata.identity.hashed_attributes import attributes_of

__all__ = ("contents_of_callable",)


def contents_of_callable(value: Any, kind: type[Any]) -> Any:
    """Return what a callable of another package, or an object with methods, does and knows, as plain values, arrays and
    functions; `None` for others, which are looked at as objects of the user's are.

    `PlanError` for a ufunc of `numpy.frompyfunc`, whose function cannot be had.
    """
    if kind is np.ufunc and value.__name__.endswith(" (vectorized)"):
        name = value.__name__.removesuffix(" (vectorized)")
        raise PlanError(
            f"a ufunc of numpy.frompyfunc({name}) does not show which function it calls, so that elements which depend "
            "on it cannot be told from others: use numpy.vectorize"
        )
    for base in kind.__mro__:
        find = KNOWN.get(f"{base.__module__.partition('.')[0]}.{base.__name__}")
        if find is not None:
            return find(value)
    return compiled_state(value) if kind.__module__.startswith("sklearn.") else None


def compiled_state(value: Any) -> Any:
    """Return the state of an object of scikit-learn that is compiled, as a tree is."""
    return None if hasattr(value, "__dict__") else value.__reduce__()[1:]


def model_parts(model: Any) -> Any:
    """Return, for a module of PyTorch, the code and attributes of its parts, and its numbers."""
    module = sys.modules["torch"].nn.Module
    parts = [(name, code_of(one), public_attributes(one)) for name, one in module.named_modules(model)]
    numbers = [*module.named_parameters(model), *module.named_buffers(model)]
    return parts, [(name, tensor.detach().cpu()) for name, tensor in numbers]


def code_of(module: Any) -> Any:
    """Return what a module of PyTorch computes: its function, or what was compiled from it."""
    kind: type[Any] = type(module)  # pyright: ignore[reportUnknownVariableType]
    return module.code if hasattr(kind, "code") and hasattr(module, "code") else (kind.__qualname__, kind.forward)


def public_attributes(module: Any) -> list[tuple[str, Any]]:
    """Return the attributes of a module that its methods do not assign, and that are not PyTorch's own."""
    return sorted(
        [pair for pair in attributes_of(module, cast("type[Any]", type(module))).items() if not pair[0].startswith("_")]
    )


KNOWN: Final[dict[str, Callable[[Any], Any]]] = {
    "numpy.vectorize": lambda value: (value.pyfunc, value.otypes, frozenset(value.excluded), value.signature),
    "numba.Dispatcher": lambda value: (value.py_func, sorted(value.targetoptions.items())),
    "numba.GUFunc": lambda value: (value.gufunc_builder.py_func, value.signature),
    "torch.ScriptFunction": lambda value: value.code,
    "torch.Module": model_parts,
    "sklearn.BaseEstimator": lambda value: sorted(cast("dict[str, Any]", vars(value)).items()),
}
"""Classes of other packages, and how to have what their objects hold."""
