"""Earlier states: the state before any step of a log, from the last position in it and the steps from there on."""

from __future__ import annotations

from os import PathLike
from typing import Any

from asyncdata.errors import DataLossError, PlanError, ResumeError
from asyncdata.graph.node import Node, nodes_of
from asyncdata.identity.exclusion import exclusion_digest
from asyncdata.iterator import DatasetIterator, ended_by, further, next_block
from asyncdata.options import Options
from asyncdata.persistence.file_cache import FileCache
from asyncdata.persistence.run_log import HEAD
from asyncdata.planning.optimizer import Planner
from asyncdata.recorder.audit import leaves_of
from asyncdata.recorder.log_reader import Logs, Run, logs_of
from asyncdata.states import place_of, state_of
from asyncdata.transforms.cache import Cache
from asyncdata.transforms.exclude import unexcluded

__all__ = ("state_before",)


def state_before(
    plan: Node, options: Options, record: str | PathLike[str] | None, step: int, epoch: int | None
) -> dict[str, Any]:
    """Return the state before a step, as the run that delivered it last had it: see `Dataset.state_before`."""
    log = options.record if record is None else record
    if not log:
        raise PlanError("state_before() reads the log of a run: give record=, as in Options(record=)")
    logs = logs_of(log, plan)
    run = run_of(logs, step, epoch)
    known = [count for count in run.positions if count <= step]
    if not known:
        raise DataLossError(f"{run.path}: the log does not say where the run of step {step} began")
    count = max(known)
    header = {name: value for name, value in run.header.items() if name not in HEAD}
    state = state_of(header, count, run.positions[count])
    if "unordered" in header and logs.faults:  # the last run may be among what is damaged, and gave another order
        raise DataLossError(f"the log is damaged, so the order up to step {step} is not known: {logs.faults[0]}")
    if count == step:
        return state
    if "unordered" in header:
        states = ", ".join(map(str, sorted(run.positions)))
        raise ResumeError(
            f"the state before step {step} is not known: the order of this run was not fixed, so only its states are, "
            f"which are before the steps {states}"
        )
    return state_after(as_it_was(plan, header.get("excluded"), step), options, state, step, run)


def run_of(logs: Logs, step: int, epoch: int | None) -> Run:
    """Return the last run that came to a step; raise if there is none, or if it may be of several epochs."""
    found = [run for run in logs.runs if run.begin <= step <= run.stop and epoch in (None, run.epoch)]
    epochs = sorted({run.epoch for run in found})
    if not found:
        where = "" if epoch is None else f" of epoch {epoch}"
        last = [f"the last step is {max(run.stop for run in logs.runs) - 1}"] if logs.runs and epoch is None else []
        why = "; ".join([*last, *logs.faults, *logs.notes])
        raise DataLossError(f"no run in the log came to step {step}{where}{why and f': {why}'}")
    if len(epochs) > 1:
        raise PlanError(f"step {step} is in the epochs {', '.join(map(str, epochs))}: say which with epoch=")
    return found[-1]


def as_it_was(plan: Node, excluded: str | None, step: int) -> Node:
    """Return the plan that left out what the run of the log left out."""
    if excluded == exclusion_digest(plan):
        return plan
    if excluded is None:
        return unexcluded(plan)
    raise ResumeError(f"the run of step {step} left out other records than this pipeline: exclude those alone")


def state_after(plan: Node, options: Options, state: dict[str, Any], step: int, run: Run) -> dict[str, Any]:
    """Return the state before `step` of a run that begins with an earlier one; check that it gave what the log has."""
    options = options.without("record")
    place = place_of(plan, state, True, options)
    near = further(place, place.delivered, state["position"], step - place.delivered - 1)
    place = place if near.start.skip else near  # which counts no failures of sources
    with DatasetIterator[Any](Planner(options), place) as elements:
        pass_over(elements, step - place.delivered, step)
        renamed = any(isinstance(node, (Cache, FileCache)) for node in nodes_of(plan))
        last = run.steps.get(step - 1)
        if last and last.ticket is not None and not renamed and not same(last.ticket, elements.origin()["ticket"]):
            raise changed(step, f"step {step - 1} has other records now")
        return elements.state_dict()


def same(one: Any, other: Any) -> bool:
    """Return whether two tickets are of the same records."""
    return [*leaves_of(one)] == [*leaves_of(other)]


def pass_over(elements: DatasetIterator[Any], count: int, step: int) -> None:
    """Read so many elements, up to a step, and drop them; one that failed is one of them."""
    while count:
        try:
            block = next_block(elements, count)
        except Exception as error:
            if ended_by(elements, error):
                raise
            count -= 1
        else:
            if block is None:
                raise changed(step, f"it ends {count} steps before")
            count -= len(block)


def changed(step: int, how: str) -> ResumeError:
    return ResumeError(
        f"the run up to step {step} is not what the log says, {how}: the data or the pipeline has changed"
    )
