"""What a user sets for the review: frozen. A field with `key(…)` declares a key of report.yml; `file` reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.http import read_existing_path
from llm_serving_exporter.settings.keys import (
    Key,
    Section,
    key,
    list_reader,
    one_or_several,
    read_complete,
    section_reader,
    table,
)
from llm_serving_exporter.settings.options import Context, read_path
from llm_serving_exporter.settings.problems import Node, Place
from llm_serving_review.settings.bills import BillSettings
from llm_serving_review.settings.kinds import (
    GRAFANA_URL,
    HOST,
    KEEP,
    LABEL,
    MAIL,
    PORT,
    SHARE,
    TEXT,
    URL,
    USD,
    ZONE,
)

_OBJECTIVES = table(ttft=SHARE, itl=SHARE, e2e=SHARE, errors=SHARE)
_PURCHASE = table(usd=Key(USD, required=True))


@dataclass(frozen=True, slots=True)
class Server:
    """Prometheus. Secrets are named, never held."""

    url: str = key(URL, unset="")  # "" = none is given
    bearer_token: Secret | None = None  # excludes user name and password
    basic_username: str | None = None  # set together with `basic_password`
    basic_password: Secret | None = None  # set together with `basic_username`
    ca_file: str | None = key(read_existing_path)  # None = the system's CAs


@dataclass(frozen=True, slots=True)
class ApiPrice:
    """What an API charges for the same tokens."""

    name: str = key(TEXT, required=True)  # of the API, as the page shows it
    input_usd_per_million: float = key(USD, required=True)  # prompt tokens that its cache does not hold
    cached_input_usd_per_million: float = key(USD, required=True)  # of prompt tokens that the API's cache holds
    output_usd_per_million: float = key(USD, required=True)  # generated tokens


@dataclass(frozen=True, slots=True)
class MonthlyCosts:
    """What serving costs beside GPUs, USD a month."""

    storage: float = key(USD, default="0")
    network: float = key(USD, default="0")
    monitoring: float = key(USD, default="0")
    engineering: float = key(USD, default="0")

    @property
    def total(self) -> float:
        """The sum of all four."""
        return self.storage + self.network + self.monitoring + self.engineering


@dataclass(frozen=True, slots=True)
class Smtp:
    """A mail server."""

    host: str = key(HOST, required=True)
    sender: str = key(MAIL, name="from", required=True)
    to: tuple[str, ...] = key(list_reader(MAIL, "mail addresses"), required=True)
    port: int = key(PORT, default="587")  # 587: submission (RFC 6409)
    starttls: bool = key(kinds.BOOLEAN, default="true")  # whether the session is encrypted before anything is sent
    username: str | None = key(TEXT)  # set together with `password`
    password: Secret | None = None  # set together with `username`


def _read_purchase(node: Node, place: Place, context: Context) -> float | None:
    """The price of GPUs that are bought instead, in USD."""
    purchase = read_complete(_PURCHASE, node, place, "Write purchase: {usd: 250000}.")
    return None if purchase is None else purchase["usd"]


def _read_price_files(node: Node, place: Place, context: Context) -> tuple[str, ...]:
    """A path, or a list of them, each relative to the settings' folder."""
    paths = (read_path(element, at, context) for element, at in one_or_several(node, place, "paths"))
    return tuple(dict.fromkeys(path for path in paths if path is not None))


def _read_objectives(node: Node, place: Place, context: Context) -> dict[str, float]:
    return Section(_OBJECTIVES, node, place).values


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set for a review. None = not set."""

    server: Server = Server()  # its reader adds the credentials
    timezone: str = key(ZONE, default="UTC")  # where the week begins
    # labels of the scrape that tell fleets apart
    identity_labels: tuple[str, ...] = key(list_reader(LABEL, "names of labels"), unset=())
    # labels of the scrape that the bill is split by
    by_labels: tuple[str, ...] = key(list_reader(LABEL, "names of labels"), unset=())
    title: str = key(TEXT, default="LLM serving: cost review")
    out: str = key(read_path, unset=".")  # the folder that reports are written into
    keep: int | None = key(KEEP)  # how many reports stay in that folder, None = all
    api_price: ApiPrice | None = key(
        section_reader(
            ApiPrice, "State the name and all three prices; without a discount for cached tokens repeat the input's."
        )
    )
    # what the GPUs would cost to buy, to see when that pays
    purchase_usd: float | None = key(_read_purchase, name="purchase")
    # beside GPUs, for the total cost of ownership
    monthly_costs: MonthlyCosts = key(section_reader(MonthlyCosts), unset=MonthlyCosts())
    # the share of good requests that is aimed at, by SLO
    objectives: Mapping[str, float] = key(_read_objectives, unset={})
    schedule: str | None = key(TEXT)  # a crontab line, in `timezone`
    webhook_url: Secret | None = None  # the keys webhook_url_file and webhook_url_env
    smtp: Smtp | None = None  # its reader adds the password
    bills: BillSettings | None = key(section_reader(BillSettings))  # what clouds bill, to compare with
    # where Grafana shows the pack's dashboards, without /d/…; "" = the page has no links
    dashboards_url: str = key(GRAFANA_URL, unset="")
    # price files whose pools and nodes the review applies
    price_files: tuple[str, ...] = key(_read_price_files, name="price_file", unset=())
