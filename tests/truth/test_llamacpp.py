"""llama.cpp b11434 against what its client counted: exact totals, lumps at release, a restart walked at four pages a second."""

import json
from itertools import pairwise
from typing import Any

from llm_serving_exporter.engines.hooks.llamacpp import DECODED as GENERATED
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_simulator.replay import Recording
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of
from tests.support.servers.llamacpp import read
from tests.support.servers.replica import Routes, readings

RUNTIME = RUNTIMES["llamacpp"]

RUN, SPECULATIVE, RESTART = (recording(f"llamacpp-b11434{suffix}") for suffix in ("", "-spec", "-restart"))
PREFILL, CACHED, DECODED = "prefill_tokens_total", "cached_prompt_tokens_total", "decode_tokens_total"
# what the client calls them
CLIENTS = {PREFILL: "prompt_tokens_processed", CACHED: "prompt_tokens_cached", DECODED: "generated_tokens"}


def engine(run: Recording, number: int) -> EngineSnapshot:
    return engine_of(run.pages[number].decode(), None, RUNTIME)


def grown(run: Recording, first: int, last: int) -> dict[str, float]:
    before, after = engine(run, first), engine(run, last)
    return {field: getattr(after, field) - getattr(before, field) for field in CLIENTS}


def counted(run: Recording, phase: str) -> dict[str, float]:
    truth: dict[str, Any] = run.json("groundtruth.json")[phase]["truth"]
    return {field: float(truth[name]) for field, name in CLIENTS.items()}


def test_a_phase_between_pages_with_nothing_under_way_is_exact() -> None:
    # 0006 idle; 0022 begins p2, of which nothing is booked; p6 runs alone from 0077 to 0084
    assert grown(RUN, 6, 22) == counted(RUN, "p1_stream4") == {PREFILL: 1567, CACHED: 66, DECODED: 3254}
    assert grown(RUN, 77, 84)[DECODED] == counted(RUN, "p6_onelong")[DECODED] == 900
    assert grown(RUN, 76, 84) == counted(RUN, "p6_onelong")
    for idle in ((0, 6), (84, 97)):
        assert grown(RUN, *idle) == dict.fromkeys(CLIENTS, 0.0)


def test_phases_that_follow_one_another_lie_between_the_pages_around_their_ends() -> None:
    expected = dict.fromkeys(CLIENTS, 0.0)
    for phase in ("p1_stream4", "p2_longprompt", "p3_sharedprefix", "p4_overload12"):
        expected = {field: expected[field] + amount for field, amount in counted(RUN, phase).items()}
        end = RUN.json("groundtruth.json")[phase]["end"]
        # a page is booked before it is sent: the first that was asked for after the end has all of the phase
        before = max(number for number in RUN.pages if RUN.timestamps[number] < end)
        for field, total in expected.items():
            assert getattr(engine(RUN, before), field) <= total <= getattr(engine(RUN, before + 1), field), (
                phase,
                field,
            )


def test_the_whole_run_is_the_clients_count_and_the_aborted_requests() -> None:
    completed = [
        counted(RUN, p) for p in ("p1_stream4", "p2_longprompt", "p3_sharedprefix", "p4_overload12", "p6_onelong")
    ]
    sums = {field: sum(phase[field] for phase in completed) for field in CLIENTS}
    assert sums == {PREFILL: 12162, CACHED: 8539, DECODED: 8314}
    seen = RUN.json("groundtruth.json")["p5_aborts"]["truth"]["aborted_tokens_seen"]
    # 29 requests were cut off: their prompts are booked; they ran on for 54 tokens after the client had seen 761
    assert seen == 761
    assert grown(RUN, 0, 97) == {
        PREFILL: sums[PREFILL] + 760,
        CACHED: sums[CACHED] + 36,
        DECODED: sums[DECODED] + seen + 54,
    }
    last = engine(RUN, 97)
    assert (last.prompt_tokens_total, last.prefix_cache_query_tokens_total) == (12922 + 8575, 12922 + 8575)
    assert last.prefix_cache_hit_tokens_total == 8575


def test_prompts_as_sent_are_what_the_client_was_charged_for() -> None:
    truth = RUN.json("groundtruth.json")["p3_sharedprefix"]["truth"]
    assert truth["usage_prompt_tokens"] == truth["prompt_tokens_processed"] + truth["prompt_tokens_cached"] == 10514


def test_the_queue_and_the_slots_of_an_overload() -> None:
    waiting = [engine(RUN, number).requests_waiting for number in range(50, 63)]
    running = [engine(RUN, number).requests_running for number in range(50, 63)]
    # twelve clients on four slots
    assert (max(w for w in waiting if w is not None), set(running)) == (8, {4.0})


def test_speculative_totals_are_exact() -> None:
    phases = [counted(SPECULATIVE, phase) for phase in ("p1_stream4", "p3_sharedprefix")]
    sums = {field: sum(phase[field] for phase in phases) for field in CLIENTS}
    assert grown(SPECULATIVE, 0, 36) == sums == {PREFILL: 2452, CACHED: 1701, DECODED: 1384}
    last = engine(SPECULATIVE, 36)
    assert last.speculative_draft_tokens_total is not None
    assert 0 < last.speculative_accepted_tokens_total < last.speculative_draft_tokens_total


# a long answer


def beside(number: int) -> Routes:
    return {
        "/metrics": RUN.pages[number],
        "/props": RUN.members["json/props-0000.json"],
        "/v1/models": RUN.members["json/models-0000.json"],
        "/slots": RUN.members[f"json/slots-{number:04}.json"],
    }


def rate(reading: TargetReading, phase: str = "decode") -> float | None:
    return reading.page.derived.engines[0].phase_tokens_per_second.get(phase) if reading.page.derived else None


def test_one_long_answer_looks_stalled_on_the_counter_and_is_not() -> None:
    pages = [engine(RUN, number) for number in range(77, 84)]
    assert {(page.decode_tokens_total, page.requests_running) for page in pages} == {(8229, 1)}
    # steps move all the while: the signal that is live on the page itself
    assert all(b.engine_steps_total > a.engine_steps_total for a, b in pairwise(pages))

    # /slots was recorded at every tenth page: 70, 80 and 90
    _, _, at_80, at_90 = readings([beside(number) for number in (70, 70, 80, 90)], window_seconds=10.0)
    # from 7516 + 1 generated so far to 8229 + 406, and on to 9129
    assert rate(at_80) == (8229 + 406 - 7516 - 1) / 10
    assert rate(at_90) == (9129 - 8229 - 406) / 10
    # the counter alone would have said 900 tokens in the window in which the slot was released
    assert counted(RUN, "p6_onelong")[DECODED] == 9129 - 8229


def test_rates_from_slots_are_what_was_generated_between_their_pages() -> None:
    numbers = [0, 0, 10, 20, 30, 40, 50, 60, 70, 80, 90]
    found = readings([beside(number) for number in numbers], window_seconds=10.0)
    generated = [getattr(engine(RUN, number), DECODED) + read(number)[GENERATED] for number in numbers]
    assert (generated[0], generated[-1]) == (0, 9129)
    assert [rate(reading) for reading in found[1:]] == [(after - before) / 10 for before, after in pairwise(generated)]
    usage = [reading.page.snapshot.engines[0].kv_cache_usage_ratio for reading in found if reading.page.snapshot]
    # known from the first time that a slot works
    assert usage[:2] == [None, None]
    assert all(value is not None and 0 <= value <= 1 for value in usage[2:])
    assert usage[-1] == 0


# a restart under load

LAST_OF_FIRST_LIFE, FIRST_OF_SECOND_LIFE = 35, 67
LOADING = (
    503,
    "application/json; charset=utf-8",
    b'{"error":{"message":"Loading model","type":"unavailable_error","code":503}}',
)


def walk() -> dict[int, TargetReading]:
    """Every quarter of a second of the recording, refused where the server refused, loading where it said so (59 to 66)."""
    steps: list[Routes | None] = []
    for number in range(max(RESTART.pages) + 1):
        if number in RESTART.pages:
            steps.append({"/metrics": RESTART.pages[number]})
        else:
            steps.append({"/metrics": LOADING} if number >= 59 else None)
    return dict(enumerate(readings(steps, seconds=0.25, window_seconds=2.5, runtime="llamacpp")))


def test_a_restart_is_seen_once_and_no_rate_is_too_high() -> None:
    found = walk()
    lives = [(0, LAST_OF_FIRST_LIFE), (FIRST_OF_SECOND_LIFE, max(RESTART.pages))]
    for phase, field in (("prefill", PREFILL), ("decode", DECODED)):
        values = {number: getattr(engine(RESTART, number), field) for number in RESTART.pages}
        fastest = max(values[b] - values[a] for first, last in lives for a, b in pairwise(range(first, last + 1)))
        rates = [value for reading in found.values() if reading.page.up and (value := rate(reading, phase)) is not None]
        assert len(rates) > 60
        assert max(rates) <= fastest / 0.25
        # of two lives no difference is made
        assert rate(found[FIRST_OF_SECOND_LIFE], phase) is None

    assert found[LAST_OF_FIRST_LIFE].server.state is State.READY
    assert {found[number].server.state for number in range(36, 59)} == {State.DOWN}
    assert {found[number].server.state for number in range(59, FIRST_OF_SECOND_LIFE)} == {State.LOADING}
    back = found[FIRST_OF_SECOND_LIFE]
    assert (back.page.up, back.server.state, back.server.restarts_total) == (True, State.READY, 1)
    assert back.page.derived.window_seconds == 0.0
    last = found[max(RESTART.pages)]
    assert last.server.restarts_total == 1
    assert last.server.start_unix_seconds == back.server.start_unix_seconds


def test_the_second_life_counts_what_its_client_counted() -> None:
    truth = json.loads(RESTART.members["groundtruth2.json"])["p1_stream4"]["truth"]
    last = engine(RESTART, max(RESTART.pages))
    assert {field: getattr(last, field) for field in CLIENTS} == {field: truth[name] for field, name in CLIENTS.items()}
    assert (last.prefill_tokens_total, last.decode_tokens_total) == (1649, 3438)
