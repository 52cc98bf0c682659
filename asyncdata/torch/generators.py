"""The random number generators that a loader's sampler may draw from, and their states as JSON values."""

from __future__ import annotations

import ctypes
import random
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final
from zlib import compress, decompress

import numpy as np

from asyncdata.errors import ResumeError
from asyncdata.runtime.state_values import from_json_value, to_json_value
from asyncdata.torch.internals import numpy_bits, numpy_global, torch
from asyncdata.torch.sampler_attributes import attributes

__all__ = (
    "GlobalStates",
    "Snapshot",
    "generators_in",
    "generators_of",
    "global_states",
    "made_from",
    "mark_of_globals",
    "restore",
    "set_global_states",
    "snapshot",
    "states_from_json",
    "states_to_json",
)

Snapshot = dict[str, Any]
"""The state of each generator, by its name."""

GlobalStates = tuple[bytes, tuple[Any, ...], tuple[Any, ...]]
"""The states of the global generators of torch (CPU), Python and NumPy."""

CPU: Final = torch.device("cpu")

KINDS: Final = (torch.Generator, random.Random, np.random.RandomState, np.random.Generator)

MT19937_BYTES: Final = 2500
"""The size of the state of NumPy's global generator: 624 words and a place."""


def packed(data: bytes) -> str:
    return b64encode(compress(data, 1)).decode()


def unpacked(text: str) -> bytes:
    return decompress(b64decode(text))


class GlobalTorch:
    """The global generator of torch on the CPU."""

    @staticmethod
    def get() -> str:
        """Return the state."""
        return packed(torch.get_rng_state().numpy().tobytes())

    @staticmethod
    def set(state: str) -> None:
        """Continue from a state."""
        torch.set_rng_state(torch.frombuffer(bytearray(unpacked(state)), dtype=torch.uint8))


class TorchGenerator:
    """A generator of torch, on any device."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def get(self) -> str:
        """Return the state."""
        return packed(self.generator.get_state().numpy().tobytes())

    def set(self, state: str) -> None:
        """Continue from a state."""
        self.generator.set_state(torch.frombuffer(bytearray(unpacked(state)), dtype=torch.uint8))


class PythonGenerator:
    """A `random.Random`, or the module `random` itself."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def get(self) -> list[Any]:
        """Return the state."""
        version, words, gauss = self.generator.getstate()
        return [version, packed(np.array(words, np.uint32).tobytes()), gauss]

    def set(self, state: list[Any]) -> None:
        """Continue from a state."""
        version, words, gauss = state
        self.generator.setstate((version, tuple(np.frombuffer(unpacked(words), np.uint32).tolist()), gauss))


class NumPyGenerator:
    """A `RandomState` or `Generator` of NumPy, or the module `np.random` itself."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def get(self) -> dict[str, Any]:
        """Return the state."""
        bits = getattr(self.generator, "bit_generator", None)
        return to_json_value(self.generator.get_state(legacy=False) if bits is None else bits.state)

    def set(self, state: Mapping[str, Any]) -> None:
        """Continue from a state."""
        bits = getattr(self.generator, "bit_generator", None)
        if bits is None:
            self.generator.set_state(from_json_value(state))
        else:
            bits.state = from_json_value(state)


def wrapped(value: object) -> Any:
    """Return a generator with `get` and `set`; `None` for any other object."""
    if isinstance(value, torch.Generator):
        return TorchGenerator(value)
    if isinstance(value, random.Random) and not isinstance(value, random.SystemRandom):
        return PythonGenerator(value)
    if isinstance(value, KINDS[2:]):
        return NumPyGenerator(value)
    return None


def made_from(state: Any) -> Any:
    """Return a generator of the kind that has such a state, for a sampler that has not made its own yet."""
    if isinstance(state, str):
        return torch.Generator()
    if isinstance(state, list):
        return random.Random()
    bits = {kind.__name__: kind for kind in np.random.BitGenerator.__subclasses__()}[state["bit_generator"]]()
    return np.random.RandomState(bits) if "gauss" in state else np.random.Generator(bits)


def generators_of(sampler: object, given: object) -> dict[str, Any]:
    """Return the global generators, and those that a sampler or the samplers in it hold, each by its name."""
    found: dict[str, Any] = {
        "torch": GlobalTorch(),
        "python": PythonGenerator(random),
        "numpy": NumPyGenerator(numpy_global()),
    }
    seen: set[int] = set()
    own = [(one.path, one.value) for one in attributes(sampler)]
    for name, value in (("generator", given), *own):
        generator = wrapped(value)
        if generator is not None and id(value) not in seen:
            seen.add(id(value))
            found[name] = generator
    return found


def generators_in(names: Mapping[str, object]) -> dict[str, Any]:
    """Return the generators of this processor among the globals of a module."""
    found = {name: wrapped(value) for name, value in [*names.items()] if issubclass(type(value), KINDS)}
    return {name: one for name, one in found.items() if one and getattr(one.generator, "device", CPU) == CPU}


def snapshot(generators: Mapping[str, Any]) -> Snapshot:
    """Return the states of all generators."""
    return {name: generator.get() for name, generator in generators.items()}


def restore(generators: Mapping[str, Any], states: Mapping[str, Any]) -> None:
    """Continue from the states of all generators; `ResumeError` if the loader has others than the saved one."""
    if generators.keys() != states.keys():
        raise ResumeError(
            f"the state has random number generators {sorted(states)}, and the loader has {sorted(generators)}: give "
            "it the same sampler and generator"
        )
    for name, generator in generators.items():
        try:
            generator.set(states[name])
        except Exception as error:
            raise ResumeError(f"the state of the generator {name!r} cannot be used: {error}") from error


# in workers


def global_states() -> GlobalStates:
    """Return the states of the global generators."""
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), numpy_global().get_state()


def set_global_states(states: GlobalStates) -> None:
    """Set the global generators."""
    own, python, numpy = states
    torch.set_rng_state(torch.frombuffer(bytearray(own), dtype=torch.uint8))
    random.setstate(python)
    numpy_global().set_state(numpy)


def mark_of_globals() -> Callable[[], tuple[Any, ...]]:
    """Return a function that returns something else whenever a global generator has been drawn from.

    Reading NumPy's state takes 50 µs, and the bytes of it one.
    """
    numpy = numpy_bits()
    address = numpy.ctypes.state_address if type(numpy).__name__ == "MT19937" else None

    def mark() -> tuple[Any, ...]:
        _, words, gauss = random.getstate()
        read: Any = (
            numpy_global().get_state(legacy=False) if address is None else ctypes.string_at(address, MT19937_BYTES)
        )
        return (
            torch.get_rng_state().numpy().tobytes(),
            words[0],
            words[-1],
            gauss,
            str(read) if address is None else read,
        )

    return mark


def states_to_json(states: GlobalStates) -> list[Any]:
    """Return states of the global generators as JSON values."""
    own, (version, words, gauss), (kind, keys, *rest) = states
    python = [version, packed(np.array(words, np.uint32).tobytes()), gauss]
    return [packed(own), python, [kind, packed(np.asarray(keys, np.uint32).tobytes()), *rest]]


def states_from_json(states: list[Any]) -> GlobalStates:
    """Return states of the global generators from JSON values."""
    own, (version, words, gauss), (kind, keys, *rest) = states
    python = version, tuple(np.frombuffer(unpacked(words), np.uint32).tolist()), gauss
    return unpacked(own), python, (kind, np.frombuffer(unpacked(keys), np.uint32).copy(), *rest)
