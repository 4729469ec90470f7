"""Kinds of values that only the review's settings have."""

from __future__ import annotations

import re
from zoneinfo import ZoneInfo

from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, shown

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
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
    if "@" in text:
        raise InvalidValueError(
            "the URL holds a user name or password, and the page would show it",
            "Write it without, as in https://grafana.example.com.",
        )
    if len(text) > _LONGEST_LINK or not _URL.fullmatch(text) or not text.isprintable():
        raise InvalidValueError(
            f"{shown(text)} is not a URL that a link can begin with", "Write one such as https://grafana.example.com."
        )
    if re.search(r"/d/|/dashboards?(/|$)", text):
        raise InvalidValueError(
            f"{shown(text)} is the address of one dashboard",
            "Write what stands before /d/, as in https://grafana.example.com.",
        )
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
    if not _LABEL.fullmatch(text) or text.startswith("__"):
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
