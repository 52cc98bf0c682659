"""Weights of a mixture of datasets: numbers, a table, or a function of the step, checked where they are given."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from asyncdata.errors import PlanError
from asyncdata.executors.function_call import Call
from asyncdata.graph.node import Planned

__all__ = (
    "ENDLESS",
    "Schedule",
    "Weights",
    "WeightsByStep",
    "WeightsGiven",
    "check_names",
    "check_weights",
    "likelihoods",
)

METHOD: Final = "sample_from_datasets"

Weights: TypeAlias = tuple[float, ...]
"""A number for each dataset, in their order."""

WeightsGiven: TypeAlias = Mapping[str, float] | Sequence[float]
"""Weights as users give them: by name, or one for each dataset."""

Schedule: TypeAlias = "Call | tuple[tuple[int, Weights], ...] | None"
"""A function of the step, or the weights from some steps on; `None` for weights that never change."""

ENDLESS: Final = 1 << 63


class StepWeights(NamedTuple):
    """The weights at a step, and the first step at which they may be others."""

    weights: Weights
    end: int


def check_names(method: str, names: Iterable[Any]) -> tuple[str, ...]:
    """Return the names of datasets; `PlanError` if one of them is none."""
    found = tuple(names)
    for name in found:
        if not isinstance(name, str) or not name:
            raise PlanError(
                f"{method}: the name of a dataset is a string with at least one character, got {name!r:.80}"
            )
    return found


def check_weights(weights: Any, names: Sequence[str], count: int) -> tuple[Weights, Schedule]:
    """Return the weights of so many datasets and how they change; `PlanError` if they are invalid.

    Where they change, the weights are the largest that each dataset ever has, as far as that is known.
    """
    if weights is None:
        return (1.0,) * count, None
    if is_table(weights):
        table = table_of(cast("Mapping[int, Any]", weights), names, count)
        return tuple(map(max, zip(*[row for _, row in table], strict=True))), table
    if callable(weights) and not isinstance(weights, (Planned, Mapping, Sequence)):
        call = Call(METHOD, cast("Callable[..., Any]", weights), spread=False)
        if call.is_async:
            raise PlanError(f"{METHOD}(weights=) needs a plain function, got the coroutine function {weights!r:.80}")
        return (1.0,) * count, call
    return likelihoods(f"{METHOD}(weights=)", weights, names, count), None


def is_table(weights: Any) -> bool:
    """Return whether weights are given from some steps on: a dict by numbers."""
    return isinstance(weights, Mapping) and any(
        isinstance(step, int) and not isinstance(step, bool) for step in cast("Mapping[Any, Any]", weights)
    )


def table_of(table: Mapping[Any, Any], names: Sequence[str], count: int) -> tuple[tuple[int, Weights], ...]:
    """Return a table of weights in the order of its steps, of which the first is 0."""
    argument = f"{METHOD}(weights=)"
    for step in table:
        if not isinstance(step, int) or isinstance(step, bool) or step < 0:
            raise PlanError(
                f"{argument}: a table of weights has numbers of elements, from 0, as keys, got {step!r:.80}"
            )
    if 0 not in table:
        raise PlanError(f"{argument}: a table of weights begins with step 0, got {sorted(table)!r:.80}")
    return tuple([(step, likelihoods(f"{argument}[{step}]", table[step], names, count)) for step in sorted(table)])


def likelihoods(argument: str, weights: Any, names: Sequence[str], count: int) -> Weights:
    """Return a weight for each of so many datasets, in their order; `PlanError` if they are invalid."""
    if isinstance(weights, Planned):
        raise PlanError(f"{argument} must be numbers, which hold for the entire run, got {weights!r:.80}")
    values = by_name(argument, weights, names) if names or isinstance(weights, Mapping) else weights
    try:
        found = tuple(values)
        sound = all(math.isfinite(weight) and weight >= 0 for weight in found)
    except TypeError:
        raise PlanError(f"{argument} needs a number for each dataset, got {weights!r:.80}") from None
    if len(found) != count:
        raise PlanError(f"{argument} needs {count} numbers, one for each dataset, got {len(found)}: {weights!r:.80}")
    if not sound or not any(found):
        raise PlanError(f"{argument} must be finite, not negative and not all zero, got {weights!r:.80}")
    return tuple(map(float, found))


def by_name(argument: str, weights: Any, names: Sequence[str]) -> list[Any]:
    """Return the weights of named datasets in their order."""
    if not isinstance(weights, Mapping):
        raise PlanError(f"{argument} needs a weight for each name, as the datasets have names, got {weights!r:.80}")
    given = cast("Mapping[Any, Any]", weights)
    if not names:
        raise PlanError(f"{argument} has names, but the datasets have none: give them as a dict, got {weights!r:.80}")
    unknown, missing = [name for name in given if name not in names], [name for name in names if name not in given]
    if unknown or missing:
        wrong = f"there is no dataset {unknown[0]!r}" if unknown else f"there is no weight of {missing[0]!r}"
        raise PlanError(f"{argument}: {wrong}; the datasets are {', '.join(map(repr, names)):.200}")
    return [given[name] for name in names]


class WeightsByStep:
    """The weights at each step of a run."""

    def __init__(self, weights: Weights, schedule: Schedule, names: Sequence[str], present: Sequence[int]) -> None:
        self.weights = weights
        self.schedule = schedule
        self.names = names
        self.present = present
        """The places of the datasets that are there: those that have been removed have no weight."""
        self.latest: tuple[Any, Weights] | None = None

    @property
    def looks_ahead(self) -> bool:
        """Whether weights of later steps may be asked for early: no function of the user's is called."""
        return not isinstance(self.schedule, Call)

    def at(self, step: int) -> StepWeights:
        if self.schedule is None:
            return StepWeights(self.weights, ENDLESS)
        if isinstance(self.schedule, Call):
            return StepWeights(self.weights_of(self.schedule, step), step + 1)
        place = bisect_right(self.schedule, step, key=lambda row: row[0])
        return StepWeights(
            self.schedule[place - 1][1], self.schedule[place][0] if place < len(self.schedule) else ENDLESS
        )

    def weights_of(self, call: Call, step: int) -> Weights:
        """Return what the user's function gives for a step."""
        given = call.fn(step)
        if self.latest is not None and type(given) in (dict, list, tuple) and self.latest[0] == given:
            return self.latest[1]
        names = [self.names[place] for place in self.present] if self.names else ()
        found = likelihoods(f"{call.name} at step {step}", given, names, len(self.present))
        weights = [0.0] * len(self.weights)
        for place, weight in zip(self.present, found, strict=True):
            weights[place] = weight
        self.latest = (given.copy() if isinstance(given, (dict, list)) else given, tuple(weights))
        return self.latest[1]

    def shown(self, place: int) -> str:
        """Return a dataset as messages name it."""
        return repr(self.names[place]) if self.names else f"dataset {place}"

    def left(
        self, weights: Weights, step: int, ended: Sequence[int], ahead: bool = False
    ) -> npt.NDArray[np.float64] | None:
        """Return the weights of the datasets that have not ended; `None` if there are none: an error if one may have a
        weight later, unless this is `ahead` of the element that is drawn."""
        likely = np.array(weights)
        likely[list(ended)] = 0
        if likely.any():
            return likely
        if not ahead and (later := self.later(step, ended)):
            raise PlanError(
                f"{METHOD}(weights=): at step {step} no dataset that has a weight is left, but "
                f"{', '.join(map(self.shown, later)):.200} may have one later: give it a weight, or repeat the "
                "datasets that end before"
            )
        return None

    def later(self, step: int, ended: Sequence[int]) -> list[int]:
        """Return the datasets left that may have a weight after a step at which none of those left has one."""
        left = [place for place in self.present if place not in ended]
        if isinstance(self.schedule, Call):
            return left
        rows = [weights for begin, weights in self.schedule or () if begin > step]
        return [place for place in left if any(weights[place] for weights in rows)]
