"""Who sent the requests of a front door, and what was counted of each."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import Absence


class TenantKind(StrEnum):
    """What a tenant is: the words of the setting `tenants.by` and of the label `kind`."""

    OFF = "off"  # tenants are not counted
    TEAM = "team"
    KEY = "key"  # the name of an API key, never the key
    USER = "user"  # the end user that a request names
    HEADER = "header"  # what a configured label says, as a gateway fills it from a header or an attribute
    ADAPTER = "adapter"  # a LoRA adapter


# of requests that name no tenant
UNLABELLED = "unlabelled"
# of tenants beyond the first `tenants.limit`
OTHER = "other"
# of a tenant whose name is an e-mail address, or that cannot be hashed as asked
WITHHELD = "withheld"

# a shorter key is weaker than the hash (RFC 2104, 3)
SHORTEST_KEY_BYTES = 32

# what is counted of a tenant: the exporter's series without `tenant_` <- the field of a snapshot
TENANT_FIELDS: Mapping[str, str] = {
    "tenant_prompt_tokens_total": "prompt_tokens_total",
    "tenant_cached_prompt_tokens_total": "cached_prompt_tokens_total",
    "tenant_decode_tokens_total": "decode_tokens_total",
    "tenant_requests_finished_total": "requests_finished_total",
}


class TenantSettings(Struct, frozen=True):
    """What a tenant is, and how tenants are named."""

    by: TenantKind = TenantKind.OFF
    label: str | None = None  # of the page, that names one, for `header`; None: the runtime's table says it
    key_file: str | None = None  # whose secret names are hashed with; None: they are published as they are
    limit: int = 100  # how many have rows of their own
    aliases: Mapping[str, str] = field(default_factory=dict)  # asked for -> as an engine serves it


class TenantRow(Struct, frozen=True):
    """What was counted of one tenant and model since the exporter began to read the front door."""

    model_name: str  # as the engine serves it, where the map of aliases knows the name that was asked for
    tenant: str  # as it may be published
    counts: Mapping[str, float]  # by name of the series; one that the page does not count is not there


class TenantReading(Struct, frozen=True):
    """What one front door counts by tenant."""

    kind: TenantKind
    rows: tuple[TenantRow, ...] = ()  # in order of model and tenant
    signals: Mapping[str, Absence] = field(default_factory=dict)  # by name of the series; AVAILABLE: the page has it
