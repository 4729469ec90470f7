"""What a Prometheus does not have, each with its sentence that says what to do."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Labels, Prometheus, Sample, Series
from llm_serving_exporter.commands.what_if.answer import Asked, watch
from llm_serving_exporter.commands.what_if.week import UnansweredError, read_week
from tests.support.rows import check_rows

NOW = 1_795_500_000.0


class Answers(Prometheus):
    """Of instant queries, the series of the names that the query has, each with its value (1); of ranges, one of a rate.

    `values`: by a part of a query; None: it finds nothing.
    """

    def __init__(self, series: Mapping[str, list[Labels]], rate: float, values: Mapping[str, float | None]) -> None:
        super().__init__(JsonApi(Access("Prometheus", "http://127.0.0.1:9", "--from-prometheus"), 1.0))
        self._series, self._rate, self._values = series, rate, values

    def now(self) -> float:
        return NOW

    def instant(self, query: str, at_unix_seconds: float | None = None) -> list[Sample]:
        value = self._find(query, 1.0)
        return [(labels, value) for name, found in self._series.items() if name in query for labels in found if value]

    def range(self, query: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        rate = self._find(query, self._rate)
        return [] if rate is None else [({}, [(begin, rate), (end, rate)])]

    def _find(self, query: str, otherwise: float) -> float | None:
        return next((value for part, value in self._values.items() if part in query), otherwise)


def served(*roles: str, model: str = "acme/m") -> list[Labels]:
    return [{"model_name": model, "role": role} for role in roles]


ONE = {"targets:count": served("unified")}
SIZED = {f"{function} by (gpu_name)": [{"gpu_name": "H100"}] for function in ("max", "min")}
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
    "two sizes": (
        {**ONE, **SIZED}, 1.0,
        "replicas of acme/m ran on 2 to 4 x H100, whose steps cannot be separated: ask about days with one size, with --over",
    ),
    "a part of a GPU": (
        {**ONE, **SIZED}, 1.0,
        "a replica of acme/m has 0.429 x H100: what a part of a card reaches beside its neighbours is not known; "
        "ask about a model on whole cards",
    ),
    "no prompts": (
        ONE, 1.0,
        "no token of prompts was counted for acme/m (unified), as where a model embeds or its engines do not say: "
        "ask about one that is counted",
    ),
    "no answers": (
        ONE, 1.0,
        "no token of answers was counted for acme/m (unified), as where a model embeds or its engines do not say: "
        "ask about one that is counted",
    ),
    "engines that share a GPU": (
        {**ONE, **SIZED, "count by (target)": [{}]}, 1.0,
        "a replica of acme/m has 2 engines on 1 GPU, which do not have as many each: give its targets gpu_count",
    ),
}  # fmt: skip
VALUES: dict[str, dict[str, float | None]] = {
    "two sizes": {"max by (gpu_name)": 4.0, "min by (gpu_name)": 2.0},
    "a part of a GPU": {"by (gpu_name)": 3 / 7},
    "no prompts": {"prompt_tokens": None, 'phase="prefill"': None},
    "no answers": {'phase="decode"': None},
    "engines that share a GPU": {"max(count by (target)": 2.0},
}


@check_rows("name", list(CASES))
def test_each_says_what_to_do(name: str) -> None:
    series, rate, sentence = CASES[name]
    with pytest.raises(UnansweredError) as raised:
        watch(read_week(Answers(series, rate, VALUES.get(name, {})), "M", None, 7 * 86_400.0), Asked("M"))
    assert str(raised.value) == sentence
