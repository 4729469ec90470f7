"""Whatever stands in for Prometheus and whatever it answers: an answer that makes sense, or a sentence."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence

import pytest

from llm_serving_exporter.clients.json_api import Access, JsonApi, Labels, Prometheus, Sample, Series
from llm_serving_exporter.commands.what_if.answer import Answer, Asked, Watched, answer, as_document, as_table, watch
from llm_serving_exporter.commands.what_if.week import UnansweredError, read_week
from llm_serving_exporter.errors import FactsError

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
USUAL = (0.0, 0.5, 1.0, 3.0, 20.0, 64.0, 500.0, 4096.0, 1e5)
# as far as the client lets them through
ODD = (0.0, -1.0, -1e30, 1e-30, 1e-9, 1e12, 1e18, 1e30)


class OddPrometheus(Prometheus):
    """Of every query some value, and now and then none; `odd`: the share of those that no fleet has."""

    def __init__(self, chance: random.Random, odd: float) -> None:
        super().__init__(JsonApi(Access("Prometheus", "http://127.0.0.1:9", "--from-prometheus"), 1.0))
        self._chance, self._odd = chance, odd
        self._gpus = chance.choice((1, 1, 2, 4, 8, 8, 0.5, 1.5, 0, 1e9))
        self._role = chance.choice(("unified", "prefill", "decode", "another"))

    def now(self) -> float:
        return 1.8e9

    def instant(self, query: str, at_unix_seconds: float | None = None) -> list[Sample]:
        if "by (gpu_name)" in query:
            return [({"gpu_name": "H100 SXM 80GB"}, self._gpus)]
        return [(labels, self._draw()) for labels in self._labels(query) if self._chance.random() < 0.95]

    def value(self, query: str, at_unix_seconds: float | None = None) -> float | None:
        if query.startswith("max(count by (target)"):
            return float(self._chance.choice((1, 1, 1, 2)))
        return None if self._chance.random() < 0.08 else self._draw()

    def range(self, query: str, begin: float, end: float, step_seconds: float) -> list[Series]:
        names: Sequence[Labels] = [{}] if query.startswith("sum(") else [{"target": "a"}, {"target": "b"}]
        usual = self._draw()
        return [
            (labels, [(begin + place * step_seconds, self._vary(usual)) for place in range(self._chance.randrange(12))])
            for labels in names
        ]

    def _draw(self) -> float:
        odd = self._chance.random() < self._odd
        return self._chance.choice(ODD) if odd else self._chance.choice(USUAL) * self._chance.uniform(0.5, 1.5)

    def _vary(self, usual: float) -> float:
        return usual * self._chance.uniform(0.8, 1.2) if self._chance.random() < 0.7 else self._draw()

    def _labels(self, query: str) -> list[Labels]:
        if "by (model_name, role)" in query:
            return [{"model_name": MODEL, "role": self._role}]
        if "by (slo, threshold)" in query:
            slo, threshold = (("ttft", "itl", "e2e", "errors"), ("0.5", "2", "", "-1", "0", "1e400", "NaN"))
            return [{"slo": self._chance.choice(slo), "threshold": self._chance.choice(threshold)}]
        if "model_info" in query:
            return [{"weight_format": self._chance.choice(("", "bf16", "fp8+bf16", "odd")), "kv_format": "fp8"}]
        return [{"gpu": "GPU-1"}]


def ask(watched: Watched, **differs: float) -> Answer | None:
    try:
        found = answer(watched, Asked(MODEL, **differs))
    except (UnansweredError, FactsError):
        return None
    json.dumps(as_document(found), allow_nan=False)
    assert as_table(found)
    return found


@pytest.mark.parametrize("odd", [0.0, 0.05, 0.3])
def test_an_answer_makes_sense_or_a_sentence_says_why_there_is_none(odd: float) -> None:
    answered = 0
    for seed in range(60):
        try:
            watched = watch(read_week(OddPrometheus(random.Random(seed), odd), MODEL, None, 604_800.0), Asked(MODEL))
        except (UnansweredError, FactsError):
            continue
        asked = ask(watched)
        if asked is None or asked.question.needed is None:
            continue
        answered += 1
        needed, state = asked.question.needed, asked.question.state
        assert state is not None
        assert state.holds
        assert state.step_seconds > 0
        assert state.kv_free is None or 0 <= state.kv_free <= 1
        less = ask(watched, replicas=needed - 1)
        assert needed == 1 or less is None or less.question.state is None or not less.question.state.holds
        # whoever is asked for more needs no fewer
        for more in ({"traffic": 2.0}, {"output_tokens": 2 * watched.week.request.output}, {"input_tokens": 1e4}):
            if more.get("input_tokens", 1e4) >= watched.week.request.sent:
                found = ask(watched, **more)
                assert found is None or found.question.needed is None or found.question.needed >= needed
    assert answered
