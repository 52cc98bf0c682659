"""Each transformation in ordinary use, at its edges and where something fails: stated, and compared with TensorFlow.

Cases are stated for the way they run, too: on a thread or on the loop of the consumer, as written and optimised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import asyncdata as ad
from asyncdata.grouping import Grouping
from asyncdata.transformations import Transformations
from tests.marks import first_by_default
from tests.reference import Failed
from tests.running import WAYS
from tests.tfdata import case as cases
from tests.tfdata.case import FAILED, MOST, Case, plain
from tests.tfdata.cases_of_datasets import DATASETS
from tests.tfdata.cases_of_elements import ELEMENTS

CASES = (*ELEMENTS, *DATASETS)

OURS = cases.ours()


@pytest.mark.parametrize("optimize", first_by_default([True, False]), ids=["optimised", "as written"])
@pytest.mark.parametrize("read", WAYS, ids=lambda way: way.__name__)
def test_gives_what_is_stated_in_every_way(read: Callable[..., list[Any]], optimize: bool) -> None:
    wrong: list[Any] = []
    for case in CASES:
        ds = eval(case.code, dict(OURS)).with_options(ad.Options(optimize=optimize))
        found = [FAILED if isinstance(element, Failed) else plain(element) for element in read(ds, MOST)]
        if (found, ds.cardinality()) != (case.found, case.cardinality):
            wrong.append((case.code, found, ds.cardinality()))
    assert wrong == []


@pytest.mark.tensorflow
@pytest.mark.timeout(300)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_tensorflow_gives_the_same_or_what_is_stated(tf: Any, case: Case) -> None:
    ds = eval(case.code, cases.theirs(tf))
    found, elements = list[Any](), iter(ds)
    while len(found) < MOST:
        try:
            found.append(plain(next(elements)))
        except StopIteration:
            break
        except tf.errors.OpError:
            found.append(FAILED)
    assert found == (case.found if case.theirs is None else case.theirs)
    assert int(ds.cardinality()) == (case.cardinality if case.counted is None else case.counted)
    assert (case.theirs is None and case.counted is None) == (not case.why)


def test_every_transformation_of_tensorflow_has_cases() -> None:
    """What it lacks has its own tests; these cannot be compared so."""
    own = {
        "balance",
        "distinct",
        "join",
        "list_batch",
        "pack_sequences",
        "bucket_by_token_count",
        "rate_limit",
        "snapshot",
        "prefetch_to_device",
    }
    names = {name for name in (*vars(Grouping), *vars(Transformations)) if not name.startswith("_")} - own - {"options"}
    assert {name for name in names if not any(f"{name}(" in case.code for case in CASES)} == set()
