"""What the exporter counts against what the load client counted for itself, phase by phase, on real servers; first tokens one by one.

The pages go over real HTTP into the exporter's own ticks, on clocks that stand still between them. The client's truth is
`client/truth.json` of the recording. Phases are cut where the recording's README cuts them: the first snapshot at or before a phase's
start, and the last one before the next.
"""

import json
import math
import re
from collections.abc import Iterator

import pytest

from llm_serving_exporter.commands.once import as_table
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.derived import Tail
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.settings.config import Config
from llm_serving_simulator.replay import Recording
from tests.support.builders.golden_cases import vllm_says
from tests.support.builders.recordings import recording
from tests.support.rows import check_rows
from tests.support.servers.driven_exporter import DrivenExporter
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.replica import readings
from tests.support.servers.stepped import SteppedServer

COUNTED = (
    "prompt_tokens_total", "prefill_tokens_total", "cached_prompt_tokens_total", "decode_tokens_total",
    "preemptions_total",
)  # fmt: skip

# snapshots that bracket each phase: quiet on both sides (captures README, column "snapshots")
MAIN = {
    "light": (13, 41), "saturated": (41, 76), "kv_pressure": (76, 119), "prefill_heavy": (119, 148), "decode_heavy": (148, 178),
    "errors_aborts": (178, 201),
}  # fmt: skip
MFU = {
    "light": (7, 20), "saturated": (20, 36), "kv_pressure": (36, 63), "prefill_heavy": (63, 77), "decode_heavy": (77, 92),
    "errors_aborts": (92, 103),
}  # fmt: skip
SPEC = {"light": (8, 23), "saturated": (23, 45), "decode_heavy": (45, 72)}
# preemptions are the engine's own, no client counts them: from the recording's README
PREEMPTIONS = {("vllm-0.32", "kv_pressure"): 43, ("vllm-0.32-mfu", "kv_pressure"): 17}


def nearest(run: Recording, number: int) -> int:
    """Thinned runs lack some pages; the neighbours of a phase's edge are quiet too."""
    return min(run.pages, key=lambda page: (abs(page - number), page))


class Walk:
    """The exporter reading one recording whose pages are shown one by one, a tick each."""

    def __init__(self, run: Recording, server: SteppedServer, exporter: DrivenExporter) -> None:
        self.run, self.server, self.exporter = run, server, exporter
        self._seen: dict[int, Scraped] = {}

    def at(self, number: int) -> Scraped:
        number = nearest(self.run, number)
        if number not in self._seen:
            self.server.show(number)
            self.exporter.tick()
            self._seen[number] = self.exporter.scrape()
        return self._seen[number]

    def increase(self, first: int, last: int, name: str, **labels: str) -> float:
        before, after = self.at(first), self.at(last)
        return after.total(name, **labels) - before.total(name, **labels)


def walk(name: str) -> Iterator[Walk]:
    run = recording(name)
    with SteppedServer(run) as server:
        server.show(next(iter(run.pages)))
        with DrivenExporter(server.url) as exporter:
            (reading,) = exporter.tick()
            assert reading.page.up, reading.page.problem
            yield Walk(run, server, exporter)


@pytest.fixture(scope="module")
def main_run() -> Iterator[Walk]:
    yield from walk("vllm-0.32")


@pytest.fixture(scope="module")
def mfu_run() -> Iterator[Walk]:
    yield from walk("vllm-0.32-mfu")


@pytest.fixture(scope="module")
def spec_run() -> Iterator[Walk]:
    yield from walk("vllm-0.32-spec")


def truth(name: str) -> dict[str, dict[str, float]]:
    return json.loads(recording(name).members["client/truth.json"])


def check_phase(walk: Walk, name: str, phase: str, first: int, last: int) -> None:
    client = truth(name)[phase]
    counted = {metric: walk.increase(first, last, metric) for metric in COUNTED}
    cached = client.get("cached_tokens_ok", 0)
    assert counted["prompt_tokens_total"] == client["prompt_tokens_ok"]
    assert counted["cached_prompt_tokens_total"] == cached
    assert counted["prefill_tokens_total"] == client["prompt_tokens_ok"] - cached
    assert counted["decode_tokens_total"] == client["gen_tokens_ok_usage"]
    for reason in ("stop", "length"):
        assert walk.increase(first, last, "requests_finished_total", reason=reason) == client.get(f"finish_{reason}", 0)
    assert counted["preemptions_total"] == PREEMPTIONS.get((name, phase), 0)
    assert walk.increase(first, last, "time_to_first_token_seconds_count") == client["requests_with_first_token"]


@check_rows("phase", [phase for phase in MAIN if phase != "errors_aborts"], shared=["main_run"])
def test_each_phase_of_the_main_run_equals_the_clients_counts(main_run: Walk, phase: str) -> None:
    check_phase(main_run, "vllm-0.32", phase, *MAIN[phase])


@check_rows("phase", [phase for phase in MAIN if phase != "errors_aborts"], shared=["main_run"])
def test_inter_token_events_are_decode_tokens_less_first_tokens(main_run: Walk, phase: str) -> None:
    first, last = MAIN[phase]
    tokens = main_run.increase(first, last, "decode_tokens_total")
    firsts = main_run.increase(first, last, "time_to_first_token_seconds_count")
    assert main_run.increase(first, last, "inter_token_latency_seconds_count") == tokens - firsts


def test_the_abort_phase_differs_as_documented(main_run: Walk) -> None:
    first, last = MAIN["errors_aborts"]
    client = truth("vllm-0.32")["errors_aborts"]
    # 2897 of complete answers + 9 second choices of n=2 requests x 60 + 17 aborted after their first token x 100
    assert client["prompt_tokens_ok"] + 9 * 60 + client["prompt_tokens_aborted_after_first_token"] == 5137
    assert main_run.increase(first, last, "prompt_tokens_total") == 5137
    # client: 1252 by usage + 534 received by aborted requests; the server made 13 more before it noticed
    assert main_run.increase(first, last, "decode_tokens_total") == 1799
    assert main_run.increase(first, last, "requests_finished_total", reason="length") == client["finish_length"] == 41
    # a client that disconnects is never counted, not even as abort
    assert client["outcome_abort"] == 23
    assert main_run.increase(first, last, "requests_finished_total", reason="abort") == 0
    assert main_run.at(last).value("http_responses_total", code_class="4xx") == client["http_400"] + client["http_404"]


def test_idle_phases_move_nothing(main_run: Walk) -> None:
    for first, last in ((0, 13), (202, 219)):
        for metric in COUNTED:
            assert main_run.increase(first, last, metric) == 0


@check_rows("phase", [phase for phase in MFU if phase != "errors_aborts"], shared=["mfu_run"])
def test_each_phase_of_the_mfu_run_equals_the_clients_counts(mfu_run: Walk, phase: str) -> None:
    check_phase(mfu_run, "vllm-0.32-mfu", phase, *MFU[phase])


def test_admission_rejections_are_counted_once_and_are_no_errors(mfu_run: Walk) -> None:
    first, last = MFU["saturated"]
    # the client saw 9728 x HTTP 503 and 514 error objects inside HTTP 200 streams
    assert mfu_run.increase(first, last, "requests_rejected_total") == 9728 + 514
    # the server makes the 5xx series with its first 5xx
    assert not mfu_run.at(first).series("http_responses_total", code_class="5xx")
    assert mfu_run.at(last).value("http_responses_total", code_class="5xx") == 9728
    assert mfu_run.increase(first, last, "slo_events_total", slo="errors", outcome="bad") == 0
    assert (
        mfu_run.increase(first, last, "slo_events_total", slo="errors", outcome="good")
        == truth("vllm-0.32-mfu")["saturated"]["outcome_ok"]
    )


@pytest.mark.parametrize("phase", SPEC)
def test_each_phase_under_speculation_equals_the_clients_counts(spec_run: Walk, phase: str) -> None:
    check_phase(spec_run, "vllm-0.32-spec", phase, *SPEC[phase])


def test_speculation_makes_fewer_events_than_tokens(spec_run: Walk) -> None:
    first, last = SPEC["light"][0], SPEC["decode_heavy"][1]
    tokens = spec_run.increase(first, last, "decode_tokens_total")
    firsts = spec_run.increase(first, last, "time_to_first_token_seconds_count")
    events = spec_run.increase(first, last, "inter_token_latency_seconds_count")
    accepted = spec_run.increase(first, last, "speculative_accepted_tokens_total")
    drafted = spec_run.increase(first, last, "speculative_draft_tokens_total")
    assert 0 < accepted < drafted
    # every event carries one token of the model's own and the accepted ones; a request's end may cut accepted tokens off
    assert tokens - firsts - accepted <= events < tokens - firsts


def test_totals_over_two_engines_equal_the_clients() -> None:
    client = truth("vllm-0.32-dp2")
    run = recording("vllm-0.32-dp2")
    for walked in walk("vllm-0.32-dp2"):
        last = walked.at(max(run.pages))
        assert last.total("prompt_tokens_total") == sum(phase["prompt_tokens_ok"] for phase in client.values())
        assert last.total("decode_tokens_total") == sum(phase["gen_tokens_ok_usage"] for phase in client.values())
        assert last.total("requests_finished_total", reason="length") == sum(
            phase["finish_length"] for phase in client.values()
        )
        for engine in ("0", "1"):
            # 192 blocks of 32 tokens an engine; the num_gpu_blocks label says 384, the sum over engines
            assert last.value("kv_cache_capacity_tokens", engine=engine) == 6144


def test_embedding_inputs_equal_what_the_server_was_sent() -> None:
    client = truth("vllm-0.32-embed")
    run = recording("vllm-0.32-embed")
    for walked in walk("vllm-0.32-embed"):
        first, last = min(run.pages), max(run.pages)
        # one manual request of 6 tokens before the recording is on the first page already
        finished = walked.increase(first, last, "requests_finished_total", reason="stop")
        assert finished == sum(phase["inputs_ok"] for phase in client.values())
        assert walked.increase(first, last, "prompt_tokens_total") == sum(
            phase["prompt_tokens_ok"] for phase in client.values()
        )
        page = walked.at(last)
        assert page.total("decode_tokens_total") == 0
        assert page.value("http_responses_total", code_class="4xx") == client["errors"]["outcome_http_error"]


# --- the window's quantiles against first-token times that the client measured request by request ---


VLLM = RUNTIMES["vllm"]

WINDOW_SECONDS = 60.0
EDGES = VLLM.default_edges["ttft"]

# The client's own event loop limits its precision (captures README): the p99 compares in these phases, the median elsewhere.
P99_PHASES = ("saturated", "kv_pressure", "prefill_heavy")


def bucket(seconds: float) -> int:
    return next((place for place, edge in enumerate(EDGES) if seconds <= edge), len(EDGES))


def client_quantile(phase: str, q: float) -> float:
    lines = recording("vllm-0.32-client").members["client/client.jsonl"].decode().splitlines()
    requests = [json.loads(line) for line in lines]
    waits = sorted(r["t_first"] - r["t_send"] for r in requests if r["phase"] == phase and r.get("t_first"))
    return waits[math.ceil(q * len(waits)) - 1]


@pytest.fixture(scope="module")
def window_quantiles() -> dict[str, dict[str, float]]:
    """Each phase's quantiles as the exporter shows them: its window is made to begin at the phase's first page and end at its last."""
    found: dict[str, dict[str, float]] = {}
    with SteppedServer(recording("vllm-0.32")) as server:
        server.show(0)
        with DrivenExporter(server.url, config=Config(targets=(), window_seconds=WINDOW_SECONDS)) as exporter:
            for phase, (first, last) in MAIN.items():
                server.show(first)
                exporter.tick()
                exporter.tick(WINDOW_SECONDS)  # the window now holds the first page only
                server.show(last)
                (reading,) = exporter.tick()
                page = exporter.scrape()
                found[phase] = {q: page.value("window_latency_seconds", latency="ttft", rank=q) for q in ("p50", "p99")}
                found[phase]["events"] = reading.page.derived.engines[0].latency["ttft"].events
    return found


@pytest.mark.parametrize("phase", P99_PHASES)
def test_p99_time_to_first_token_lies_in_the_clients_bucket(
    window_quantiles: dict[str, dict[str, float]], phase: str
) -> None:
    assert bucket(window_quantiles[phase]["p99"]) == bucket(client_quantile(phase, 0.99))


@pytest.mark.parametrize("phase", [phase for phase in MAIN if phase not in P99_PHASES])
def test_median_time_to_first_token_lies_within_a_bucket_of_the_clients(
    window_quantiles: dict[str, dict[str, float]], phase: str
) -> None:
    assert abs(bucket(window_quantiles[phase]["p50"]) - bucket(client_quantile(phase, 0.5))) <= 1


@check_rows("phase", [phase for phase in MAIN if phase != "errors_aborts"], shared=["window_quantiles"])
def test_the_quantiles_stand_on_every_request_of_the_phase(
    window_quantiles: dict[str, dict[str, float]], phase: str
) -> None:
    client = json.loads(recording("vllm-0.32").members["client/truth.json"])
    assert window_quantiles[phase]["events"] == client[phase]["requests_with_first_token"]


# --- the long-context tail against the load client's own list of requests ---


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
    (engine,) = reading.page.derived.engines
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
    assert found[-1].server.restarts_total == 1
    assert [tail_of(one).observed for one in found] == [75, 81, 81, 81 + 36, 81 + 99]
