"""The packages that decode pictures, sound and videos in the functions of a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from asyncdata.formats import audio, images
from asyncdata.graph.node import Node, nodes_of
from asyncdata.transforms.function_node import Called

__all__ = ("decoder_lines",)

DECODERS: Final[dict[str, Callable[[], str]]] = {
    "decode_image": lambda: f"JPEG by {images.decoder_name()}, other pictures by PIL",
    "decode_audio": lambda: f"{audio.decoder_name()}, what it does not know by av",
    "decode_video_clip": lambda: "av",
}


def decoder_lines(plan: Node) -> list[str]:
    """Return a line of `explain` with the packages that functions of a plan will use, if they name a decoder."""
    calls = [call for node in nodes_of(plan) if isinstance(node, Called) for call in node.calls]
    used = {name for call in calls for name in names_in(call.fn)}
    found = [f"{name}: {chosen()}" for name, chosen in DECODERS.items() if name in used]
    return [f"decoders   {'; '.join(found)}"] if found else []


def names_in(fn: Any) -> set[str]:
    """Return the name of a function, and those that its code has."""
    return {getattr(fn, "__name__", ""), *getattr(getattr(fn, "__code__", None), "co_names", ())}
