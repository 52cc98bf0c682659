"""How long an endpoint is given that refuses requests."""

from __future__ import annotations

import pytest

from asyncdata.storage.retries import RefusedError, Retries, Tries


def test_an_endpoint_that_refuses_gets_about_half_a_minute_at_least() -> None:
    tries, pauses = Tries(Retries()), list[float]()
    with pytest.raises(RefusedError) as caught:
        while True:
            pauses.append(tries.pause(RefusedError("too many requests")))
    assert len(pauses) == 10
    assert 25 < sum(pauses) < 56
    assert max(pauses) <= 15
    assert caught.value.__notes__ == ["after 11 tries"]
