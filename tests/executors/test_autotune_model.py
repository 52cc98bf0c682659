"""Which choice AUTOTUNE's model ranks first, by what was measured of a function."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from asyncdata.executors.autotune_model import Cost, PaceModel, Way

PYTHON = Cost(1e-3, 1e-3)
WAITS = Cost(4e-3, 4e-5)
CHEAP = Cost(1e-6, 1e-6)


def model(cores: int, cost: Cost, paces: dict[Way, float], **how: Any) -> PaceModel:
    return PaceModel(**{"waiting": "thread", "processes": True, "cores": cores, "cost": cost, "paces": paces, **how})


ALONE: dict[Way, float] = {("thread", 1): 1000.0}
DECODES = Cost(1010e-6, 900e-6, 150e3)
SIDE_BY_SIDE: dict[Way, float] = {("thread", 1): 850, ("thread", 2): 2100}


@pytest.mark.parametrize(
    ("known", "way"),
    [
        (model(1, PYTHON, ALONE), None),
        (model(2, PYTHON, ALONE), ("thread", 2)),
        (model(2, PYTHON, {**ALONE, ("thread", 2): 950}), ("process", 2)),
        (model(2, PYTHON, {**ALONE, ("thread", 2): 950}, processes=False), None),
        (model(2, PYTHON, {**ALONE, ("thread", 2): 1950}), None),
        (model(2, PYTHON, {**ALONE, ("thread", 2): 1700}), ("process", 2)),
        (model(2, PYTHON._replace(nbytes=4e6), {**ALONE, ("thread", 2): 950}), ("process", 2)),
        (model(2, PYTHON._replace(nbytes=20e6), {**ALONE, ("thread", 2): 950}), None),
        (model(2, DECODES, SIDE_BY_SIDE), None),
        (model(2, DECODES._replace(crowded=True), SIDE_BY_SIDE), ("process", 2)),
        (model(2, DECODES._replace(crowded=True), {**SIDE_BY_SIDE, ("process", 2): 1900}, away=1e-3), None),
        (model(16, WAITS, {("thread", 1): 250}), ("thread", 16)),
        (model(2, WAITS, {("thread", 1): 250, ("thread", 8): 2000}), ("thread", 16)),
        (model(2, WAITS, {("thread", 1): 250, ("thread", 8): 2000, ("thread", 16): 2100}), None),
        (model(2, Cost(2e-3, 6e-4), {("thread", 1): 500, ("thread", 8): 1200, ("thread", 16): 1250}), ("process", 2)),
        (model(2, Cost(4e-3, 4e-5), {("thread", 1): 250, ("thread", 8): 500, ("thread", 16): 510}), None),
        (model(2, Cost(2e-3, 6e-4), {("thread", 1): 500, ("thread", 8): 1200, ("thread", 16): 1250}, away=2e-3), None),
        (model(2, CHEAP, {("inline", 1): 1e6}), None),
        (model(16, Cost(2e-5, 2e-5), {("inline", 1): 5e4}), ("process", 16)),
        (model(2, Cost(), {("task", 8): 100.0}, waiting="task", processes=False), ("task", 16)),
    ],
    ids=[
        "there is one core",
        "threads first, as they cost less",
        "threads take turns",
        "threads take turns, and there may be no processes",
        "threads compute on all cores",
        "threads compute on most of the cores",
        "sending elements takes some time",
        "sending elements takes too long",
        "threads compute on nearly all cores",
        "threads compute on nearly all cores, but wait for one another",
        "they do, but processes were no faster",
        "a thread for each core, if calls wait",
        "twice as many",
        "twice as many were no faster",
        "threads wait for the interpreter lock, as the first calls did",
        "threads wait for something else",
        "calls take as long in processes, as was measured",
        "cheap calls stay",
        "cheap calls where there are many cores",
        "coroutines",
    ],
)
def test_the_most_promising_choice_is_tried_next(known: PaceModel, way: Way | None) -> None:
    assert known.promising == way


def test_the_choice_with_the_least_expense_is_the_best_of_those_that_are_about_as_fast() -> None:
    paces: dict[Way, float] = {("thread", 1): 1000, ("thread", 2): 1960, ("process", 2): 2000}
    assert model(2, PYTHON, paces).best == ("thread", 2)
    assert model(2, PYTHON, {**paces, ("process", 2): 2100}).best == ("process", 2)
    assert model(2, PYTHON, {}).best == ("thread", 1)


def test_cheap_functions_are_called_in_processes_if_that_is_twice_as_fast() -> None:
    assert model(16, CHEAP, {("inline", 1): 1e6, ("process", 16): 1.9e6}).best == ("inline", 1)
    assert model(16, CHEAP, {("inline", 1): 1e6, ("process", 16): 2.2e6}).best == ("process", 16)


def test_a_choice_that_should_be_faster_than_it_was_is_tried_again() -> None:
    paces: dict[Way, float] = {("thread", 1): 1000, ("thread", 2): 950, ("process", 2): 600}
    assert model(2, PYTHON, paces).disappointing == [("thread", 2), ("process", 2)]
    assert model(2, PYTHON, {**paces, ("process", 2): 1900}).disappointing == []


def test_nothing_is_expected_of_threads_beyond_what_fewer_and_more_of_them_gave() -> None:
    known = model(2, WAITS, {("thread", 1): 250, ("thread", 8): 2000, ("thread", 32): 2200})
    assert known.expected(("thread", 16)) == 2200
    assert known.expected(("thread", 64)) == 2200
    assert model(2, WAITS, {}).expected(("thread", 8)) == inf
