"""Older vLLM versions, TensorRT-LLM, SGLang and LMDeploy: their own collectors driven by a simulation that counted what it did."""

from collections import Counter

import pytest

from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.render.sentences import why_absent
from tests.support.builders.recordings import page, recording
from tests.support.builders.snapshots import engine_of, snapshot_of
from tests.support.rows import check_rows
from tests.support.servers.replica import readings

RUNS = {name: name.split("-")[2] for name in (
    "vllm-logger-0.8.5-v0", "vllm-logger-0.8.5-v1", "vllm-logger-0.10.2-v1", "vllm-logger-0.17.1-v1",
)}  # fmt: skip
# 0.8.5 V1 counts prefix hits in blocks, and V0 not at all; the simulation fed it tokens (captures README), so that they do not compare
COUNTS_TOKENS = ("0.10.2", "0.17.1")


def last(name: str) -> EngineSnapshot:
    run = recording(name)
    pages = list(run.pages)
    version = f'{{"version":"{RUNS[name]}"}}'
    steps = [{"/metrics": run.pages[number], "/version": version} for number in (pages[0], pages[0], pages[-1])]
    found = readings(steps)
    assert found[-1].server.restarts_total == 0
    (engine,) = found[-1].page.snapshot.engines
    return engine


def vllm_truth(name: str) -> Counter[str]:
    total: Counter[str] = Counter()
    for phase in recording(name).json("client/truth.json")["truth"].values():
        total.update(phase)
    return total


@check_rows("name", RUNS)
def test_the_whole_run_equals_what_the_simulation_did(name: str) -> None:
    engine, expected = last(name), vllm_truth(name)
    assert engine.prompt_tokens_total == expected["prompt_tokens"] > 500_000
    assert engine.decode_tokens_total == expected["gen_tokens"] > 90_000
    assert engine.preemptions_total == expected["retractions"] > 0
    assert sum(engine.requests_finished_total.values()) == expected["finished"]


@pytest.mark.parametrize("name", [name for name, version in RUNS.items() if version in COUNTS_TOKENS])
def test_cached_and_computed_tokens_add_up_to_the_prompts(name: str) -> None:
    engine, expected = last(name), vllm_truth(name)
    assert engine.cached_prompt_tokens_total == expected["cached_tokens"]
    assert engine.prefill_tokens_total == expected["prompt_tokens"] - expected["cached_tokens"]
    assert engine.prefix_cache_hit_tokens_total == expected["cached_tokens"]


# --- tensorRT-LLM's collector, fed by a simulation that counted what it did ---


RUNTIME = RUNTIMES["trtllm"]

TRTLLM_RUN = "trtllm-050f80de"
PATH = "/prometheus/metrics"
# every request of the phases before it has finished at this page, and none of the next was scheduled
DRAINED, BEFORE = 60, ("idle_before", "light", "saturated", "drain_1")
PRESSED = ("kv_pressure", "drain_2")
# those of the aborted requests: at their start all that was scheduled before had finished
ABORTED = ("decode_heavy", "aborts", "idle_after")
LAST = 160


def trtllm_truth(count: str, phases: tuple[str, ...] | None = None) -> int:
    counted = recording(TRTLLM_RUN).json("client/truth.json")["truth"]
    return sum(counted.get(phase, {}).get(count, 0) for phase in phases or counted)


def trtllm_at(number: int) -> tuple[Snapshot, EngineSnapshot]:
    snapshot = snapshot_of(page(TRTLLM_RUN, number).decode(), runtime=RUNTIME)
    (engine,) = snapshot.engines
    return snapshot, engine


def test_where_all_requests_have_finished_every_token_counter_is_exact() -> None:
    _, engine = trtllm_at(DRAINED)
    assert (engine.model_name, engine.engine) == ("tiny-llama", "0")
    assert engine.prompt_tokens_total == trtllm_truth("prompt_tokens", BEFORE) > 0
    assert engine.cached_prompt_tokens_total == trtllm_truth("cached_tokens", BEFORE) > 0
    assert engine.decode_tokens_total == trtllm_truth("gen_tokens", BEFORE) > 0
    assert engine.prefill_tokens_total == trtllm_truth("prompt_tokens", BEFORE) - trtllm_truth("cached_tokens", BEFORE)
    assert sum(engine.requests_finished_total.values()) == trtllm_truth("finished", BEFORE)


def test_tokens_are_booked_when_a_request_finishes_and_said_to_be() -> None:
    # nothing finished between these pages, although several thousand tokens were generated
    _, earlier = trtllm_at(DRAINED)
    snapshot, later = trtllm_at(66)
    assert later.decode_tokens_total == earlier.decode_tokens_total
    assert later.prompt_tokens_total == earlier.prompt_tokens_total
    assert {snapshot.quality[name] for name in ("decode_tokens_total", "prompt_tokens_total")} == {Quality.LAGGING}
    # computed context tokens come from the iterations, here while requests run
    assert later.prefill_tokens_total > earlier.prefill_tokens_total


def test_at_the_end_only_aborted_requests_and_recomputed_prompts_differ() -> None:
    _, engine = trtllm_at(LAST)
    finished = engine.requests_finished_total
    assert finished.keys() == {"stop", "length"}
    assert sum(finished.values()) == trtllm_truth("finished")
    assert trtllm_truth("arrived") - trtllm_truth("finished") == trtllm_truth("aborted") > 0
    # tokens of the aborted requests are booked nowhere. How many they had truth.json does not say: no more than was counted in the phases
    # in which they ran
    until_then = tuple(
        phase for phase in recording(TRTLLM_RUN).json("client/truth.json")["truth"] if phase not in ABORTED
    )
    assert trtllm_truth("scheduled", until_then) == trtllm_truth("finished", until_then)
    for field, counted in (
        ("prompt_tokens_total", "prompt_tokens"),
        ("cached_prompt_tokens_total", "cached_tokens"),
        ("decode_tokens_total", "gen_tokens"),
    ):
        lost = trtllm_truth(counted) - getattr(engine, field)
        assert 0 < lost <= trtllm_truth(counted, ABORTED), field
    # computed: aborted ones too, and what retracted requests had computed again. That is not in truth.json either: they were fewer than the
    # requests of the phases in which it happened, which had so many tokens of prompt and answer
    again = (engine.prefill_tokens_total or 0.0) - (trtllm_truth("prompt_tokens") - trtllm_truth("cached_tokens"))
    assert 0 < trtllm_truth("retractions") == trtllm_truth("retractions", PRESSED) < trtllm_truth("scheduled", PRESSED)
    assert trtllm_truth("cached_tokens", PRESSED) == 0
    assert (
        trtllm_truth("retractions")
        <= again
        <= trtllm_truth("prompt_tokens", PRESSED) + trtllm_truth("gen_tokens", PRESSED)
    )
    # those answered with HTTP 400 are the clients' errors
    errors = [
        line for line in page(TRTLLM_RUN, LAST).decode().splitlines() if line.startswith("trtllm_request_error_total{")
    ]
    assert ['http_code="400"' in line for line in errors] == [True]
    assert engine.http_responses_total == {"4xx": float(errors[0].split()[-1])}


def test_gauges_that_froze_with_the_last_request_are_not_shown_as_load() -> None:
    run = recording(TRTLLM_RUN)
    # pages 148 to 160 are the same: the last request is gone, and the page says that it runs
    assert run.pages[148] == run.pages[LAST]
    at_work, frozen = {PATH: run.pages[138]}, {PATH: run.pages[LAST]}
    found = readings([at_work, {PATH: run.pages[148]}, frozen, frozen, frozen, frozen], runtime="trtllm")
    snapshots = [reading.page.snapshot for reading in found]
    running = [snapshot.engines[0].requests_running for snapshot in snapshots if snapshot is not None]
    # the first page: nobody knows since when; then 30 s after the last count moved
    assert running == [None, 1, 1, 1, 1, None]
    last = snapshots[-1]
    assert last is not None
    for field in ("requests_running", "requests_waiting", "kv_cache_usage_ratio"):
        assert last.absent[field] is Absence.STALE
    assert last.engines[0].kv_cache_capacity_tokens == 1280 * 32
    assert last.engines[0].batch_limit_requests == 32


# --- SGLang's own collector driven by a simulation ---
# Phases that lie between two quiet pages are compared together: the recording has quiet gaps after the two drains only.


SGLANG = RUNTIMES["sglang"]

# the page before and the last page of each stretch (recording's README), and the phases in it
SGLANG_STRETCHES = {
    "saturated": (0, 58, ("light", "saturated", "drain_1")),
    "kv_pressure": (58, 104, ("kv_pressure", "drain_2")),
    "rest": (104, 160, ("prefill_heavy", "decode_heavy", "aborts", "idle_after")),
}


def at(number: int) -> EngineSnapshot:
    return engine_of(page("sglang-0.5.23", number).decode(), "0.5.23", SGLANG)


def sglang_truth(phases: tuple[str, ...], what: str) -> float:
    counted = recording("sglang-0.5.23").json("client/truth.json")["truth"]
    return float(sum(counted[phase].get(what, 0) for phase in phases))


def gained(stretch: str, field: str) -> float:
    first, last, _ = SGLANG_STRETCHES[stretch]
    return (getattr(at(last), field) or 0.0) - (getattr(at(first), field) or 0.0)


@pytest.mark.parametrize("stretch", SGLANG_STRETCHES)
def test_hits_and_preemptions_are_exact(stretch: str) -> None:
    phases = SGLANG_STRETCHES[stretch][2]
    assert gained(stretch, "prefix_cache_hit_tokens_total") == sglang_truth(phases, "cached_tokens")
    assert gained(stretch, "preemptions_total") == sglang_truth(phases, "retractions")


@pytest.mark.parametrize("stretch", ["saturated", "rest"])
def test_computed_prefill_is_exact_without_retractions(stretch: str) -> None:
    phases = SGLANG_STRETCHES[stretch][2]
    computed = sglang_truth(phases, "prompt_tokens") - sglang_truth(phases, "cached_tokens")
    assert gained(stretch, "prefill_tokens_total") == computed
    assert gained(stretch, "prefix_cache_query_tokens_total") == computed + sglang_truth(phases, "cached_tokens")


def test_prefill_after_retractions_is_computed_again() -> None:
    """truth.json does not say how many tokens that is, so it has bounds: nothing was cached in these phases, so that each retracted request
    computed its whole prompt again, and at most also what it had generated; SGLang counts both."""
    phases = SGLANG_STRETCHES["kv_pressure"][2]
    assert sglang_truth(phases, "cached_tokens") == 0
    assert total(104, "sglang:num_retracted_requests_total") == sglang_truth(phases, "retractions") == 10
    prompts, answers = (total(104, f"sglang:num_retracted_{which}_tokens_total") for which in ("input", "output"))
    again = gained("kv_pressure", "prefill_tokens_total") - sglang_truth(phases, "prompt_tokens")
    assert 0 < prompts <= again <= prompts + answers


@pytest.mark.parametrize("stretch", SGLANG_STRETCHES)
def test_live_decode_is_the_simulations_tokens_and_its_first_tokens_once_more(stretch: str) -> None:
    # The simulation books first tokens under mode="decode" (its ITL count + its TTFT count = its decode tokens); SGLang's scheduler
    # books batch_size a decode pass, so that first tokens are missing there and are added from the TTFT count.
    first, last, phases = SGLANG_STRETCHES[stretch]
    begun = first_tokens(last) - first_tokens(first)
    assert begun == sglang_truth(phases, "scheduled")
    assert gained(stretch, "decode_tokens_live") == sglang_truth(phases, "gen_tokens") + begun


@pytest.mark.parametrize("stretch", ["saturated", "kv_pressure"])
def test_decode_is_exact_where_nothing_was_aborted(stretch: str) -> None:
    assert gained(stretch, "decode_tokens_total") == sglang_truth(SGLANG_STRETCHES[stretch][2], "gen_tokens")


def test_decode_lacks_the_tokens_of_aborted_requests() -> None:
    phases = SGLANG_STRETCHES["rest"][2]
    lost = sglang_truth(phases, "gen_tokens") - gained("rest", "decode_tokens_total")
    assert 0 < lost <= sglang_truth(("aborts",), "gen_tokens")


def test_tokens_between_outputs_and_first_tokens_are_all_tokens() -> None:
    latency = at(160).inter_token_latency_seconds
    phases = tuple(phase for _, _, names in SGLANG_STRETCHES.values() for phase in names)
    assert latency.count + first_tokens(160) == sglang_truth(phases, "gen_tokens")


def first_tokens(number: int) -> float:
    """Of all requests, streamed or not, as the page has them."""
    return total(number, "sglang:time_to_first_token_seconds_count")


def total(number: int, sample: str) -> float:
    """All series of a sample on a page, as its lines say it."""
    lines = page("sglang-0.5.23", number).decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(f"{sample}{{"))


def test_what_is_booked_at_the_end_lacks_aborted_requests() -> None:
    last = at(160)
    phases = tuple(phase for _, _, names in SGLANG_STRETCHES.values() for phase in names)
    assert last.requests_finished_total == {
        "success": sglang_truth(phases, "finished"),
        "abort": sglang_truth(phases, "aborted"),
    }
    # which prompts the aborted requests had, truth.json does not say: no more than was scheduled since decode_heavy began. Of the requests
    # before, all finished: prompts above 3000 tokens are prefill_heavy's, and as many finished as were scheduled
    lengths = last.request_prompt_tokens
    long = lengths.count - lengths.cumulative[lengths.edges.index(3000)]
    assert long == sglang_truth(("prefill_heavy",), "scheduled")
    for field, counted in (("prompt_tokens_total", "prompt_tokens"), ("cached_prompt_tokens_total", "cached_tokens")):
        lost = sglang_truth(phases, counted) - getattr(last, field)
        assert 0 < lost <= sglang_truth(("decode_heavy", "aborts", "idle_after"), counted), field
    assert lengths.sum == last.prompt_tokens_total


def test_steps_are_the_passes_of_all_modes() -> None:
    modes = {
        line.partition('mode="')[2].partition('"')[0]: float(line.split()[-1])
        for line in page("sglang-0.5.23", 160).decode().splitlines()
        if line.startswith("sglang:cuda_graph_passes_total{")
    }
    assert modes.keys() == {"decode_cuda_graph", "prefill_none"}
    assert at(160).engine_steps_total == sum(modes.values())


# --- what the exporter reads from LMDeploy's own collector against what the simulation that drove it ---
# The pages are those at which nothing was under way, so that each stretch between two of them has a truth of its own.


RUN = recording("lmdeploy-0.18.0")
# the phases that lie between two quiet pages (captures README; an aborted request may outlive its phase)
STRETCHES = {
    (0, 60): ("light", "saturated", "drain_1"),
    (60, 104): ("kv_pressure", "drain_2"),
    (104, 116): ("prefill_heavy",),
    (116, 160): ("decode_heavy", "aborts", "idle_after"),
}
QUIET = (0, 60, 104, 116, 160)


def truth(*phases: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for phase in phases or RUN.json("client/truth.json")["truth"]:
        counts.update(RUN.json("client/truth.json")["truth"][phase])
    return counts


def read(*pages: int) -> list[TargetReading]:
    return readings([{"/metrics": RUN.pages[number]} for number in pages])


@pytest.fixture(scope="module")
def quiet() -> dict[int, EngineSnapshot]:
    found = {}
    for number, one in zip(QUIET, read(*QUIET), strict=True):
        assert one.page.snapshot is not None, one.page.problem
        (found[number],) = one.page.snapshot.engines
    return found


@check_rows(("first", "last"), STRETCHES, shared=["quiet"])
def test_each_stretch_between_quiet_pages_is_exact(quiet: dict[int, EngineSnapshot], first: int, last: int) -> None:
    before, after = quiet[first], quiet[last]
    expected = truth(*STRETCHES[first, last])

    def increase(field: str) -> float:
        return getattr(after, field) - getattr(before, field)

    assert increase("prompt_tokens_total") == expected["prompt_tokens"]
    assert increase("decode_tokens_total") == expected["gen_tokens"]
    # hits of aborted requests: the simulation counts them at the first token, LMDeploy never. How many those were truth.json does not say;
    # they ran within the stretch, whose first page is a quiet one
    lost = expected["cached_tokens"] - increase("cached_prompt_tokens_total")
    assert 0 < lost <= expected["cached_tokens"] if expected["aborted"] else lost == 0
    assert increase("prefill_tokens_total") == expected["prompt_tokens"] - expected["cached_tokens"] + lost
    finished = {
        reason: value - before.requests_finished_total[reason]
        for reason, value in after.requests_finished_total.items()
    }
    assert finished == {"success": expected["finished"], "failed": expected["aborted"]}


def test_the_whole_run(quiet: dict[int, EngineSnapshot]) -> None:
    expected, last = truth(), quiet[160]
    assert (last.prompt_tokens_total, last.decode_tokens_total) == (expected["prompt_tokens"], expected["gen_tokens"])
    assert sum(last.requests_finished_total.values()) == expected["arrived"]
    assert last.time_to_first_token_seconds.count == expected["scheduled"]  # aborted ones had a first token
    for field in ("e2e_request_latency_seconds", "request_queue_time_seconds", "request_prompt_tokens"):
        assert getattr(last, field).count == expected["finished"]
    # an event is an output with tokens after the first; LMDeploy counts outputs once more in iteration_tokens_total, where each request has
    # a first one, and one that only says that it has finished
    outputs = value(160, "lmdeploy:iteration_tokens_total_count")
    assert last.inter_token_latency_seconds.count == outputs - expected["scheduled"] - expected["finished"]


def value(number: int, sample: str) -> float:
    """A sample with one series, as the page's line says it."""
    (line,) = (line for line in RUN.pages[number].decode().splitlines() if line.startswith(f"{sample}{{"))
    return float(line.split()[-1])


def test_prefix_hits_and_looked_up_tokens_are_of_the_same_requests(quiet: dict[int, EngineSnapshot]) -> None:
    last, aborting = quiet[160], truth(*STRETCHES[116, 160])
    looked_up, found = last.prefix_cache_query_tokens_total, last.prefix_cache_hit_tokens_total
    assert looked_up == last.request_prompt_tokens.sum
    # of finished requests both: short by what the aborted ones had, which is in the last stretch
    assert 0 < truth()["prompt_tokens"] - looked_up <= aborting["prompt_tokens"]
    assert 0 < truth()["cached_tokens"] - found <= aborting["cached_tokens"]


def test_in_the_middle_of_the_load_prefill_never_falls_and_ends_at_most_by_what_is_under_way_too_high() -> None:
    """Page 58 has every prompt of page 60, and hits that are not booked yet: the difference falls by them."""
    pages = (0, 34, 46, 48, 58, 60)
    found = [one.page.snapshot.engines[0].prefill_tokens_total for one in read(*pages) if one.page.snapshot is not None]
    assert found == sorted(found)
    expected = truth("light", "saturated", "drain_1")
    assert value(58, "lmdeploy:prompt_tokens_total") == expected["prompt_tokens"]
    under_way = expected["cached_tokens"] - value(58, "lmdeploy:cached_tokens_total")
    assert under_way > 0
    assert found[-1] == expected["prompt_tokens"] - expected["cached_tokens"] + under_way


def test_errors_that_cannot_be_told_apart_make_no_service_level() -> None:
    """Some of the requests did not finish well; how many of them were errors is not on the page: 100 % good would be a lie."""
    found = readings([{"/metrics": page("lmdeploy-0.18.0", 160)}] * 2)[-1]
    assert found.page.derived.signals["slo_errors"] is Absence.NOT_EXPORTED
    assert "errors" not in found.page.derived.engines[0].slo
    assert "one number" in why_absent("slo_errors", Absence.NOT_EXPORTED, found.server.missing)
