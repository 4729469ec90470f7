"""Kinds of values in the settings file of the rules."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from llm_serving_alerts.rules import Severity
from llm_serving_exporter.normalise.registry import RUNTIMES
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.duration import parse_duration
from llm_serving_exporter.schema.kinds import Kind
from llm_serving_exporter.schema.problems import InvalidValueError, shown

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
RATIO = kinds.decimal("a ratio above 0, up to 1", 0.0, 1.0)
NUMBER = kinds.decimal("a number above 0", 0.0, 1e12)
# a time that is not the range of a rule, or longer than any scrape interval
SPAN = kinds.DURATION
RANGE = Kind("a duration of four scrapes or more", kinds.DURATION.parse)
FOR = Kind("a duration such as 5m, or 0", parse_duration)


def parse_label_name(text: str) -> str:
    """The name of a Prometheus label. Raises InvalidValueError."""
    if not _LABEL.match(text) or text.startswith("__"):
        raise InvalidValueError(f"{shown(text)} is not a label's name", "Write letters, digits and underscores.")
    return text


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValueError(f"{shown(text)} is not a time", "Write it as in 2026-01-31T08:00:00Z.") from None
    if moment.tzinfo is None:
        raise InvalidValueError(f"{shown(text)} has no time zone", "Add Z for UTC, as in 2026-01-31T08:00:00Z.")
    return moment.astimezone(UTC).timestamp()


LABEL_NAME = Kind("a label's name", parse_label_name, is_text=True)
LABEL_VALUE = kinds.text("label value")
MOMENT = Kind("a time such as 2026-01-31T08:00:00Z", _moment)
URL_TEMPLATE = kinds.text("URL", 2000)
RUNTIME = kinds.choice("runtime", sorted(RUNTIMES))
_SEVERITIES = kinds.choice("severity", [severity.value for severity in Severity if severity is not Severity.NONE])
SEVERITY = Kind(_SEVERITIES.expects, lambda text: Severity(_SEVERITIES.parse(text)))
_REDUNDANCY = kinds.choice("redundancy", ("required", "none"))
# whether it is required
REDUNDANCY = Kind(_REDUNDANCY.expects, lambda text: _REDUNDANCY.parse(text) == "required")
