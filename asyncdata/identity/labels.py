"""Identity: the text and hash of a node in a state, so that the state is not used with another node."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import partial
from types import FunctionType
from typing import Any, cast

from asyncdata.executors.function_call import Call
from asyncdata.graph.node import Node
from asyncdata.identity.content_hash import hash_of
from asyncdata.identity.hashed_attributes import is_own, keywords_of

__all__ = ("words_of",)


def words_of(node: Node) -> str | None:
    """Return the text of a node in a state: its identity, and a hash of arguments that it leaves out, if not the
    default.

    Functions count by their names, as they may be edited before a run resumes.
    """
    words = node.identity
    if words is None:
        return None
    arguments = {name: value for name, value in node.unlabelled.items() if not is_default(node, name, value)}
    arguments.update(
        (f"{name} of functions", value) for name in ("functions", "function") if (value := own_parts(node, name))
    )
    return f"{words} #{hash_of(sorted(arguments.items()))}" if arguments else words


def is_default(node: Node, name: str, value: Any) -> bool:
    default = next(field.default for field in fields(node) if field.name == name)
    return value is default or (default is not MISSING and hash_of(value) == hash_of(default))


def own_parts(node: Node, name: str) -> list[Any]:
    """Return the arguments that this package has put into the functions of a node: boundaries, the options of a
    reader."""
    value: Any = getattr(node, name, None)
    calls: Any = value if isinstance(value, tuple) else (value,)  # pyright: ignore[reportUnknownVariableType]
    found = [
        (call.arguments, call.fn if holds_arguments(call.fn) else None) for call in calls if isinstance(call, Call)
    ]
    return [pair for pair in found if pair != ((), None)]


def holds_arguments(function: Any) -> bool:
    """Return whether this is a function of this package with arguments, or values of the function around it."""
    if type(function) is partial:
        return is_own(function.func) and bool(function.args or keywords_of(cast("partial[Any]", function)))
    return type(function) is FunctionType and is_own(function) and bool(function.__closure__)
