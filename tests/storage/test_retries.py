"""How long an endpoint is given that refuses requests, and what is not tried again."""

from __future__ import annotations

import pytest

from asyncdata.storage.retries import RefusedError, Retries, Tries, explained


def test_an_endpoint_that_refuses_gets_about_half_a_minute_at_least() -> None:
    tries, pauses = Tries(Retries()), list[float]()
    with pytest.raises(RefusedError) as caught:
        while True:
            pauses.append(tries.pause(RefusedError("too many requests")))
    assert len(pauses) == 10
    assert 25 < sum(pauses) < 56
    assert max(pauses) <= 15
    assert caught.value.__notes__ == ["after 11 tries"]


def test_an_answer_that_would_be_the_same_again_is_final() -> None:
    for words in ("Content-Length Header missing from response", 'Failed to parse value for CONTENT_RANGE header: "*"'):
        error = explained(type("GenericError", (Exception,), {})(f"Generic HTTP error: {words}"), "http://host/x")
        assert isinstance(error, OSError)
        assert not isinstance(error, (ConnectionError, TimeoutError))
        with pytest.raises(OSError, match="header|Header") as caught:
            Tries(Retries()).pause(error)
        assert not hasattr(caught.value, "__notes__")
