"""What recording rules yield, as promtool unit tests: many fleets in one history, told apart by the model's name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.pack.builders_kv import selector
from tests.pack.promtool import attach_rules, rule_files


@dataclass(frozen=True)
class Expected:
    """A record's value, rounded to thousandths; None where there must be no such series. `labels`: beside model_name and role."""

    record: str
    value: float | None
    labels: Mapping[str, str]


@dataclass(frozen=True)
class Fleet:
    """A model's series and what is recorded of it at the end of the history."""

    model_name: str
    series: Mapping[str, str]
    expected: tuple[Expected, ...]
    role: str = "unified"


def is_(record: str, value: float | None, **labels: str) -> Expected:
    """`is_("model:llm_serving_n1_sufficient:bool", 1)`."""
    return Expected(record, value, labels)


def are(values: Mapping[str, float | None]) -> tuple[Expected, ...]:
    """Records without labels of their own, by name."""
    return tuple(is_(record, value) for record, value in values.items())


def by_resource(record: str, **values: float | None) -> tuple[Expected, ...]:
    """The record's value of each resource."""
    return tuple(is_(record, value, resource=resource) for resource, value in values.items())


def by_reserve(record: str, **values: float | None) -> tuple[Expected, ...]:
    """The record's value with each reserve."""
    return tuple(is_(record, value, reserve=reserve) for reserve, value in values.items())


def document(fleets: Iterable[Fleet], rules: str, at: str, every: str = "1m") -> str:
    """The text of a promtool test file: all fleets beside one another, looked at once. `every`: how often the rules are evaluated."""
    fleets = tuple(fleets)
    series = {name: values for fleet in fleets for name, values in fleet.series.items()}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [_query(fleet, one, at) for fleet in fleets for one in fleet.expected],
    }
    return attach_rules({"rule_files": [], "evaluation_interval": every, "tests": [test]}, rule_files(rules)[:1], rules)


def _query(fleet: Fleet, one: Expected, at: str) -> dict[str, Any]:
    labels = {"model_name": fleet.model_name, "role": fleet.role, **one.labels}
    found = [] if one.value is None else [{"labels": selector("", **labels), "value": one.value}]
    # any other label would be one too many in the answer
    return {"expr": f"round({selector(one.record, **labels)}, 0.001)", "eval_time": at, "exp_samples": found}
