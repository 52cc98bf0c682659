"""Every value, to a worker of a cluster and back: the same type, dtype and value, or an error."""

from __future__ import annotations

from typing import Any

import pytest

import asyncdata as ad
from tests.cluster.fake import on_fake
from tests.elements.test_every_door import GROUPS, UNSENT, differences, read, rebuilt, same, values_of

pytestmark = pytest.mark.filterwarnings("ignore")  # of packages about some of their values

CLUSTER = ad.Options(cluster=ad.Cluster(calls=2))


def check_calls(group: str) -> None:
    makes = values_of(group)
    ds = ad.Dataset.from_iterable([[make()] for make in makes.values()]).map(same, num_parallel_calls=2)
    found = [one[0] if isinstance(one, list) else one for one in read(ds.with_options(CLUSTER), len(makes))]
    assert differences(makes, found, UNSENT.__contains__, rebuilt) == {}


@pytest.mark.parametrize("group", GROUPS)  # which have mark.formats, mark.integrations, mark.tensorflow, mark.torch
def test_on_a_cluster_without_ray(group: str) -> None:
    with on_fake():
        check_calls(group)


@pytest.mark.ray
@pytest.mark.timeout(300)
@pytest.mark.parametrize("group", ["values", "containers", "torch", "other"])
def test_on_ray(group: str, ray: Any) -> None:
    check_calls(group)
