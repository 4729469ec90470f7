"""Kinds of values in the settings file of the rules."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from llm_serving_alerts.rules import Severity
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.kinds import Kind, parse_duration
from llm_serving_exporter.settings.problems import InvalidValueError, shown

# what was there must have been whole for half an hour of it; few stores have more than two months
_SHORTEST_MEMORY_SECONDS, _LONGEST_MEMORY_SECONDS = 3600.0, 60 * 86_400.0
# the rest may hold templates of Prometheus, with anything in them
_HTTP = re.compile(r"https?://[^/\s]")
RATIO = kinds.decimal("a ratio above 0, up to 1", 0.0, 1.0)
# of a share that can be 1: an alert that asks for more never fires
_WHOLE = 1.0


def _exceeded(text: str) -> float:
    ratio = RATIO.parse(text)
    if ratio == _WHOLE:
        raise InvalidValueError(
            f"nothing is more than {shown(text)} of the whole: the alert could never fire", "Write less, such as 0.99."
        )
    return ratio


EXCEEDED_RATIO = Kind(RATIO.expects, _exceeded)
NUMBER = kinds.decimal("a number above 0", 0.0, 1e12)
# a time that is not the range of a rule, or longer than any scrape interval
SPAN = kinds.DURATION
RANGE = Kind("a duration of four scrapes or more", kinds.DURATION.parse)
FOR = Kind("a duration such as 5m, or 0", parse_duration)

# beyond that a page comes later than its alert's own time
_LONGEST_DELAY_SECONDS = 600.0


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValueError(f"{shown(text)} is not a time", "Write it as in 2026-01-31T08:00:00Z.") from None
    if moment.tzinfo is None:
        raise InvalidValueError(f"{shown(text)} has no time zone", "Add Z for UTC, as in 2026-01-31T08:00:00Z.")
    return moment.astimezone(UTC).timestamp()


def _memory(text: str) -> float:
    seconds = kinds.DURATION.parse(text)
    if not _SHORTEST_MEMORY_SECONDS <= seconds <= _LONGEST_MEMORY_SECONDS:
        raise InvalidValueError(f"{shown(text)} is not within 1h and 60d", "Write a duration such as 7d.")
    return seconds


def _delay(text: str) -> float:
    seconds = kinds.THRESHOLD.parse(text) or 0.0
    if seconds > _LONGEST_DELAY_SECONDS:
        fix = "Write 10m or less; every alert comes that much later."
        raise InvalidValueError(f"{shown(text)} is more than 10m", fix)
    return seconds


EVALUATION_DELAY = Kind("a duration such as 30s, or off", _delay)
MEMORY = Kind("a duration such as 7d", _memory)
LABEL_NAME = kinds.matching("a label's name", r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", "Write letters, digits and underscores.")
LABEL_VALUE = kinds.text("label value")
# it stands in a legend of Grafana
RECEIVER = kinds.matching(
    "the name of a receiver",
    r"(?a:[A-Za-z](?:[\w ./-]{0,98}[\w./-])?)",
    "Begin it with a letter, and write letters, digits, spaces and any of . _ / -.",
)
MOMENT = Kind("a time such as 2026-01-31T08:00:00Z", _moment)
_LONG_TEXT = kinds.text("URL", 2000)
# {alert}, but none of Prometheus' own, which have two braces
_PLACE = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")
_PLACES = frozenset({"alert", "uid", "queries"})


def _url_template(text: str) -> str:
    url = _LONG_TEXT.parse(text)
    if not _HTTP.match(url):
        raise InvalidValueError(
            f"{shown(text)} is no URL", "Begin it with https:// or http://; null leaves the link away."
        )
    if unknown := [name for name in _PLACE.findall(url) if name not in _PLACES]:
        raise InvalidValueError(
            f"nothing fills in {shown(f'{{{unknown[0]}}}')}",
            "Write {alert} for the alert's name, {uid} for the dashboard's, {queries} for the runbook's queries.",
        )
    return url


def _queries_url(text: str) -> str:
    url = _url_template(text)
    if "{queries}" not in url:
        fix = "Write it as in https://prometheus.example.com/graph?{queries}."
        raise InvalidValueError(f"{shown(text)} has no place for queries", fix)
    return url


URL_TEMPLATE = Kind("a URL", _url_template, is_text=True)
QUERIES_URL = Kind("a URL with {queries}", _queries_url, is_text=True)
RUNTIME = kinds.choice("runtime", sorted(RUNTIMES))
SEVERITY = kinds.member("severity", [severity for severity in Severity if severity is not Severity.NONE])
