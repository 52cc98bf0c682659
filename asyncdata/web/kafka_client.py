"""What the client of Kafka is given, and why a broker does not take it: the client only logs that."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from asyncdata.redaction import redacted
from asyncdata.system.optional_packages import require

__all__ = ("EXTRA", "client_arguments", "reason_of", "refusals", "words_of")

EXTRA: Final = "'asyncdata[kafka]'"

CONNECTION: Final = ("request_timeout_ms", "ssl_context", "security_protocol")


def client_arguments(client: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of the client, with errors of a token provider as those of connections.

    Others end the client's tasks, so that nothing would come any more when the provider is there again.
    """
    given = dict(client)
    provider: Any = client.get("sasl_oauth_token_provider")
    base = require("aiokafka.abc", "from_kafka", EXTRA).AbstractTokenProvider
    errors = require("aiokafka.errors", "from_kafka", EXTRA)

    async def token(_: Any) -> str:
        try:
            return await provider.token()
        except Exception as error:
            raise errors.KafkaConnectionError(f"the token provider raised {words_of(error)}") from error

    def extensions(_: Any) -> Any:
        return provider.extensions()

    if isinstance(provider, base):
        own: dict[str, Any] = {"token": token, "extensions": extensions}
        given["sasl_oauth_token_provider"] = type("Provider", (base,), own)()
    return given


def refusals() -> tuple[type[Exception], ...]:
    """Return the errors that tell of a password or token that is wrong, or is no longer valid."""
    errors = require("aiokafka.errors", "from_kafka", EXTRA)
    return (
        errors.AuthenticationFailedError,
        errors.AuthenticationMethodNotSupported,
        errors.IllegalSaslStateError,
        errors.SaslAuthenticationFailed,
        errors.UnsupportedSaslMechanismError,
    )


def words_of(error: Exception) -> str:
    """Return an error in words, without secrets; those of the client have their names in them."""
    words, name = str(error), type(error).__name__
    return redacted(words if name in words else f"{name}: {words}")


async def reason_of(servers: str, client: Mapping[str, Any], seconds: float) -> Exception | None:
    """Connect to each of some brokers; return why none takes the client, or `None` if one does."""
    connections: Any = require("aiokafka.conn", "from_kafka", EXTRA)
    failures = (OSError, TimeoutError, require("aiokafka.errors", "from_kafka", EXTRA).KafkaError)
    given = {name: value for name, value in client.items() if name in CONNECTION or name.startswith("sasl_")}
    found: Exception | None = None
    for host, port, _ in connections.collect_hosts(servers):
        try:
            async with asyncio.timeout(seconds):
                connection = await connections.create_conn(host, port, **given)
        except failures as error:
            found = error
        else:
            connection.close()
            return None
    return found
