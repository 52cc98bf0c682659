"""A Ray cluster on this machine, for the tests that are marked `ray`."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own
        module = pytest.importorskip("ray")
        if mine := not module.is_initialized():  # tests elsewhere import this fixture
            module.init("local", num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield module
    if mine:
        module.shutdown()
