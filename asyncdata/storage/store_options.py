"""The names of the options of obstore's stores: an unknown one is an error that lists the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, cast

from asyncdata.errors import PlanError
from asyncdata.redaction import redacted

__all__ = ("CLIENT", "RETRY", "STORES", "check_names", "unknown_name")

STORES: Final = {
    "S3": (
        "access_key_id", "aws_endpoint_url_s3", "bucket", "checksum_algorithm", "conditional_put",
        "container_authorization_token_file", "container_credentials_full_uri", "container_credentials_relative_uri",
        "copy_if_not_exists", "default_region", "disable_bulk_delete", "disable_tagging", "endpoint",
        "imdsv1_fallback", "metadata_endpoint", "region", "request_payer", "role_arn", "role_session_name",
        "s3_express", "secret_access_key", "server_side_encryption", "session_token", "skip_signature",
        "sse_bucket_key_enabled", "sse_customer_key_base64", "sse_kms_key_id", "sts_endpoint", "unsigned_payload",
        "virtual_hosted_style_request", "web_identity_token_file",
    ),
    "GCS": (
        "application_credentials", "base_url", "bearer_token", "bucket", "service_account", "service_account_key",
        "skip_signature",
    ),
    "MicrosoftAzure": (
        "account_key", "account_name", "authority_host", "client_id", "client_secret", "container_name",
        "credential_type", "disable_tagging", "encryption_key", "endpoint", "fabric_cluster_identifier",
        "fabric_session_token", "fabric_token_service_url", "fabric_workload_host", "federated_token_file",
        "msi_endpoint", "msi_resource_id", "object_id", "sas_key", "skip_signature", "tenant_id", "token",
        "use_azure_cli", "use_emulator", "use_fabric_endpoint",
    ),
}  # fmt: skip
"""The names of the options of each store, by the name that obstore's errors have for it."""

CLIENT: Final = (
    "allow_http", "allow_invalid_certificates", "connect_timeout", "default_content_type", "default_headers",
    "http1_only", "http2_keep_alive_interval", "http2_keep_alive_timeout", "http2_keep_alive_while_idle",
    "http2_only", "pool_idle_timeout", "pool_max_idle_per_host", "proxy_ca_certificate", "proxy_excludes",
    "proxy_url", "randomize_addresses", "read_timeout", "root_certificate", "timeout", "user_agent",
)  # fmt: skip
"""The names in `client_options`."""

RETRY: Final = ("backoff", "max_retries", "retry_timeout")
"""The names in `retry_config`."""

OTHERS: Final = ("client_options", "credential_provider", "retry_config")

UNKNOWN: Final = re.compile(r"Configuration key: '(?P<name>.*)' is not valid for store '(?P<store>\w+)'")
UNKNOWN_TO_CLIENT: Final = re.compile(r"Invalid key: (?P<name>.*)\.")


def check_names(root: str, values: Mapping[str, Any]) -> None:
    """Raise for names that are in the wrong place, on which obstore panics, and for those that it would ignore."""
    for name in values:
        if name.lower() in CLIENT:
            raise PlanError(
                f"{redacted(root)}: {name!r} is an option of the connection: give "
                f"storage_options={{'client_options': {{{name!r}: ...}}}}"
            )
    for name in ("client_options", "retry_config"):
        if not isinstance(values.get(name, {}), Mapping):
            kind = type(values[name]).__name__
            raise PlanError(f"{redacted(root)}: the option {name!r} must be a dict of options, got {kind}")
    for name in cast("Mapping[Any, Any]", values.get("retry_config", {})):
        if name not in RETRY:
            raise unknown(root, f"{name!r} in retry_config", RETRY)


def unknown_name(root: str, error: Exception) -> PlanError | None:
    """Return the error for a name that obstore does not know, if that is what its error says."""
    words = str(error)
    if found := UNKNOWN.search(words):
        known = STORES.get(found["store"])
        return None if known is None else unknown(root, repr(found["name"]), (*known, *OTHERS))
    if found := UNKNOWN_TO_CLIENT.search(words):
        return unknown(root, f"{found['name']!r} in client_options", CLIENT)
    if "HTTPStore does not accept any configuration" in words:
        return PlanError(
            f"{redacted(root)}: a web server has no storage_options but 'client_options' and 'retry_config'"
        )
    return None


def unknown(root: str, name: str, known: tuple[str, ...]) -> PlanError:
    return PlanError(f"{redacted(root)}: there is no option {name}; the options are {', '.join(sorted(known))}")
