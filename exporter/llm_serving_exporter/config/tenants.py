"""Who the tenants of front doors are, and how they are named: the section `tenants`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_serving_exporter.config.option import option
from llm_serving_exporter.model.tenants import TenantKind, TenantSettings
from llm_serving_exporter.schema import kinds

# with --tenants.limit, what bounds the series: tenants times models
MOST_TENANTS = 1000


@dataclass(frozen=True, slots=True)
class TenantsConfig:
    """Whether front doors' tokens are counted by tenant, and how tenants are named."""

    by: TenantKind = option(
        "tenants.by",
        kinds.member("kind of tenant", TenantKind),
        "Whether tokens of gateways are counted by tenant, and what a tenant is: off, team, key (its alias), user, header (see "
        "tenants.label), adapter (docs/tenants.md).",
        default="off",
    )
    # None = the table of the runtime says it
    label: str | None = option(
        "tenants.label",
        kinds.text("label", 200),
        "Label of the gateway's page that names the tenant, for tenants.by header.",
    )
    # None = names are published as they are
    hmac_key_file: str | None = option(
        "tenants.hmac-key-file",
        kinds.PATH,
        "File with a secret of at least 32 bytes: tenants are then published as 16 hex digits of the HMAC-SHA256 of their name.",
    )
    limit: int = option(
        "tenants.limit",
        kinds.integer(1, MOST_TENANTS),
        "How many tenants have series of their own; all others are one, other.",
        default="100",
    )
    # name that was asked for -> name under which an engine serves it
    aliases: Mapping[str, str] = field(default_factory=dict)

    @property
    def settings(self) -> TenantSettings:
        """What targets go by."""
        return TenantSettings(self.by, self.label, self.hmac_key_file, self.limit, self.aliases)
