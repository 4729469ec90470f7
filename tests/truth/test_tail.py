"""The long-context tail against the load client's own list of requests: its p99, its mean and its longest 1 % lie within the bounds."""

from __future__ import annotations

import json
import re

import pytest

from llm_serving_exporter.commands.once import as_table
from llm_serving_exporter.model.derived import Tail
from llm_serving_exporter.model.reading import TargetReading
from tests.support.builders.golden_cases import vllm_says
from tests.support.builders.recordings import recording
from tests.support.rows import check_rows
from tests.support.servers.replica import readings
from tests.truth.test_counts import MAIN

# without errors_aborts, whose second choices and aborted requests the client has no lengths of
PHASES = tuple(phase for phase in MAIN if phase != "errors_aborts")
CAPACITY, CONTEXT_LIMIT = 8192, 2048  # captures README


def client_requests(until: str) -> list[tuple[int, int]]:
    """(prompt, output) tokens of every request up to the end of a phase, as the answers' usage has them."""
    phases = PHASES[: PHASES.index(until) + 1]
    lines = recording("vllm-0.32-client").members["client/client.jsonl"].decode().splitlines()
    requests = [json.loads(line) for line in lines]
    return [(one["usage_prompt"], one["usage_gen"]) for one in requests if one["phase"] in phases]


@pytest.fixture(scope="module")
def found() -> dict[str, TargetReading]:
    """The reading after each phase, the exporter watching from the first page on."""
    run = recording("vllm-0.32")
    pages = [0, *(MAIN[phase][1] for phase in PHASES)]
    steps = [{**vllm_says(run, number), "/metrics": run.pages[number]} for number in pages]
    return dict(zip(PHASES, readings(steps, seconds=61.0)[1:], strict=True))


def tail_of(reading: TargetReading) -> Tail:
    (engine,) = reading.derived.engines
    assert engine.tail is not None
    return engine.tail


@check_rows("phase", PHASES, shared=["found"])
def test_every_request_is_observed(found: dict[str, TargetReading], phase: str) -> None:
    assert tail_of(found[phase]).observed == len(client_requests(phase))


@check_rows("phase", PHASES[1:], shared=["found"])
def test_the_clients_longest_1_percent_hold_what_the_bounds_say(found: dict[str, TargetReading], phase: str) -> None:
    requests = sorted(client_requests(phase), reverse=True)
    whole, part = divmod(len(requests), 100)
    held = sum(map(sum, requests[:whole])) + part / 100 * sum(requests[whole])
    truth = held / sum(map(sum, requests))
    share = tail_of(found[phase]).kv_share_ratio
    assert share.lower <= truth <= share.upper
    # as many tokens as 3 to 8 average requests a hundred; the bounds tell it from 1, a load without a tail, where there is one
    assert share.upper < 0.09


@check_rows("phase", PHASES[1:], shared=["found"])
def test_as_many_of_the_clients_p99_fit_as_the_bounds_say(found: dict[str, TargetReading], phase: str) -> None:
    requests = client_requests(phase)
    prompts = sorted(prompt for prompt, _ in requests)
    p99 = prompts[-(len(prompts) // 100) - 1]
    truth = CAPACITY / (p99 + sum(output for _, output in requests) / len(requests))
    tail = tail_of(found[phase])
    assert tail.requests_fit["lower"] <= truth <= tail.requests_fit["upper"]
    # p99 lies in one bucket, whose edges are a factor of 2.5 apart at most
    mean = sum(prompts) / len(prompts)
    assert tail.amplification_ratio is not None
    assert p99 / mean / 2.5 <= tail.amplification_ratio <= p99 / mean * 2.5


def test_four_long_prompts_of_the_prefill_phase_fill_the_cache(found: dict[str, TargetReading]) -> None:
    """76 prompts of up to 1,887 tokens: p99 of all 589 is above 1,000, of 8,192 tokens of KV."""
    tail = tail_of(found["prefill_heavy"])
    assert 3 < tail.requests_fit["lower"] < 4.2 < tail.requests_fit["upper"] < 8
    assert max(client_requests("prefill_heavy"))[0] == 1887 < CONTEXT_LIMIT
    assert tail.context_limit_tokens == CONTEXT_LIMIT


def test_once_tells_a_person(found: dict[str, TargetReading]) -> None:
    table = as_table(found["prefill_heavy"])
    assert re.search(r"longest 1 % of requests +[\d.]+ % of all context; [\d.]+ % to [\d.]+ %", table)
    assert re.search(r"long requests that fit +3\.\d+ to 7\.\d+, p99 prompt 1\.\d+k tokens", table)


def test_a_restart_of_the_server_adds_its_new_counts_to_the_old() -> None:
    """The recorded server had finished 81 requests when it stopped under load, comes back with counters at 0 and finishes 99."""
    run = recording("vllm-0.32-restart")
    found = readings([{"/metrics": run.pages[number]} for number in (20, 22, 72, 80, 102)], seconds=61.0)
    assert found[-1].restarts_total == 1
    assert [tail_of(one).observed for one in found] == [75, 81, 81, 81 + 36, 81 + 99]
