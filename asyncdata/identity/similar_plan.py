"""Whether a state fits a plan that is not the one it was made with: which steps are the same, and what may change."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import Final, NamedTuple

from asyncdata.errors import ResumeError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.runtime.tickets import Position
from asyncdata.sources.file_list_digest import label_text

__all__ = ("check_changes", "check_order", "matched_steps", "rereading_step", "steps_with_words", "unordered_steps")

FREE: Final = ("map", "filter", "skip", "from_source", "ignore_errors")
"""Steps that are not in a position; steps that only read ahead are in no account."""

COUNTED: Final = ("cache", "snapshot", "unbatch", "rebatch", "flat_map", "scan", "windows", "unique")
"""Steps that may read their input again and skip as many elements as were delivered."""

REPEATED: Final = ("interleave",)
"""Steps that read single elements of their input again: none of them may be left out by then."""

FIXED: Final = {
    "windows": "the key, the size and the reduction of group_by_window",
    "group_by_window": "the key, the size and the reduction of group_by_window",
    "balance": "the cost, the batch size and the steps of balance",
    "counter": "the start and the step of counter",
}
"""Steps whose arguments must not change, and these arguments: a position depends on them."""


class StepWords(NamedTuple):
    """A step of an account, and the places there of the first step that it reads, and of its inputs' last steps."""

    words: str
    first: int
    is_source: bool


def steps_with_words(plan: Node, words_of: Callable[[Node], str | None]) -> list[StepWords]:
    """Return the account of a plan."""
    found: list[StepWords] = []

    def visit(node: Node) -> None:
        first = len(found)
        for one in node.inputs:
            visit(one)
        if (words := words_of(node)) is not None:
            found.append(StepWords(words, first, not node.inputs))

    visit(plan)
    return found


def matched_steps(was: list[str], now: list[str]) -> dict[int, int]:
    """Return for each step of the state's plan its step in the plan, by their names.

    Steps that hold state must be the same, in the same order, and are paired first, one to one; between two of them
    the others are paired as far as their names agree.
    """
    before, after = stateful_places(was), stateful_places(now)
    kept = [[name_of(plan[place]) for place in places] for plan, places in ((was, before), (now, after))]
    if kept[0] != kept[1]:
        raise ResumeError(
            f"strict=False needs the same steps in the same order, except {', '.join(FREE)} and prefetch"
            f"; they were {' → '.join(kept[0])} when the state was saved, and are {' → '.join(kept[1])} now"
        )
    found = dict(zip(before, after, strict=True))
    for (first, last), (begin, end) in zip(gaps(before, len(was)), gaps(after, len(now)), strict=True):
        names = [[name_of(words) for words in part] for part in (was[first:last], now[begin:end])]
        for old, new, size in SequenceMatcher(None, *names, autojunk=False).get_matching_blocks():
            found.update((first + old + step, begin + new + step) for step in range(size))
    return found


def gaps(places: list[int], length: int) -> Iterator[tuple[int, int]]:
    """Return the ranges of places before, between and after these, of a list of some length."""
    return zip([0, *[place + 1 for place in places]], [*places, length], strict=True)


def check_changes(was: list[str], now: list[StepWords], position: Position) -> None:
    """Raise `ResumeError` if the plan of a state has become one in which its position would lose or repeat elements.

    Steps that hold state have the same names in both, as `matched_steps` has checked.
    """
    before, after = stateful_places(was), stateful_places([step.words for step in now])
    check_sources([(was[old], now[new].words) for old, new in zip(before, after, strict=True) if now[new].is_source])
    for number, place in enumerate(after):
        old, step = was[before[number]], now[place]
        check_arguments(old, step.words)
        if name_of(step.words) not in COUNTED + REPEATED:
            continue
        start = next((order for order, other in enumerate(after) if other >= step.first), number)
        below = [was[before[start] : before[number]], [one.words for one in now[after[start] : place]]]
        if name_of(step.words) in COUNTED:
            check_below(step.words, [dropping_maps(words) for words in below], "counts its elements")
        else:
            check_below(step.words, [sorted(leaving_out(words)) for words in below], "needs the same ones")
    if isinstance(position, dict) and "skip" in position:
        check_below("iterator.skip()", [dropping_maps(was), dropping_maps([step.words for step in now])], "counts")


def check_sources(pairs: list[tuple[str, str]]) -> None:
    """Raise if sources have changed places, or a range has other numbers at the same places."""
    changed = [pair for pair in pairs if pair[0] != pair[1]]
    olds, news = {old for old, _ in changed}, {new for _, new in changed}
    for old, new in changed:
        if new in olds and old in news:
            raise lost(old, new, "leave the inputs in their order")
        if name_of(old) == "range" and start_and_step(old) != start_and_step(new):
            raise lost(old, new, "keep its start and its step")


def start_and_step(words: str) -> tuple[int, int]:
    """Return the arguments of a range that say which number stands at which place."""
    numbers = [int(number) for number in re.findall(r"-?\d+", words)]
    return (numbers[0] if len(numbers) > 1 else 0, numbers[2] if len(numbers) > 2 else 1)


def check_arguments(old: str, new: str) -> None:
    """Raise if a step that must stay the same, or the number of its inputs, has changed."""
    if name_of(new) in FIXED and old != new:
        raise lost(old, new, f"keep {FIXED[name_of(new)]} as they were")
    if inputs_in(old) != inputs_in(new):
        raise lost(old, new, "keep the number of its datasets")


def inputs_in(words: str) -> list[str]:
    """Return how many datasets the text of a step says that it reads."""
    return re.findall(r"\((\d+) datasets", words)


def lost(old: str, new: str, cure: str) -> ResumeError:
    """Return the error for a step that has become another one."""
    return ResumeError(
        f"{label_text(old)} has become {label_text(new)}, and strict=False would lose or repeat elements: {cure}, or "
        "start without the state"
    )


def check_below(words: str, below: Sequence[Sequence[str]], why: str) -> None:
    """Raise if the steps that matter below a step have changed."""
    for old, new in zip_longest(*below):
        if old != new:
            raise ResumeError(
                f"{label_text(words)} may read its input again and {why}, and strict=False would lose or repeat some: "
                f"below it {label_text(old or 'nothing')} has become {label_text(new or 'nothing')}; only maps may "
                "change there"
            )


def rereading_step(plan: Node, below: Node) -> str | None:
    """Return the step after a node that may read its input again and skip what was delivered; `None` if none does."""
    if plan is below:
        return None
    for node in plan.inputs:
        if below in nodes_of(node):
            rereads = plan.identity is not None and name_of(plan.identity) in COUNTED
            return rereading_step(node, below) or (plan.label() if rereads else None)
    return None


def unordered_steps(plan: Node) -> list[int]:
    """Return the places in the account of the steps that count the elements of an input without order, and of the last
    step if its elements have none."""
    steps = [node for node in nodes_of(plan) if node.identity is not None]
    found = [
        place
        for place, node in enumerate(steps)
        if name_of(node.identity or "") in COUNTED and not all(one.in_order for one in node.inputs)
    ]
    return found if plan.in_order else sorted({*found, len(steps) - 1})


def check_order(plan: Node, were: Collection[int | None], position: Position) -> None:
    """Raise `ResumeError` if a step counts elements that had an order when the state was saved, and have none now."""
    steps = [node for node in nodes_of(plan) if node.identity is not None]
    skipped = isinstance(position, dict) and "skip" in position
    for place in unordered_steps(plan):
        counts = name_of(steps[place].identity or "") in COUNTED or (skipped and place == len(steps) - 1)
        if counts and place not in were:
            raise ResumeError(
                f"{steps[place].label()} counts the elements of its input, which had an order when the state was saved "
                "and has none now, so that other elements would be lost or repeated: leave out deterministic=False "
                "until the end of this epoch"
            )


def stateful_places(words: list[str]) -> list[int]:
    """Return the places of the steps of an account that hold state."""
    return [place for place, step in enumerate(words) if name_of(step) not in FREE]


def dropping_maps(words: list[str]) -> list[str]:
    """Return the steps of an account without those that make one element from each."""
    return [step for step in words if name_of(step) != "map"]


def leaving_out(words: list[str]) -> list[str]:
    """Return the steps of an account that may leave out elements."""
    return [step for step in words if name_of(step) in ("filter", "skip", "ignore_errors")]


def name_of(words: str) -> str:
    """Return the name of a step of an account."""
    return "files" if " files #" in words else words.partition("(")[0]
