"""What a user sets for the review: frozen, checked by `settings_file` and `arguments`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llm_serving_exporter.model.target import Secret


@dataclass(frozen=True, slots=True)
class Server:
    """Prometheus. `url` "" where none is given; secrets are named, never held; `basic_username` and the password stand together."""

    url: str = ""
    bearer_token: Secret | None = None
    basic_username: str | None = None
    basic_password: Secret | None = None
    ca_file: str | None = None


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """What an API asks for the same tokens, USD per million. `cached_input_usd_per_million`: of tokens that its cache has."""

    name: str
    input_usd_per_million: float
    cached_input_usd_per_million: float
    output_usd_per_million: float


@dataclass(frozen=True, slots=True)
class MonthlyCosts:
    """What serving costs beside GPUs, USD a month."""

    storage: float = 0.0
    network: float = 0.0
    monitoring: float = 0.0
    engineering: float = 0.0

    @property
    def total(self) -> float:
        """Of all four."""
        return self.storage + self.network + self.monitoring + self.engineering


@dataclass(frozen=True, slots=True)
class Smtp:
    """A mail server. `starttls`: the session is encrypted before anything is sent."""

    host: str
    port: int
    starttls: bool
    sender: str
    to: tuple[str, ...]
    username: str | None = None
    password: Secret | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """All of it. None = not set.

    `out`: a folder; `keep`: reports that stay there, None = all. `schedule`: cron text, in `timezone`. `objectives`: shares by SLO.
    """

    server: Server = Server()
    timezone: str = "UTC"
    identity_labels: tuple[str, ...] = ()
    by_labels: tuple[str, ...] = ()
    title: str = "LLM serving: cost review"
    out: str = "."
    keep: int | None = None
    api_price: ApiPrice | None = None
    purchase_usd: float | None = None
    monthly_costs: MonthlyCosts = MonthlyCosts()
    objectives: Mapping[str, float] = field(default_factory=dict)
    schedule: str | None = None
    webhook_url: Secret | None = None
    smtp: Smtp | None = None
