"""Steps and what stands for them, the batch's limit as it is observed, and a running gauge that lies."""

import random
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import pytest

from llm_serving_exporter.derive.batch import Plateaus, add_observed_limits, follow_plateaus
from llm_serving_exporter.derive.standstill import CERTAIN_SHARE, SURE, weigh_zero
from llm_serving_exporter.derive.steps import (
    Steps,
    average_running,
    busy_ratio,
    count_prompts,
    count_sequence_steps,
    count_steps,
    drafts_per_sequence_step,
    tokens_per_sequence_step,
)
from llm_serving_exporter.model.derived import Cause
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, LimitSource, Quality, Snapshot
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.golden_cases import vllm_says
from tests.support.builders.recordings import recording
from tests.support.builders.windows import MINUTE, all_of, engine, window
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers.replica import Routes, readings

# --- Steps and what stands for them, worked out by hand


def test_steps_as_the_engine_counts_them() -> None:
    assert count_steps(window(decoded=600, steps=60)) == Steps(60, counted=True)
    assert count_sequence_steps(window(decoded=600, steps=60)) == 600


def test_without_a_count_busy_time_over_the_mean_latency() -> None:
    """60 s at 20 ms a token; half of the readings have nothing running."""
    done = window(decoded=6000, steps=None, seconds_per_token=0.02)
    found = count_steps(done)
    assert isinstance(found, Steps)
    assert not found.counted
    assert found.count == pytest.approx(60 / 0.02)
    idle = engine(decoded=6000, steps=None, requests_running=0.0)
    half = count_steps(EngineWindow((done.first, idle), 60.0))
    assert isinstance(half, Steps)
    assert half.count == pytest.approx(30 / 0.02)


def test_no_more_steps_than_tokens() -> None:
    """At 1 ms a token a minute has room for 60,000 steps; 50 tokens are 50 at most."""
    found = count_steps(window(decoded=50, steps=None, seconds_per_token=0.001))
    assert found == Steps(50, counted=False)


def test_without_a_count_and_without_decode_one_step_a_prompt() -> None:
    assert count_steps(window(steps=None, prompts=12, prefill=12_000)) == Steps(12, counted=False)
    assert count_steps(window(steps=None)) is Absence.IDLE


def test_what_is_missing_is_said() -> None:
    bare = window(steps=None, inter_token_latency_seconds=None, decode_tokens_total=None)
    assert count_steps(bare) is count_sequence_steps(bare) is Absence.INPUT_MISSING
    first_page = EngineWindow((engine(decoded=10, steps=10),), 0.0)
    assert count_steps(first_page) is count_sequence_steps(first_page) is Absence.WARMING_UP
    uncounted = EngineWindow((engine(decoded=10, steps=None),), 0.0)
    assert count_steps(uncounted) is Absence.WARMING_UP


def test_prompts_by_first_tokens_else_by_finished_requests() -> None:
    assert count_prompts(window(prompts=7, finished=5, prompt=10)) == 7
    assert count_prompts(window(time_to_first_token_seconds=None, finished=5, prompt=10)) == 5
    assert count_prompts(window()) == 0.0


def test_running_requests_while_there_are_any() -> None:
    readings = tuple(engine(requests_running=value) for value in (0.0, 4.0, 8.0))
    assert average_running(EngineWindow(readings, 10.0)) == 6.0
    assert busy_ratio(EngineWindow(readings, 10.0)) == pytest.approx(2 / 3)
    unsaid = EngineWindow((engine(requests_running=None),) * 2, 5.0)
    assert average_running(unsaid) is busy_ratio(unsaid) is None


def test_speculation_yields_more_than_one_token_a_step() -> None:
    """E.3.1: 100 first tokens; 1,000 sequence-steps made 2,500 tokens, verifying 4 drafts each."""
    told = {"decoded": 1000, "steps": 100, "prompts": 100, "decode_tokens_total": 2600.0}
    done = window(**told, speculative_draft_tokens_total=4000.0)
    assert tokens_per_sequence_step(done) == 2.5
    assert drafts_per_sequence_step(done) == 4.0
    plain = window(decoded=1000, steps=100, prompts=100)
    assert tokens_per_sequence_step(plain) == 1.0
    assert drafts_per_sequence_step(plain) == 0.0


def test_nothing_decoded_has_no_tokens_per_step() -> None:
    assert tokens_per_sequence_step(window(prompts=5, prefill=500, steps=5)) is None
    assert drafts_per_sequence_step(window(speculative_draft_tokens_total=4.0)) == 0.0


def test_a_histogram_that_was_just_born_is_no_reading() -> None:
    """With one end missing nothing is said."""
    young = EngineWindow((engine(inter_token_latency_seconds=None), engine(decoded=5, steps=5)), 5.0)
    assert count_sequence_steps(young) is Absence.WARMING_UP
    assert all_of(0.5, 3).mean() == 0.5


def test_requests_shorter_than_the_interval_are_not_missed() -> None:
    """30 steps a second of 5 ms each are work, though no reading caught a running request (the recorded light load reads like this)."""
    quiet = {"requests_running": 0.0}
    light = EngineWindow(
        (replace(engine(decoded=0.0, steps=0.0, seconds_per_token=0.005), **quiet),
         replace(engine(decoded=600.0, steps=600.0, seconds_per_token=0.005), **quiet)), 20.0,
    )  # fmt: skip
    assert busy_ratio(light) == pytest.approx(0.15)
    assert busy_ratio(replace(light, elapsed_seconds=1.0)) == 1.0
    assert busy_ratio(EngineWindow(light.readings[:1], 0.0)) == 0.0


def test_without_inter_token_events_tokens_less_first_ones_are_the_sequence_steps() -> None:
    """TGI, TensorRT-LLM and llama.cpp count tokens but no inter-token events."""
    tokens = window(decoded=600, steps=100, prompts=12, inter_token_latency_seconds=None)
    assert count_sequence_steps(tokens) == 600


def test_under_speculation_tokens_say_nothing_about_steps() -> None:
    drafted = window(
        decoded=600, steps=100, prompts=12, inter_token_latency_seconds=None, speculative_draft_tokens_total=300.0
    )
    assert count_sequence_steps(drafted) is Absence.INPUT_MISSING
    counted = replace(drafted.last, speculative_accepted_tokens_total=150.0)
    known = EngineWindow(
        (replace(drafted.first, speculative_accepted_tokens_total=0.0), counted), drafted.elapsed_seconds
    )
    assert count_sequence_steps(known) == 450


def test_events_that_are_one_a_token_are_divided_by_what_a_step_yields() -> None:
    """SGLang observes the gap of an output as often as it has tokens (facts runtimes-vllm-sglang 2.4)."""
    assert count_sequence_steps(window(decoded=600, steps=100, accepted_tokens_per_step=2.5)) == 240
    # without speculation the gauge stands at 0
    assert count_sequence_steps(window(decoded=600, steps=100, accepted_tokens_per_step=0.0)) == 600


def test_an_encoder_makes_a_step_a_prompt_where_nothing_counts_them() -> None:
    """Text Embeddings Inference has no step count and no inter-token latency."""
    bare = window(steps=None, prompts=12, prefill=12_000, inter_token_latency_seconds=None)
    assert count_steps(bare) is Absence.INPUT_MISSING
    assert count_steps(bare, encoder=True) == Steps(12, counted=False)


# 200 prompts; of 19,800 tokens after the first only a tenth was streamed and observed as inter-token events
PARTLY_STREAMED = {
    "decoded": 1980,
    "prompts": 20,
    "decode_tokens_total": 20_000.0,
    "inter_token_latency_seconds": all_of(0.02, 1980),
}


def counted_apart(**more: float | None) -> EngineWindow:
    done = window(**{"steps": 400.0, **PARTLY_STREAMED, **more})
    return EngineWindow(
        (replace(done.first, decode_pass_tokens=0.0), replace(done.last, decode_pass_tokens=19_800.0)), MINUTE
    )


def test_tokens_of_decode_passes_count_where_not_every_answer_is_streamed() -> None:
    """SGLang from 0.5.7 on, mistral.rs: inter-token events are those of streams (facts runtimes-vllm-sglang 2.4, runtimes-others 15)."""
    done = counted_apart()
    assert count_sequence_steps(done) == 19_800
    assert count_prompts(done) == 200
    assert tokens_per_sequence_step(done) == 1.0


def test_under_speculation_they_are_divided_by_what_a_step_yields() -> None:
    done = counted_apart(accepted_tokens_per_step=3.0)
    assert count_sequence_steps(done) == 6600
    assert tokens_per_sequence_step(done) == 3.0


def test_a_mean_of_few_events_does_not_bound_the_steps_of_all_answers() -> None:
    # a minute of steps of 20 ms
    assert count_steps(counted_apart(steps=None)) == Steps(3000, counted=False)


def test_without_events_too_tokens_are_divided_by_what_a_step_yields() -> None:
    """SGLang's data-parallel ranks: inter-token events have no rank (facts runtimes-vllm-sglang 2.1)."""
    tokens = window(decoded=600, steps=100, inter_token_latency_seconds=None, accepted_tokens_per_step=3.0)
    assert count_sequence_steps(tokens) == 200


# --- A level of running requests is the batch's limit only where nothing else can hold it


# of a tick of 5 s: 100 steps of 32 sequences, as many prompts as end
TICK = {"steps": 100.0, "decoded": 3200.0, "prompts": 16.0, "prefill": 16_000.0}
FULL = {
    "requests_running": 32.0, "requests_waiting": 9.0, "kv_cache_usage_ratio": 0.3, "requests_deferred": 0.0, "preemptions_total": 0.0,
    "kv_cache_capacity_tokens": 400_000.0, "context_limit_tokens": 65_536.0,
}  # fmt: skip


def at(tick: int, name: str = "0", **changed: Any) -> EngineSnapshot:
    """The reading after so many ticks. `changed`: gauges, or what a tick has done."""
    done = {key: tick * changed.pop(key, value) for key, value in TICK.items()}
    return engine(**done, **{**FULL, **changed}, engine=name)


def follow(*readings: EngineSnapshot | tuple[EngineSnapshot, ...], seconds: float = 5.0, **page: Any) -> Plateaus:
    known: Plateaus = {}
    for number, one in enumerate(readings):
        engines = one if isinstance(one, tuple) else (one,)
        snapshot = Snapshot(engines, "vllm", 0.0, 100.0 + seconds * number, **page)
        known = follow_plateaus(known, snapshot, seconds)
    return known


def limit(*readings: EngineSnapshot, **how: Any) -> float | None:
    return follow(*readings, **how)["m", "0"].limit


def test_five_readings_over_twenty_seconds() -> None:
    assert limit(*(at(tick) for tick in range(5))) == 32.0
    assert limit(*(at(tick) for tick in range(4))) is None
    assert limit(*(at(tick) for tick in range(5)), seconds=4.0) is None
    assert limit(*(at(tick) for tick in range(6)), seconds=4.0) == 32.0
    assert limit(*(at(tick) for tick in range(3)), seconds=10.0) is None


@check_rows(
    "changed",
    [
        {"requests_waiting": 0.0},
        {"kv_cache_usage_ratio": 0.9},
        {"kv_cache_usage_ratio": None},
        {"requests_deferred": 1.0},
        # vLLM before 0.20 does not say why requests wait
        {"requests_deferred": None},
        {"requests_running": 0.0},
        # a tenth and more of them does not decode
        {"decoded": 2870.0},
        {"steps": 0.0},
        # the steps' own tokens bind: 2,048 is the least that vLLM sets
        {"prefill": 170_000.0},
        {"engine_steps_total": None},
        {"preemptions_total": None},
        # nobody was let in, and the longest request would not fit
        {"prompts": 0.0, "kv_cache_usage_ratio": 0.85},
    ],
    ids=str,
)
def test_what_else_holds_a_level(changed: Mapping[str, Any]) -> None:
    assert limit(*(at(tick, **dict(changed)) for tick in range(12))) is None


@check_rows(
    "changed",
    [
        {"kv_cache_usage_ratio": 0.89},
        {"decoded": 2880.0},
        {"prompts": 0.0},
        {"prompts": 0.0, "kv_cache_usage_ratio": 0.83},
    ],
    ids=str,
)
def test_what_does_not(changed: Mapping[str, Any]) -> None:
    assert limit(*(at(tick, **dict(changed)) for tick in range(5))) == 32.0


def test_more_tokens_of_a_step_are_no_bound_where_a_step_had_more() -> None:
    """Long prompts in a queue: 2,800 of the 8,192 tokens that steps before the queue had."""
    many = {"prefill": 100 * 2768.0}
    before = replace(at(0), prefill_tokens_total=-100 * 8160.0, requests_waiting=0.0, engine_steps_total=-100.0)
    assert limit(*(at(tick, **many) for tick in range(5))) is None
    assert limit(before, *(at(tick, **many) for tick in range(5))) == 32.0


def test_a_preemption_begins_it_anew() -> None:
    readings = [at(tick, preemptions_total=float(tick >= 3)) for tick in range(8)]
    assert limit(*readings[:7]) is None
    assert limit(*readings) == 32.0


def test_readings_between_two_steps_show_fewer() -> None:
    """225 of 256 in one reading of five, on an H100; with more of them the level is no level."""
    running = [32.0, 28.0, 32.0, 31.0, 32.0]
    assert limit(*(at(tick, requests_running=value) for tick, value in enumerate(running))) == 32.0
    running = [32.0, 28.0, 31.0, 31.0, 32.0, 30.0, 31.0]
    assert limit(*(at(tick, requests_running=value) for tick, value in enumerate(running))) is None


def test_a_gap_begins_it_anew_and_keeps_what_is_known() -> None:
    known = follow(*(at(tick) for tick in range(4)))
    late = Snapshot((at(5),), "vllm", 0.0, 100.0 + 15.0 + 60.0)
    assert follow_plateaus(known, late, 5.0)["m", "0"].limit is None
    known = follow(*(at(tick) for tick in range(5)))
    assert follow_plateaus(known, replace(late, monotonic_seconds=200.0), 5.0)["m", "0"].limit == 32.0


def test_each_rank_for_itself() -> None:
    pages = [(at(tick), at(tick, "1", requests_waiting=0.0), at(tick, "2", requests_running=31.0)) for tick in range(5)]
    known = follow(*pages)
    assert {engine: one.limit for (_, engine), one in known.items()} == {"0": 32.0, "1": None, "2": 31.0}
    shown = add_observed_limits(
        Snapshot(pages[-1], "vllm", 0.0, 0.0, absent={"batch_limit_requests": Absence.NOT_EXPORTED}), known
    )
    assert [(one.batch_limit_requests, one.batch_limit_source) for one in shown.engines] == [
        (32.0, LimitSource.OBSERVED), (None, None), (31.0, LimitSource.OBSERVED),
    ]  # fmt: skip
    assert shown.absent == {}


def test_a_gauge_that_is_not_of_the_moment_and_a_limit_that_is_said_leave_nothing_to_observe() -> None:
    readings = [at(tick) for tick in range(5)]
    assert follow(*readings, quality={"requests_running": Quality.LAGGING}) == {}
    assert follow(*(replace(one, batch_limit_requests=64.0) for one in readings)) == {}


# --- A running gauge that shows 0 while the engine decodes: found on recorded pages where it is made to lie, never where it is right


RUN = recording("vllm-0.32")
LIVE = frozenset({"inter_token_latency_seconds", "engine_steps_total"})
# of the recording's README: light, saturated, KV pressure, decode-heavy
LIGHT, SATURATED, PRESSED, DECODING = range(14, 42), range(42, 77), range(77, 120), range(149, 179)


def steps(numbers: range, running: str | None = None) -> list[Routes]:
    """Recorded pages; with `running` in the place of what their gauge of running requests says."""
    found: list[Routes] = []
    for number in numbers:
        if number not in RUN.pages:
            continue
        text = RUN.pages[number].decode()
        if running is not None:
            text, times = re.subn(r"(?m)^(vllm:num_requests_running\{[^}]*\}) .*$", rf"\1 {running}", text)
            assert times == 1
        found.append({**vllm_says(RUN, number), "/metrics": text})
    return found


def read(numbers: range, running: str | None = None) -> list[TargetReading]:
    return readings(steps(numbers, running), seconds=1.0, batch_limit_requests=16)


def is_suspect(reading: TargetReading) -> bool:
    suspect = reading.page.derived.quality.get("requests_running") is Quality.SUSPECT
    assert suspect is (reading.page.derived.causes.get("requests_running") is Cause.COUNTERS)
    return suspect


@check_rows("numbers", [LIGHT, SATURATED, PRESSED, DECODING, range(120, 149), range(179, 220)])
def test_a_gauge_that_is_right_is_never_suspect(numbers: range) -> None:
    assert not any(map(is_suspect, read(numbers)))


def test_zeros_between_short_requests_are_no_contradiction() -> None:
    """One request now and then: a gauge that was 0 at each of these readings would be unlucky, not wrong."""
    assert not any(map(is_suspect, read(LIGHT, "0")))


@pytest.mark.parametrize("numbers", [SATURATED, DECODING])
def test_a_gauge_that_shows_nothing_through_a_load_is_suspect(numbers: range) -> None:
    found = read(numbers, "0")
    verdicts = list(map(is_suspect, found))
    assert verdicts[-1]
    # not at once: ten zeros may be chance
    assert not any(verdicts[:10])
    # and not by turns
    assert verdicts == sorted(verdicts)
    last = found[-1].page.derived
    # what rests on it says so
    assert last.quality["batch_utilization_ratio"] is Quality.SUSPECT
    assert last.signals["context_tokens_mean"] is Absence.INCONSISTENT
    # what does not is as good as before
    for signal in ("decode_tokens_total", "phase_tokens_per_second_decode", "batch_size_mean"):
        assert last.quality.get(signal) is not Quality.SUSPECT


def test_a_gauge_that_shows_a_request_again_is_believed_again() -> None:
    *lied, said = readings(steps(range(149, 173), "0") + steps(range(173, 174)), seconds=1.0)
    assert is_suspect(lied[-1])
    assert said.page.snapshot.engines[0].requests_running
    assert not is_suspect(said)


def tick(
    sequences: float,
    busy: float,
    *,
    seconds: float = 5.0,
    latency: float = 0.02,
    booked: tuple[float, float] = (0.0, 0.0),
    **more: float,
) -> EngineWindow:
    """Nothing at its start; so many sequences decoding in the mean, for that share of its time.

    `booked`: how many requests ended in it, and how many tokens all of them had.
    """
    events = sequences * seconds / latency
    last = EngineSnapshot(
        "m",
        "0",
        requests_running=0.0,
        engine_steps_total=busy * seconds / latency,
        inter_token_latency_seconds=Histogram((latency,), (events,), events, events * latency),
        request_generation_tokens=Histogram((), (), *booked),
        **more,
    )
    none = Histogram((latency,), (0.0,), 0.0, 0.0)
    first = EngineSnapshot(
        "m",
        "0",
        requests_running=0.0,
        engine_steps_total=0.0,
        inter_token_latency_seconds=none,
        request_generation_tokens=Histogram((), (), 0.0, 0.0),
        preemptions_total=0.0,
    )
    return EngineWindow((first, last), seconds)


@check_rows(
    ("sequences", "busy", "more", "live", "speaks"),
    [
        (1.0, 1.0, {}, LIVE, True),
        (12.0, 0.9, {}, LIVE, True),
        (0.5, 0.5, {}, LIVE, False),  # one request, half of the time
        (4.0, 0.25, {}, LIVE, False),  # four together, a quarter of the time
        (12.0, 0.9, {"preemptions_total": 3.0}, LIVE, False),
        (12.0, 0.9, {}, frozenset[str](), False),  # latencies that are booked late
        (12.0, 0.9, {}, LIVE - {"engine_steps_total"}, False),
        # without steps: even the largest batch would take nearly all the time
        (12.0, 0.9, {"batch_limit_requests": 16.0}, LIVE - {"engine_steps_total"}, True),
        (12.0, 0.9, {"batch_limit_requests": 64.0}, LIVE - {"engine_steps_total"}, False),
    ],
)
def test_what_speaks_against_a_zero(
    sequences: float, busy: float, more: dict[str, float], live: frozenset[str], speaks: bool
) -> None:
    assert (weigh_zero(tick(sequences, busy, **more), live) > 0) is speaks


def test_so_many_readings_are_needed_that_chance_cannot_have_made_them() -> None:
    """A tick that is busy throughout is taken to be so for half of its time: 2 to the power of -20 is below one in a million."""
    assert CERTAIN_SHARE == 0.5
    assert 19 < SURE / weigh_zero(tick(4.0, 1.0), LIVE) < 20


def test_what_was_begun_and_finished_between_two_readings_is_no_contradiction() -> None:
    """Four requests of 251 tokens each: 1,000 events of decode, and the tokens of requests that ended say so."""
    assert weigh_zero(tick(4.0, 1.0, booked=(4.0, 1004.0)), LIVE) == 0
    assert weigh_zero(tick(4.0, 1.0, booked=(4.0, 1000.0)), LIVE) > 0
    assert weigh_zero(tick(4.0, 1.0, booked=(0.0, 0.0)), LIVE) > 0


# --- hours of honest gauges ------------------------------------------------------------------------------------------------

ITL_SECONDS = 0.02
INTERVALS = (5.0, 10.0, 15.0)
Load = list[tuple[float, int]]  # when each request begins to decode, and its tokens


def poisson(rng: random.Random, hours: float, rate: float, tokens: float) -> Load:
    found, at = [], 0.0
    while at < hours * 3600:
        at += rng.expovariate(rate)
        found.append((at, max(2, int(rng.expovariate(1 / tokens)))))
    return found


def closed_loop(rng: random.Random, hours: float, clients: int, think: float, tokens: float) -> Load:
    found = []
    for _ in range(clients):
        at = rng.uniform(0, 5)
        while at < hours * 3600:
            count = max(2, int(rng.expovariate(1 / tokens)))
            found.append((at, count))
            at += count * ITL_SECONDS + rng.expovariate(1 / think)
    return sorted(found)


def in_step(rng: random.Random, hours: float, period: float, share: float, together: int) -> Load:
    """A batch at each period, over before the next: readings of the same period meet the pause between them for ever."""
    tokens, offset = int(period * share / ITL_SECONDS), rng.uniform(0, period * (1 - share))
    return [(turn * period + offset, tokens) for turn in range(int(hours * 3600 / period)) for _ in range(together)]


def read_honestly(
    load: Load, first: float, interval: float, jitter: float, rng: random.Random
) -> Iterator[EngineSnapshot]:
    """What an engine shows that decodes each request at the same pace, whatever runs beside it."""
    waiting, running, at = iter(load), [], first
    coming = next(waiting, None)
    ended = tokens = turn = 0
    covered = busy = 0.0
    while coming is not None:
        while coming is not None and coming[0] <= at:
            end = coming[0] + coming[1] * ITL_SECONDS
            busy, covered = busy + max(0.0, end - max(coming[0], covered)), max(covered, end)
            running.append(coming)
            coming = next(waiting, None)
        done = [one for one in running if at >= one[0] + one[1] * ITL_SECONDS]
        running = [one for one in running if at < one[0] + one[1] * ITL_SECONDS]
        ended, tokens = ended + len(done), tokens + sum(count for _, count in done)
        under_way = [int((at - start) / ITL_SECONDS) for start, _ in running]
        decoded = tokens + sum(under_way)
        events = tokens - ended + sum(max(0, count - 1) for count in under_way)
        yield EngineSnapshot(
            "m", "0", requests_running=float(len(running)), decode_tokens_total=float(decoded), preemptions_total=0.0,
            engine_steps_total=(busy - max(0.0, covered - at)) / ITL_SECONDS,
            inter_token_latency_seconds=Histogram((ITL_SECONDS,), (events,), events, events * ITL_SECONDS),
            request_generation_tokens=Histogram((), (), ended, float(tokens)),
        )  # fmt: skip
        turn += 1
        at = first + turn * interval + rng.uniform(-jitter, jitter)


def weigh_most(snapshots: Iterator[EngineSnapshot], interval: float) -> float:
    """The most that the readings together say against the gauge, as the row adds it up."""
    most = evidence = 0.0
    for before, after in pairwise(snapshots):
        if after.requests_running:
            evidence = 0.0
        elif before.requests_running == 0:
            evidence += weigh_zero(EngineWindow((before, after), interval), LIVE)
            most = max(most, evidence)
    return most


@pytest.mark.parametrize("seed", keep_quick(range(4), lambda seed: seed == 0))
def test_no_honest_gauge_is_suspect_in_hundreds_of_hours(seed: int) -> None:
    """504 hours in all: light traffic, closed loops, and batches that come in step with our readings."""
    rng = random.Random(seed)
    hours = 5.25
    loads = [
        *(poisson(rng, hours, rate, tokens) for rate in (0.02, 0.2, 0.5) for tokens in (20, 150)),
        *(closed_loop(rng, hours, clients, think, 60) for clients in (1, 2, 4) for think in (0.05, 1.0)),
    ]
    for load in loads:
        interval = rng.choice(INTERVALS)
        assert weigh_most(read_honestly(load, rng.uniform(0, 5), interval, 0.3, rng), interval) < SURE / 2
    for interval in INTERVALS:
        for share in (0.72, 0.8, 0.9, 0.95):
            load = in_step(rng, hours, interval, share, rng.choice((1, 4, 16)))
            # each reading in the pause before a batch
            pause = interval * (1 - share)
            found = list(read_honestly(load, load[0][0] + interval - pause / 2, interval, pause / 4, rng))
            assert sum(not one.requests_running for one in found) > 0.95 * len(found), "the load is not in step"
            assert weigh_most(iter(found), interval) < SURE / 2


@check_rows("seed", range(4))
def test_a_gauge_that_lies_all_the_time_is_found_under_a_steady_load(seed: int) -> None:
    rng = random.Random(seed)
    load = closed_loop(rng, 1.0, 8, 0.2, 400)
    said = [replace(one, requests_running=0.0) for one in read_honestly(load, 1.0, 5.0, 0.3, rng)]
    assert weigh_most(iter(said[:80]), 5.0) >= SURE
