"""Each item goes through a queue once, whoever is killed: `python -m tests.web.kills` kills more often."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from tests.web.kills import QUEUES, UNKILLED, VICTIMS, kill

pytestmark = [pytest.mark.web, pytest.mark.usefixtures("nothing_left")]


@pytest.mark.parametrize(("queue", "victim"), [case for case in product(QUEUES, VICTIMS) if case not in UNKILLED])
def test_each_acknowledged_item_is_trained_on_or_kept_as_a_bad_one_once(
    queue: str, victim: str, tmp_path: Path
) -> None:
    found = kill(queue, victim, 1, tmp_path)
    assert (found.lost, found.repeated) == ([], [])
    assert found.good + found.bad == found.acknowledged > 0
