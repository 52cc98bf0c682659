"""Mixtures of datasets in states: which datasets they have, and what happens if these or their weights change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from asyncdata.errors import PlanError, ResumeError
from asyncdata.graph.node import Node, finite, nodes_of
from asyncdata.identity.content_hash import changed, contents, contents_of
from asyncdata.identity.labels import words_of
from asyncdata.identity.similar_plan import rereading_step
from asyncdata.runtime.tickets import END
from asyncdata.sources.random_access import InMemorySource
from asyncdata.transforms.mixture_weights import likelihoods
from asyncdata.transforms.sample_from_datasets import Removed, Sample

__all__ = ("check_same_datasets", "fit_mixtures", "mixtures_in", "with_program_weights", "with_weights")


@dataclass
class Step:
    """A step of a state's plan: its text, its place there, its seed and its share, if it has them."""

    words: str
    number: int | None = None
    seed: int | None = None
    share: list[int] | None = None


def mixtures_in(plan: Node) -> list[list[Any]]:
    """Return what a state says of each mixture, after its place in the account: a hash of its weights, and which
    datasets it has."""
    account, found = list[Node](), list[list[Any]]()

    def visit(node: Node) -> None:
        steps = list[int]()
        for one in node.inputs:
            begin = len(account)
            visit(one)
            steps.append(len(account) - begin)
        if isinstance(node, Sample):
            found.append([len(account), described(node, steps)])
        if node.identity is not None:
            account.append(node)

    visit(plan)
    shares = [place for place, node in enumerate(account) if node.share is not None]
    for _, entry in found:
        if "names" in entry and shares:
            entry["shares"] = shares
    return found


def described(node: Sample, steps: list[int]) -> dict[str, Any]:
    """Return what a state says of a mixture, whose inputs have so many steps."""
    entry: dict[str, Any] = {"weights": hash_of_weights(node)}
    if node.replaced is not None:
        entry["set"] = list(node.weights)
    probes = probes_of(node)
    if not node.names:
        return entry | ({"order": [contents_of((tuple(probes),)), in_any_order(probes)]} if any(probes) else {})
    gone = [one for one in node.nodes if isinstance(one, Removed)]
    return {
        **entry,
        "names": list(node.names),
        "steps": steps,
        **({"alike": dict(zip(node.names, probes, strict=True))} if any(probes) else {}),
        **({"removed": {one.name: [one.words, one.seeds, one.shares] for one in gone}} if gone else {}),
    }


def hash_of_weights(node: Sample) -> str:
    """Return a hash of the weights that a mixture has in the program, of how they change and what they are of."""
    return contents_of((*(node.replaced or (node.weights, node.schedule)), node.cost))


def probes_of(node: Sample) -> list[str]:
    """Return a hash of the content of each input that looks like another one, and nothing for others."""
    words = [tuple([step.identity for step in nodes_of(one)]) for one in node.nodes]
    times = Counter(words)
    return [probe_of(one) if times[own] > 1 else "" for one, own in zip(node.nodes, words, strict=True)]


def probe_of(plan: Node) -> str:
    """Return a hash of the functions and the data of a plan; of data in memory, of the first and last rows."""
    parts = list[Any]()
    for node in nodes_of(plan):
        if isinstance(node, InMemorySource) and finite(node.size) and node.is_in_memory:
            parts.append(tuple([node.rows(place, place + 1) for place in {0, node.size - 1} if node.size]))
        else:
            parts.append(tuple(contents(node)[-1:]))
    return contents_of((tuple(parts),))


def in_any_order(probes: Sequence[str]) -> str:
    return contents_of((tuple(sorted(probes)),))


def fit_mixtures(plan: Node, saved: Mapping[str, Any], strict: bool) -> tuple[Node, Mapping[str, Any]]:
    """Return a plan whose mixtures have their datasets in the order of a state, and the state as one of that plan.

    A dataset that has gone is a `Removed` one there, a new one comes last. `ResumeError` if datasets have changed
    places; in a strict resume also if there are others.
    """
    count = sum(isinstance(node, Sample) for node in nodes_of(plan))

    def fitted(entries: Any) -> tuple[Node, Mapping[str, Any]]:
        return Fitting(plan, saved, strict).fitted(iter(entries)) if len(entries) == count else (plan, saved)

    return plan.parse_position(saved["mixtures"], fitted) if saved.get("mixtures") else (plan, saved)


def check_same_datasets(plan: Node, saved: Mapping[str, Any]) -> None:
    """Raise if a mixture's datasets have changed since a state that is now divided among other shares, or did before
    and have not come back."""
    for (_, was), (_, now) in zip(saved.get("mixtures", ()), mixtures_in(plan), strict=False):
        if "names" in now and ("removed" in now or {*was["names"]} != {*now["names"]}):
            raise ResumeError(
                "the datasets of a mixture and the number of shares cannot change at once: resume with as many shares "
                "as before and all of its datasets, of which one may have the weight 0, save, and merge those states"
            )


class Fitting:
    """The mixtures of a plan, as a state has them."""

    def __init__(self, plan: Node, saved: Mapping[str, Any], strict: bool) -> None:
        self.plan = plan
        self.saved = saved
        self.strict = strict
        seeds = dict[int, int](saved["seeds"])
        self.steps = [Step(words, place, seeds.get(place)) for place, words in enumerate(saved["plan"])]
        named = [entry for _, entry in saved["mixtures"] if "shares" in entry]
        for place, share in zip(named[0]["shares"] if named else (), saved.get("shares", ()), strict=False):
            self.steps[place].share = list(share)
        self.moves = list[tuple[int, int]]()
        """How many steps were added, after which place of the state."""

    def fitted(self, entries: Iterator[Any]) -> tuple[Node, Mapping[str, Any]]:
        """Return the plan and the state."""
        plan = self.node(self.plan, entries)
        if not self.moves:
            return plan, self.saved
        now = {step.number: place for place, step in enumerate(self.steps) if step.number is not None}
        return plan, {
            **self.saved,
            "plan": [step.words for step in self.steps],
            "seeds": [[place, step.seed] for place, step in enumerate(self.steps) if step.seed is not None],
            "shares": [step.share for step in self.steps if step.share is not None],
            "unordered": [now[place] for place in self.saved.get("unordered", ()) if place in now],
        }

    def node(self, node: Node, entries: Iterator[Any]) -> Node:
        """Return a node whose mixtures are fitted."""
        inputs = tuple([self.node(one, entries) for one in node.inputs])
        node = node if inputs == node.inputs else node.over(*inputs)
        if not isinstance(node, Sample):
            return node
        place, entry = next(entries)
        if bool(node.names) != ("names" in entry):
            now, was = ("have names", "had none") if node.names else ("have no names", "had names")
            raise ResumeError(
                f"the datasets of the mixture {now}, and {was} when the state was saved: give them as they were"
            )
        fitted = self.by_names(node, place, entry) if node.names else node
        self.check_places(fitted, entry)
        same_sets = len(fitted.nodes) == len(entry.get("names", fitted.nodes))
        if not same_sets or changed([entry["weights"]], [hash_of_weights(fitted)]) is not None:
            self.check_rereading(node)
        elif "set" in entry:
            fitted = with_set_weights(fitted, tuple(map(float, entry["set"])))
        return fitted

    def check_places(self, node: Sample, entry: Mapping[str, Any]) -> None:
        """Raise if datasets that look alike have changed places."""
        if entry.keys().isdisjoint(("order", "alike")):
            return
        probes = probes_of(node)
        if "order" in entry:
            order, every = entry["order"]
            swapped = order != contents_of((tuple(probes),)) and every == in_any_order(probes)
        else:
            was, now = entry["alike"], dict(zip(node.names, probes, strict=True))
            swapped = any(
                now.get(name) not in ("", None, probe) and now.get(name) in was.values()
                for name, probe in was.items()
                if probe
            )
        if swapped:
            raise ResumeError(
                f"{node.label()}: its datasets have changed places since the state was saved, and elements would be "
                "lost or repeated: give each its place, or its name, of then"
            )

    def check_rereading(self, node: Sample) -> None:
        """Raise if a mixture has changed below a step that may read its input again."""
        position = self.saved["position"]
        if position in (None, END):
            return
        step = rereading_step(self.plan, node)
        if step is None and isinstance(position, dict) and "skip" in position:
            step = "iterator.skip()"
        if step is not None:
            raise ResumeError(
                f"the weights or the datasets of {node.label()} have changed since the state was saved, and {step} "
                "after it may read its input again, where elements would be lost or repeated: change them at the end "
                "of an epoch, or put that step before the mixture"
            )

    def by_names(self, node: Sample, place: int, entry: Mapping[str, Any]) -> Sample:
        """Return a mixture with its datasets in the order of the state."""
        was, removed = list[str](entry["names"]), dict[str, Any](entry.get("removed", {}))
        known = [name for name in was if name not in removed]
        new = [name for name in node.names if name not in was]
        if self.strict and {*known} != {*node.names}:
            self.refuse(known, node)
        if was == list(node.names) and not removed:
            return node
        nodes, names = dict(zip(node.names, node.nodes, strict=True)), [*was, *new]
        if set(names) - set(node.names) or new or removed:
            self.splice(nodes, place, entry, removed, new)
        found = replace(
            node,
            nodes=tuple([nodes[name] for name in names]),
            names=tuple(names),
            weights=in_order(node.weights, node.names, names),
            schedule=tuple([(step, in_order(row, node.names, names)) for step, row in node.schedule])
            if isinstance(node.schedule, tuple)
            else node.schedule,
        )
        own = self.steps[place + self.moved(place)]
        before = replace(found, names=tuple(was), nodes=found.nodes[: len(was)])
        own.words = own.words.replace(before.label(), found.label())
        return found

    def refuse(self, known: list[str], node: Sample) -> None:
        """Raise because a strict resume finds other datasets."""
        gone = [name for name in known if name not in node.names]
        new = [name for name in node.names if name not in known]
        words = [f"{', '.join(map(repr, names))} {how}" for names, how in ((gone, "gone"), (new, "new")) if names]
        raise ResumeError(
            f"the state is of a mixture of {', '.join(map(repr, known)):.200}: {' and '.join(words):.200}; give the "
            "same datasets, or resume with strict=False: then the others continue, a new one begins, and one that "
            "comes back continues"
        )

    def splice(
        self, nodes: dict[str, Node], place: int, entry: Mapping[str, Any], removed: dict[str, Any], new: list[str]
    ) -> None:
        """Put the steps of datasets that were added into the state's plan, take out those of removed ones, and add
        these to `nodes`."""
        sizes: list[int] = entry["steps"]
        bounds = [place - sum(sizes[number:]) for number in range(len(sizes) + 1)]
        bounds = [bound + self.moved(bound) for bound in bounds]
        before = len(self.steps)
        self.steps[bounds[-1] : bounds[-1]] = [step for name in new for step in steps_of(nodes[name])]
        for number, name in reversed([*enumerate(list[str](entry["names"]))]):
            begin, end = bounds[number : number + 2]
            if name in removed and name in nodes:
                self.steps[begin:end] = restored(*removed[name])
            elif name in removed:
                words, seeds, shares = removed[name]
                nodes[name] = Removed(name, tuple(words), pairs(seeds), pairs(shares))
            elif name not in nodes:
                nodes[name] = one = removed_dataset(name, self.steps[begin:end])
                self.steps[begin:end] = steps_of(one)
        self.moves.append((place - 1, len(self.steps) - before))

    def moved(self, bound: int) -> int:
        """Return how many steps were added before a place of the state."""
        return sum([more for place, more in self.moves if place < bound])


def pairs(rows: Any) -> tuple[Any, ...]:
    return tuple([tuple(row) for row in rows])


def steps_of(plan: Node) -> list[Step]:
    """Return the steps of a plan as they are in a state."""
    found = [(words, node) for node in nodes_of(plan) if (words := words_of(node)) is not None]
    return [Step(words, share=None if node.share is None else list(node.share)) for words, node in found]


def removed_dataset(name: str, steps: Sequence[Step]) -> Removed:
    """Return a dataset that has gone, with its steps in the state."""
    seeds = tuple([(place, step.seed) for place, step in enumerate(steps) if step.seed is not None])
    shares = tuple(
        [(place, step.share[0], step.share[1]) for place, step in enumerate(steps) if step.share is not None]
    )
    return Removed(name, tuple([step.words for step in steps]), seeds, shares)


def restored(words: Sequence[str], seeds: Sequence[Any], shares: Sequence[Any]) -> list[Step]:
    """Return the steps of a dataset that has come back."""
    steps = [Step(one) for one in words]
    for place, seed in seeds:
        steps[place].seed = seed
    for place, count, index in shares:
        steps[place].share = [count, index]
    return steps


def in_order(weights: Sequence[float], names: Sequence[str], order: Sequence[str]) -> tuple[float, ...]:
    """Return weights in another order of the names, 0 for those that have none."""
    found = dict(zip(names, weights, strict=True))
    return tuple([found.get(name, 0.0) for name in order])


def with_weights(plan: Node, weights: Any) -> Node:
    """Return a plan in which the mixture that has these datasets has these weights; `PlanError` if none has."""
    mixtures = [*dict.fromkeys([node for node in nodes_of(plan) if isinstance(node, Sample)])]
    if callable(weights) or (isinstance(weights, Mapping) and any(isinstance(key, int) for key in weights)):  # pyright: ignore[reportUnknownVariableType]
        raise PlanError(
            "set_weights takes numbers, which are in the state from here on; give a function or a table of weights to "
            "sample_from_datasets, also when you resume from a state"
        )
    if not mixtures:
        raise PlanError("set_weights: this pipeline has no sample_from_datasets whose weights could change")
    fitting = [node for node in mixtures if fits(node, weights)] if len(mixtures) > 1 else mixtures
    if len(fitting) != 1:
        raise PlanError(
            f"set_weights: {len(fitting)} of the {len(mixtures)} mixtures have the datasets of {weights!r:.80}; give "
            "the datasets of each mixture names of their own"
        )
    (node,) = fitting
    if (step := rereading_step(plan, node)) is not None:
        raise PlanError(
            f"set_weights: {step} comes after the mixture and may read its input again, where elements would be lost "
            "or repeated; put it before the mixture"
        )
    names = tuple([node.names[place] for place in node.present]) if node.names else ()
    found = likelihoods("set_weights", weights, names, len(node.present))
    set_to = tuple([dict(zip(node.present, found, strict=True)).get(place, 0.0) for place in range(len(node.nodes))])
    return replaced(plan, node, with_set_weights(node, set_to))


def with_set_weights(node: Sample, weights: tuple[float, ...]) -> Sample:
    """Return a mixture with other weights for the rest of a run."""
    return replace(node, weights=weights, schedule=None, replaced=node.replaced or (node.weights, node.schedule))


def with_program_weights(plan: Node) -> Node:
    """Return a plan for the next epoch, without the weights that were set for the rest of one."""
    for node in nodes_of(plan):
        if isinstance(node, Sample) and node.replaced is not None:
            weights, schedule = node.replaced
            own = replace(node, weights=weights, schedule=schedule, replaced=None)
            return with_program_weights(replaced(plan, node, own))
    return plan


def fits(node: Sample, weights: Any) -> bool:
    """Return whether weights have the names, or the number, of a mixture's datasets."""
    if isinstance(weights, Mapping):
        return {*cast("Mapping[Any, Any]", weights)} == {node.names[place] for place in node.present if node.names}
    return not node.names and hasattr(weights, "__len__") and len(weights) == len(node.nodes)


def replaced(plan: Node, old: Node, new: Node) -> Node:
    if plan is old:
        return new
    inputs = tuple([replaced(one, old, new) for one in plan.inputs])
    return plan if inputs == plan.inputs else plan.over(*inputs)
