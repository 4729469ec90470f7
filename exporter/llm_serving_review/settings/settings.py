"""What a user sets for the review: frozen. A field with `key(…)` declares a key of report.yml; `file` reads them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Secret
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.flags import FlagReader
from llm_serving_exporter.settings.http import read_existing_path
from llm_serving_exporter.settings.keys import (
    Key,
    Reader,
    Section,
    elements,
    is_empty,
    key,
    list_reader,
    mapping_reader,
    one_or_several,
    read_complete,
    section_reader,
    table,
)
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.options import Context, read_path
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, shown
from llm_serving_review.bills.charge import BillError
from llm_serving_review.bills.files import LABELS, Found, find_bill_files, read_mapping_file
from llm_serving_review.bills.formats import FORMATS

# --- Kinds of values that only the review's settings have.


_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_URL = re.compile(r"https?://[^\s/?#@]+(/[^\s?#]*)?")
_HOST = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?")
# labels that have tables of their own, or that would tell two scrapes of one target apart
_TAKEN = frozenset(
    {"target", "model_name", "role", "engine", "phase", "rate", "method", "state", "instance", "job", "le", "reason"}
)
_LARGEST_USD = 1e12
_LONGEST_LINK = 1000


def url(text: str) -> str:
    """A base URL without credentials. Raises InvalidValueError, which shows none."""
    if "@" in text:
        fix = "Remove it and set basic or bearer_token_file."
        raise InvalidValueError("the URL holds a user name or password", fix)
    if not _URL.fullmatch(text):
        raise InvalidValueError(f"{shown(text)} is not a URL", "Write one such as http://prometheus:9090.")
    return text


def grafana_url(text: str) -> str:
    """Where links to dashboards begin: http or https, no credentials, no query. Raises InvalidValueError."""
    example = "https://grafana.example.com."
    if "@" in text:
        what = "the URL holds a user name or password, and the page would show it"
        raise InvalidValueError(what, f"Write it without, as in {example}")
    if len(text) > _LONGEST_LINK or not _URL.fullmatch(text) or not text.isprintable():
        raise InvalidValueError(
            f"{shown(text)} is not a URL that a link can begin with", f"Write one such as {example}"
        )
    if re.search(r"/d/|/dashboards?(/|$)", text):
        fix = f"Write what stands before /d/, as in {example}"
        raise InvalidValueError(f"{shown(text)} is the address of one dashboard", fix)
    return text.rstrip("/")


def zone(text: str) -> str:
    """A zone of the IANA database. Raises InvalidValueError."""
    try:
        ZoneInfo(text)
    except (OSError, ValueError, KeyError):
        fix = "Write a name of the IANA database, such as UTC or Europe/Berlin; a system without one wants the package tzdata."
        raise InvalidValueError(f"{shown(text)} is not a time zone", fix) from None
    return text


def _label(text: str) -> str:
    if not _LABEL_NAME.fullmatch(text) or text.startswith("__"):
        raise InvalidValueError(f"{shown(text)} is not a label's name", "Write letters, digits and underscores.")
    if text in _TAKEN:
        fix = "List labels that the scrape adds, such as team."
        raise InvalidValueError(f"{text} is a label of the series themselves", fix)
    return text


def _usd(text: str) -> float:
    usd = kinds.parse_number(text)
    if not 0 <= usd <= _LARGEST_USD:
        fix = "Write a number from 0 up, without a currency sign."
        raise InvalidValueError(f"{shown(text)} is not an amount in USD", fix)
    return usd


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        fix = "Write one such as mail.example.com, the port beside it."
        raise InvalidValueError(f"{shown(text)} names no host", fix)
    return text


URL = Kind("a URL such as http://prometheus:9090", url, is_text=True)
GRAFANA_URL = Kind("a URL such as https://grafana.example.com", grafana_url, is_text=True)
ZONE = Kind("a time zone such as Europe/Berlin", zone, is_text=True)
LABEL = Kind("a label's name", _label, is_text=True)
USD = Kind("an amount in USD", _usd)
SHARE = kinds.OBJECTIVE
MAIL = kinds.matching(
    "a mail address",
    r"[^@\s,;<>\"]{1,64}@[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?",
    "Write one such as finance@example.com.",
)
HOST = Kind("a host name", _host, is_text=True)
KEEP = kinds.integer(1, 10_000)
PORT = kinds.integer(1, 65_535)
TEXT = kinds.text("text")


# --- The section `bills:` of report.yml: which bills the week is compared with, and how their lines find what was metered.


_ACCOUNT = kinds.text("number of an account")
_PATTERN = kinds.text("type of an instance, or a pattern such as p5.*")
_MAPPED_LABEL = kinds.choice("label", LABELS)
_GPUS = kinds.integer(1, 1_000)


def _read_paths(node: Node, place: Place, context: Context) -> tuple[str, ...]:
    given = ((read_path(element, at, context), at) for element, at in elements(node, place, "paths"))
    paths = tuple(path for path, at in given if path is not None and check_bill_path(path, at))
    if not paths and not place.problems:
        place.refuse("the list is empty", "Write paths: [bills/*.csv.gz].")
    return paths


def check_bill_path(path: str, place: Place) -> bool:
    """Whether a path, folder or pattern has a bill; reported where it has none."""
    try:
        find_bill_files([path])
    except BillError as error:
        place.refuse(f"{error.fault.what}: {shown(path)}", error.fault.fix)
        return False
    return True


def _read_mapping(node: Node, place: Place, context: Context) -> Mapping[str, tuple[Found, ...]] | None:
    path = read_path(node, place, context)
    return None if path is None else read_mapping_file(path, place)


def _read_pairs(kind: kinds.Kind[Any]) -> Reader:
    read = mapping_reader(kind, "Write it as in docs/report.md.")
    return lambda node, place, context: None if is_empty(node) else read(node, place, context)


@dataclass(frozen=True, slots=True)
class BillSettings:
    """What is compared. Every path has at least one file."""

    paths: tuple[str, ...] = key(_read_paths, unset=())  # files, folders and patterns
    format: str | None = key(kinds.choice("format", FORMATS))  # focus or cur; None = by the header
    # accounts whose lines are compared; () = all
    accounts: tuple[str, ...] = key(list_reader(_ACCOUNT, "numbers of accounts in quotes"), unset=())
    # types of instances and patterns; () = all that are known to have GPUs
    instance_types: tuple[str, ...] = key(list_reader(_PATTERN, "types of instances"), unset=())
    # GPUs of an instance by its type, where neither the bill nor another instance says
    gpus_per_instance: Mapping[str, int] = key(_read_pairs(_GPUS), unset={})
    # targets, nodes, workloads or models of machines, by `normalise_resource`
    mapping: Mapping[str, tuple[Found, ...]] = key(_read_mapping, name="mapping_file", unset={})
    tags: Mapping[str, str] = key(_read_pairs(_MAPPED_LABEL), unset={})  # labels by tags of the bill


def read_bill_flags(bills: BillSettings | None, flags: FlagReader) -> BillSettings | None:
    """The section with the paths of `--bill`, which win over its own. A path without a bill is reported, a section without paths too."""
    paths = flags.values("--bill", kinds.PATH)
    at = Place("flag --bill", "", flags.problems)
    if paths:
        for path in paths:
            check_bill_path(path, at)
        return replace(bills or BillSettings(), paths=paths)
    if bills is not None and not bills.paths and not flags.problems:
        fix = "Give paths under bills: in the settings, or --bill."
        flags.refuse("--bill", "there is no bill to compare with", fix)
    return bills


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
    objectives: Mapping[str, float] = key(
        lambda node, place, context: Section(_OBJECTIVES, node, place).values, unset={}
    )
    schedule: str | None = key(TEXT)  # a crontab line, in `timezone`
    webhook_url: Secret | None = None  # the keys webhook_url_file and webhook_url_env
    smtp: Smtp | None = None  # its reader adds the password
    bills: BillSettings | None = key(section_reader(BillSettings))  # what clouds bill, to compare with
    # where Grafana shows the pack's dashboards, without /d/…; "" = the page has no links
    dashboards_url: str = key(GRAFANA_URL, unset="")
    # price files whose pools and nodes the review applies
    price_files: tuple[str, ...] = key(_read_price_files, name="price_file", unset=())
