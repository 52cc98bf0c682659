"""Which server and account a store asks, by its options and the environment, as obstore and gcsfs read them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, cast

from asyncdata.errors import PlanError

__all__ = ("check_endpoints", "endpoint_of", "identity_of", "servers_of")

AZURE: Final = (
    ("azure_storage_use_emulator", "use_emulator"),
    ("azurite_blob_storage_url",),
    ("azure_storage_endpoint", "azure_endpoint", "endpoint"),
    ("azure_use_fabric_endpoint", "use_fabric_endpoint"),
    ("azure_storage_account_name", "account_name"),
)

NAMES: Final = {
    "s3": (("aws_endpoint_url_s3",), ("aws_endpoint", "aws_endpoint_url", "endpoint", "endpoint_url")),
    "gs": (("google_base_url", "base_url"),),
    "gcs": (("storage_emulator_host",),),
    **dict.fromkeys(("az", "azure", "abfs", "abfss", "adl"), AZURE),
}
"""By scheme what says which server is asked, under any of its names."""

PREFIXES: Final = ("aws_", "azure_", "azurite_", "google_", "storage_emulator_")
"""Names that are also those of environment variables, in capitals."""


def endpoint_of(values: Mapping[str, Any]) -> str:
    """Return the endpoint in the options; an empty string if there is none."""
    return next((str(value) for name, value in values.items() if "endpoint" in name or name == "base_url"), "")


def servers_of(root: str, values: Mapping[str, Any]) -> dict[str, str]:
    """Return what says which server and account is asked, by name; empty for the cloud's own, of any account.

    >>> servers_of("az://container", {"azure_storage_account_name": "one"})
    {'account_name': 'one'}
    """
    scheme = root.partition("://")[0].lower()
    provided = getattr(values.get("credential_provider"), "config", None)
    given = {**cast("Mapping[str, Any]", provided), **values} if isinstance(provided, Mapping) else values
    found = {names[-1]: value_of(names, given) for names in NAMES.get("s3" if scheme == "s3a" else scheme, ())}
    if found.get("use_emulator", "").lower() not in {"1", "true", "on", "yes", "y"}:
        found.pop("azurite_blob_storage_url", None)
    return {name: value for name, value in found.items() if value}


def check_endpoints(root: str, values: Mapping[str, Any]) -> None:
    """Raise `PlanError` for an endpoint that is no URL, for which obstore 0.12 panics."""
    scheme = root.partition("://")[0].lower()
    for name in [name for names in NAMES.get("s3" if scheme == "s3a" else scheme, ()) for name in names]:
        if "use_" in name or not name.endswith(("endpoint", "_url")):
            continue
        by_environment = os.environ.get(name.upper()) if name.startswith(PREFIXES) else None
        found = next((str(value) for given, value in values.items() if given.lower() == name), by_environment)
        if found is not None and not found.lower().startswith(("http://", "https://")):
            where = "storage_options" if found is not by_environment else "the environment"
            raise PlanError(f"{name} in {where} must begin with http:// or https://")


def value_of(names: tuple[str, ...], values: Mapping[str, Any]) -> str:
    """Return the value of an option; without one, all that the environment has, of which obstore uses one."""
    given = [str(value) for name, value in values.items() if name.lower() in names]
    return " ".join(given or environment(names))


def environment(names: tuple[str, ...]) -> Iterator[str]:
    """Yield the values of environment variables."""
    for name in names:
        if name.startswith(PREFIXES) and (value := os.environ.get(name.upper())):
            yield value


def identity_of(root: str, values: Mapping[str, Any]) -> str:
    """Return a string that identifies a bucket or web server: the endpoint, the root, and the rest that says which.

    Cache folders have names of objects that are digests of it: it stays as it is for the same server.
    """
    servers = servers_of(root, values)
    urls = [value for value in servers.values() if "://" in value]
    endpoint = endpoint_of(values) or next(iter(urls), "")
    rest = [f"{name}={value}" for name, value in servers.items() if value != endpoint]
    return " ".join([endpoint, root.partition("?")[0], *rest])
