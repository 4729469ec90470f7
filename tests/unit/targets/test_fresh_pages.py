"""Every runtime's page right after its start, all at zero: an idle server, whichever way its runtime is known, for as long as it rests."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from math import isfinite

import pytest

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.derived import Limiter
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.snapshot import Quality
from tests.support.builders.discovered_pods import plain_pod, targets_of
from tests.support.builders.golden_cases import CASES, MADE, Case
from tests.support.rows import check_rows
from tests.support.servers.replica import Routes, readings

REST_TICKS = 40  # of ten seconds: longer than what is booked late is waited for
TYPE = re.compile(r"# TYPE (\S+) (\S+)")
# gauges of what goes on now; others are limits and sizes
NOW = re.compile(
    r"running|waiting|pending|queue|usage|used|active|processing|deferred|throughput|_per_second|busy|in_?flight|batch_current"
)


@dataclass(frozen=True)
class Door(Case):
    """A front door's page, which stands in tests/made once."""

    def steps(self) -> list[Routes]:
        return [{self.path: (MADE / f"{self.made}.prom").read_bytes()}]


FRONT_DOORS = (
    "litellm", "envoy-ai-gateway", "gen-ai", "llm-d-epp", "smg", "sglang-router", "production-stack-router",
)  # fmt: skip
# of engines of which there are recordings one with nothing to do
FURTHER = re.compile(r"-(light|saturated|kv-pressure|prefill-heavy|restarted|overload|given-up|drained|rejections)$")


@cache
def list_pages() -> dict[str, Case]:
    """Every page that is text, by the case's name."""
    pages = {
        name: case
        for name, case in CASES.items()
        if isinstance(case.steps()[-1].get(case.path), (bytes, str)) and not case.path.endswith("perf_metrics")
    }
    return pages | {name: Door(made=name) for name in FRONT_DOORS}


def list_quick() -> list[str]:
    """A page of each runtime."""
    return [name for name in list_pages() if not FURTHER.search(name) or "dynamo" in name]


def list_further() -> list[str]:
    return [name for name in list_pages() if name not in list_quick()]


def to_fresh(text: str) -> str:
    """A page with everything that counts, and everything that goes on, at 0; what was never counted keeps its labels."""
    kinds = dict(TYPE.findall(text))

    def reset(line: str) -> str:
        name = re.split(r"[{ ]", line, maxsplit=1)[0]
        base = re.sub(r"_(total|bucket|count|sum|created)$", "", name)
        kind = kinds.get(name) or kinds.get(base) or kinds.get(f"{base}_total") or ""
        moves = kind in ("counter", "histogram", "summary") or (kind == "gauge" and NOW.search(name))
        if line.startswith("#") or not line.strip() or not moves:
            return line
        return re.sub(r"(\}|^[^{ ]+) +\S+", r"\1 0", line, count=1)

    return "\n".join(map(reset, text.splitlines())) + "\n"


def make_fresh(case: Case) -> Routes:
    step = dict(case.steps()[-1])
    body = step[case.path]
    text = body.decode() if isinstance(body, bytes) else body
    assert isinstance(text, str)
    step[case.path] = to_fresh(text)
    return step


def rest(case: Case, ticks: int = REST_TICKS, **more: object) -> list[TargetReading]:
    return readings([make_fresh(case)] * ticks, **{**case.target, **more})


def check_rest(found: list[TargetReading]) -> None:
    for reading in found:
        assert (reading.page.up, reading.server.state) == (True, State.READY), reading.page.problem
        assert not [name for name, quality in reading.page.derived.quality.items() if quality is Quality.SUSPECT]
        assert not reading.page.derived.causes
        verdict = reading.page.derived.verdict
        assert verdict is None or verdict.state in (Limiter.STARVED, Limiter.UNKNOWN)
        for engine in reading.page.derived.engines:
            values: Mapping[str, float] = engine.phase_tokens_per_second
            assert all(isfinite(value) and value == 0 for value in values.values())
    assert found[-1].server.restarts_total == 0


@check_rows("name", list_quick)
def test_a_fresh_page_is_idle(name: str) -> None:
    check_rest(rest(list_pages()[name]))


@pytest.mark.e2e
@check_rows("name", list_further)
def test_a_further_fresh_page_is_idle(name: str) -> None:
    check_rest(rest(list_pages()[name]))


@check_rows("name", list_quick)
def test_the_same_where_its_runtime_is_set(name: str) -> None:
    check_set(name)


@pytest.mark.e2e
@check_rows("name", list_further)
def test_the_same_of_a_further_page_where_its_runtime_is_set(name: str) -> None:
    check_set(name)


def check_set(name: str) -> None:
    case = list_pages()[name]
    recognised = rest(case, 1)[0].server.runtime
    set_to = rest(case, 6, runtime=recognised)
    check_rest(set_to)
    assert set_to[0].server.runtime == recognised


def test_nearly_every_runtime_is_tried() -> None:
    tried = {rest(case, 1)[0].server.runtime for case in list_pages().values()}
    # JSON pages, servers without a page
    assert len(RUNTIMES.keys() - tried) <= 6, RUNTIMES.keys() - tried


@check_rows("name", sorted(RUNTIMES))
def test_an_annotation_sets_the_runtime_as_the_configuration_does(name: str) -> None:
    wishes = {"scrape": "true", "port": "8000", "runtime": name}
    pod = plain_pod(annotations={f"llm-serving-exporter/{key}": text for key, text in wishes.items()})
    (target,) = targets_of([pod])
    assert target.runtime == name
