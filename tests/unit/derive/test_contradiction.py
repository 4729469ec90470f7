"""A running gauge that shows 0 while the engine decodes: found on recorded pages where it is made to lie, never where it is right."""

import random
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from llm_serving_exporter.derive.standstill import CERTAIN_SHARE, SURE, weigh_zero
from llm_serving_exporter.model.derived import Cause
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.golden_cases import vllm_says
from tests.support.builders.recordings import recording
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers.replica import Routes, readings

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
