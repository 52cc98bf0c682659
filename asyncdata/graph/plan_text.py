"""Plans as texts that fit a page: on one line where that is short, else over several."""

from __future__ import annotations

from typing import Final

from asyncdata.graph.node import Node

__all__ = ("change_text", "plan_text")

WIDTH: Final = 120


def plan_text(plan: Node, indent: int) -> str:
    """Return a plan on one line, if it ends before column `WIDTH`; else each input of a merge begins a line.

    The text begins at column `indent`, and a chain that is too long continues two columns further to the right.
    """
    line = str(plan)
    if indent + len(line) <= WIDTH:
        return line
    first, *rest = chain(plan)
    lines = [first.label()]
    if first.inputs:
        margin = " " * (indent + 2)
        inputs = ",\n".join([margin + plan_text(part, indent + 2) for part in first.inputs])
        lines = [f"{first.label().partition('(')[0]}(", *inputs.split("\n"), f"{' ' * indent})"]
    for node in rest:
        longer = f"{lines[-1]} → {node.label()}"
        if len(longer) + (indent if len(lines) == 1 else 0) <= WIDTH:
            lines[-1] = longer
        else:
            lines.append(f"{' ' * (indent + 2)}→ {node.label()}")
    return "\n".join(lines)


def chain(plan: Node) -> list[Node]:
    """Return the steps up to a plan's last one, from its source, or from the last step that merges several inputs."""
    found = [plan]
    while len(found[-1].inputs) == 1:
        found.append(found[-1].inputs[0])
    return found[::-1]


def change_text(before: Node, after: Node, indent: int) -> str:
    """Return what a rewrite did; in a long plan without the steps that stay as they are, but the last of them."""
    line = f"{before}  ⇒  {after}"
    if indent + len(line) <= WIDTH:
        return line
    old, new = ([node.label() for node in chain(plan)] for plan in (before, after))
    same = 0
    while same < min(len(old), len(new)) and old[same] == new[same]:
        same += 1
    old_text, new_text = [" → ".join(["…", *steps[same - 1 :]] if same > 1 else steps) for steps in (old, new)]
    fits = indent + len(old_text) + len(new_text) + 5 <= WIDTH
    return f"{old_text}  ⇒  {new_text}" if fits else f"{old_text}\n{' ' * indent}⇒  {new_text}"
