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


DENIED = (
    "The operation lacked the necessary privileges to complete: Error performing GET http://host/b/x in 3 ms - Server "
    "returned non-2xx status code: 403 Forbidden: "
)
XML = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code><Message>Not yours.\nRequestId: 7'
XML += "</Message><HostId>secret</HostId></Error>"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (XML, "403 Forbidden: AccessDenied: Not yours."),
        ("\ufeff" + XML, "403 Forbidden: AccessDenied: Not yours."),
        ("<Error><Code>AuthenticationFailed</Code></Error>", "403 Forbidden: AuthenticationFailed"),
        ("<!DOCTYPE html>\n<html><body>no</body></html>", "403 Forbidden"),
        ("not yours", "403 Forbidden: not yours"),
    ],
)
@pytest.mark.parametrize("kind", ["PermissionDeniedError", "GenericError"])
def test_markup_of_an_answer_is_not_shown(kind: str, body: str, said: str) -> None:
    error = explained(type(kind, (Exception,), {})(DENIED + body), "s3://b/x")
    assert isinstance(error, PermissionError)
    assert error.strerror is not None
    assert error.strerror.endswith(said)


@pytest.mark.parametrize("answer", ["non-2xx status code: 403 Forbidden: denied", "connection error: timed out"])
@pytest.mark.parametrize("kind", ["PermissionDeniedError", "GenericError"])
def test_what_asks_a_cloud_for_credentials_in_vain_has_none(kind: str, answer: str) -> None:
    """Also where a proxy answers in the place of the cloud."""
    asked = f"Generic S3 error: Error performing PUT http://169.254.169.254/latest/api/token in 1ms - {answer}"
    if kind == "PermissionDeniedError" and "403" not in answer:
        return
    error = explained(type(kind, (Exception,), {})(asked), "s3://b/x")
    assert isinstance(error, PermissionError)
    assert str(error.strerror).startswith("no credentials were found; ")
