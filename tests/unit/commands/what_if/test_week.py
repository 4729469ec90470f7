"""What a Prometheus does not have, each with its sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Labels, Prometheus, Sample, Series
from llm_serving_exporter.commands.what_if.week import UnansweredError, read_week
from tests.support.rows import check_rows

NOW = 1_795_500_000.0


class Answers(Prometheus):
    """Of instant queries, the series of the first name that the query has; of ranges, one of a rate."""

    def __init__(self, series: Mapping[str, list[Labels]], rate: float) -> None:
        super().__init__(JsonApi(Access("Prometheus", "http://127.0.0.1:9", "--from-prometheus"), 1.0))
        self._series, self._rate = series, rate

    def now(self) -> float:
        return NOW

    def instant(self, query: str, at_unix_seconds: float | None = None) -> list[Sample]:
        return [(labels, 1.0) for name, found in self._series.items() if name in query for labels in found]

    def range(self, query: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        return [({}, [(begin, self._rate), (end, self._rate)])]


def served(*roles: str, model: str = "acme/m") -> list[Labels]:
    return [{"model_name": model, "role": role} for role in roles]


ONE = {"targets:count": served("unified")}
CASES: dict[str, tuple[dict[str, list[Labels]], float, str]] = {
    "no records": (
        {}, 1.0,
        "Prometheus has no record of any model: load the recording rules (llm-serving-exporter rules) and ask after a day of load",
    ),
    "no such model": (
        {"targets:count": served("unified", model="acme/other")}, 1.0,
        "Prometheus has no record of a model M: write one of acme/other",
    ),
    "several roles": (
        {"targets:count": served("decode", "prefill")}, 1.0,
        "acme/m is served as decode and prefill: choose one with --role",
    ),
    "no load": (
        ONE, 0.0,
        "acme/m (unified) finished no request in the last 7 days: ask about days with a load, with a longer --over",
    ),
    "two kinds of GPU": (
        {**ONE, "max by (gpu_name)": [{"gpu_name": "H100"}, {"gpu_name": "L40S"}]}, 1.0,
        "acme/m ran on H100 and L40S, whose steps cannot be separated: ask about days with one kind, with --over",
    ),
    "no GPU": (ONE, 1.0, "the GPUs of acme/m are not known: give its targets gpu_model and gpu_count"),
}  # fmt: skip


@check_rows("name", list(CASES))
def test_each_says_what_to_do(name: str) -> None:
    series, rate, sentence = CASES[name]
    with pytest.raises(UnansweredError) as raised:
        read_week(Answers(series, rate), "M", None, 7 * 86_400.0)
    assert str(raised.value) == sentence
