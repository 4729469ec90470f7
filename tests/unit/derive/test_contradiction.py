"""A running gauge that shows 0 while the engine decodes: found on recorded pages where it is made to lie, never where it is right."""

from __future__ import annotations

import re

import pytest

from llm_serving_exporter.derive.contradiction import CERTAIN_SHARE, SURE, weigh_zero
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.roofline import Cause
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.golden_cases import vllm_says
from tests.support.builders.recordings import recording
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
    assert reading.derived is not None
    suspect = reading.derived.quality.get("requests_running") is Quality.SUSPECT
    assert suspect is (reading.derived.causes.get("requests_running") is Cause.COUNTERS)
    return suspect


@pytest.mark.parametrize("numbers", [LIGHT, SATURATED, PRESSED, DECODING, range(120, 149), range(179, 220)])
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
    last = found[-1].derived
    assert last is not None
    # what rests on it says so
    assert last.quality["batch_utilization_ratio"] is Quality.SUSPECT
    assert last.signals["context_tokens_mean"] is Absence.INCONSISTENT
    # what does not is as good as before
    for signal in ("decode_tokens_total", "phase_tokens_per_second_decode", "batch_size_mean"):
        assert last.quality.get(signal) is not Quality.SUSPECT


def test_a_gauge_that_shows_a_request_again_is_believed_again() -> None:
    *lied, said = readings(steps(range(149, 173), "0") + steps(range(173, 174)), seconds=1.0)
    assert is_suspect(lied[-1])
    assert said.snapshot is not None
    assert said.snapshot.engines[0].requests_running
    assert not is_suspect(said)


def tick(sequences: float, busy: float, *, seconds: float = 5.0, latency: float = 0.02, **more: float) -> EngineWindow:
    """Nothing at its start; so many sequences decoding in the mean, for that share of its time."""
    events = sequences * seconds / latency
    last = EngineSnapshot(
        "m",
        "0",
        requests_running=0.0,
        engine_steps_total=busy * seconds / latency,
        inter_token_latency_seconds=Histogram((latency,), (events,), events, events * latency),
        **more,  # type: ignore[arg-type]  # fields by name
    )
    none = Histogram((latency,), (0.0,), 0.0, 0.0)
    first = EngineSnapshot(
        "m",
        "0",
        requests_running=0.0,
        engine_steps_total=0.0,
        inter_token_latency_seconds=none,
        preemptions_total=0.0,
    )
    return EngineWindow((first, last), seconds)


@pytest.mark.parametrize(
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
