"""What is read of recorded servers against what their load clients counted: Dynamo 1.6.1, llama.cpp b11434, Infinity, and a restart."""

import json
from collections import Counter
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from llm_serving_exporter.catalogue.cost import COSTS
from llm_serving_exporter.engines.hooks.llamacpp import DECODED as GENERATED
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_simulator.replay import Recording
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import engine_of
from tests.support.servers.driven_exporter import DrivenExporter, hand_driven_host
from tests.support.servers.exporter_process import Scraped
from tests.support.servers.llamacpp import read
from tests.support.servers.replica import Routes, readings
from tests.support.servers.stepped import SteppedServer

# --- What is read of Dynamo's pages against what the load client counted for itself, on the recorded run of 1.6.1
# One client, one frontend, one worker (Dynamo's mocker), recorded side by side; pages are thinned out, and phases follow one another
# without a pause, so totals are compared where nothing was under way: page 60 (phases 1 to 4 over) and page 120 (before the worker is
# killed), and at the end, page 144.


FRONTEND, WORKER = "dynamo-1.6.1-frontend", "dynamo-1.6.1-worker"
RUNTIME = {FRONTEND: RUNTIMES["dynamo-frontend"], WORKER: RUNTIMES["dynamo-worker"]}

FINISHED_ONLY = ("p0_idle", "p1_stream6", "p2_longprompt", "p3_sharedprefix", "p4_overload")
BEFORE_THE_KILL = (*FINISHED_ONLY, "p5_kvpressure", "p6_aborts", "p7_errors", "p8_idle")
EVERYTHING = (*BEFORE_THE_KILL, "p9_restart")

# of cancelled requests the client knows no usage: 321687 prompt tokens on page 120, 318908 of requests that completed
PROMPT_TOKENS_OF_CANCELLED = 2779


def truth(phases: tuple[str, ...]) -> Counter[str]:
    """What the client counted in these phases."""
    recorded = recording(FRONTEND).json("groundtruth.json")
    total: Counter[str] = Counter()
    for phase in phases:
        total.update(recorded[phase]["truth"])
    return total


@cache
def at(run: str, number: int) -> EngineSnapshot:
    return engine_of(recording(run).pages[number].decode(), None, runtime=RUNTIME[run])


def test_tokens_of_requests_that_finished_are_the_clients() -> None:
    client, engine = truth(FINISHED_ONLY), at(FRONTEND, 60)
    assert engine.prompt_tokens_total == client["prompt_tokens"] == 295983
    assert engine.cached_prompt_tokens_total == client["cached_tokens"] == 82416
    assert engine.prefill_tokens_total == client["prompt_tokens"] - client["cached_tokens"] == 213567
    lengths = engine.request_generation_tokens
    assert lengths.sum == client["completion_tokens"] == 28061


def test_the_counter_that_runs_while_streaming_ends_0_2_percent_low() -> None:
    # 28007 of 28061: it counts a little less than the lengths that are booked at the end, which are exact
    client, counted = truth(FINISHED_ONLY)["completion_tokens"], at(FRONTEND, 60).decode_tokens_total
    assert 0.997 * client < counted < client


def test_cancelled_requests_are_in_the_tokens_and_aborted() -> None:
    client, engine = truth(BEFORE_THE_KILL), at(FRONTEND, 120)
    assert engine.requests_finished_total == {"success": client["completed"], "abort": client["aborted"]}
    assert engine.prompt_tokens_total == client["prompt_tokens"] + PROMPT_TOKENS_OF_CANCELLED
    # the client saw 2461 chunks of the cancelled before it left; some more were on their way
    lengths = engine.request_generation_tokens
    assert 0 <= lengths.sum - client["completion_tokens"] - client["aborted_chunks_seen"] <= client["aborted"]


def test_every_failed_answer_is_counted_by_its_status() -> None:
    client, responses = truth(EVERYTHING), at(FRONTEND, 144).http_responses_total
    assert responses["4xx"] == client["http_400"] + client["http_404"] == 9
    # two streams that the kill cut short had begun as HTTP 200 and are failures all the same
    assert responses["5xx"] == client["http_503"] + client["completed_without_usage"] == 105
    assert responses["2xx"] == client["completed"] - client["completed_without_usage"] == 881


def test_first_tokens_are_as_many_as_the_client_saw() -> None:
    client, found = truth(BEFORE_THE_KILL), at(FRONTEND, 120).time_to_first_token_seconds
    assert found.count == client["completed"] + client["aborted"]
    between = at(FRONTEND, 120).inter_token_latency_seconds
    assert between.count == (at(FRONTEND, 120).decode_tokens_total or 0) - found.count


def test_the_worker_saw_the_same_requests() -> None:
    client, engine = truth(BEFORE_THE_KILL), at(WORKER, 120)
    assert engine.requests_finished_total == {"success": client["completed"], "abort": client["aborted"]}
    first = engine.time_to_first_token_seconds
    assert first.count == client["completed"] + client["aborted"]
    # recorded: 16 of 16 slots in use and 32 of the 48 streams waiting; four preemptions under KV pressure
    assert (at(WORKER, 56).requests_running, at(WORKER, 56).requests_waiting) == (16, 32)
    assert engine.preemptions_total == 4


def walk(run: str) -> list[TargetReading]:
    """The pipeline over every page, seconds apart as they were recorded; a second in which nobody answered is a 503."""
    recorded = recording(run)
    kept = sorted(set(recorded.pages) | {number for number in recorded.failed if number % 2 == 0})
    steps = [{"/metrics": recorded.pages.get(number, (503, "text/plain", b""))} for number in kept]
    return readings(steps, seconds=2.0)


def test_the_workers_restart_is_seen_once_and_its_rates_start_anew() -> None:
    found = walk(WORKER)
    assert [reading.server.restarts_total for reading in found][-1] == 1
    assert [reading.page.up for reading in found].count(False) == 3
    after = found[-1]
    assert after.page.snapshot.engines[0].requests_finished_total == {"success": 79, "abort": 0}
    # its page counts no tokens; four preemptions in the first life, none in the second
    rates = [
        reading.page.derived.engines[0].preemptions_per_second
        for reading in found
        if reading.page.up and reading.page.derived
    ]
    assert max(rate for rate in rates[:-5] if rate is not None) > 0
    assert rates[-5:] == [None, 0, 0, 0, 0]


def test_the_frontend_lives_through_its_workers_restart() -> None:
    found = walk(FRONTEND)
    assert {reading.server.restarts_total for reading in found} == {0}
    assert all(reading.page.up for reading in found)
    for phase, field in (("prefill", "prefill_tokens_total"), ("decode", "decode_tokens_total")):
        counts = [getattr(at(FRONTEND, number), field) or 0.0 for number in sorted(recording(FRONTEND).pages)]
        rates = [
            reading.page.derived.engines[0].phase_tokens_per_second[phase]
            for reading in found[1:]
            if reading.page.derived
        ]
        assert len(rates) == len(counts) - 1
        # no window is faster than the fastest two seconds of the page itself
        assert 0 < max(rates) <= max(after - before for before, after in pairwise(counts)) / 2
    # counted on from 0 since it was first seen, and never falling, although the recorded difference dips
    prefill = [
        engine.prefill_tokens_total
        for reading in found
        if reading.page.snapshot
        for engine in reading.page.snapshot.engines
    ]
    counted = [value for value in prefill if value is not None]
    assert counted == sorted(counted)


@pytest.mark.parametrize(
    ("field", "clients", "ranks"),
    [
        # half of the first tokens are not compared: of answers that were not streamed the client saw none, and the frontend did
        ("time_to_first_token_seconds", "ttft", (0.9, 0.99)),
        ("e2e_request_latency_seconds", "e2e", (0.5, 0.9, 0.99)),
    ],
)
def test_the_front_doors_latencies_are_in_the_clients_buckets(
    field: str, clients: str, ranks: tuple[float, ...]
) -> None:
    recorded = recording(FRONTEND).json("groundtruth.json")
    seen = sorted(seconds for phase in BEFORE_THE_KILL for seconds in recorded[phase][clients])
    histogram = getattr(at(FRONTEND, 120), field)
    for rank in ranks:
        upper = next(
            edge
            for edge, count in zip(histogram.edges, histogram.cumulative, strict=True)
            if count >= rank * histogram.count
        )
        lower = max((edge for edge in histogram.edges if edge < upper), default=0.0)
        assert lower < seen[int(rank * len(seen))] <= upper


# --- llama.cpp b11434 against what its client counted: exact totals, lumps at release, a restart walked at four pages a second


LLAMACPP = RUNTIMES["llamacpp"]

RUN, SPECULATIVE, RESTART = (recording(f"llamacpp-b11434{suffix}") for suffix in ("", "-spec", "-restart"))
PREFILL, CACHED, DECODED = "prefill_tokens_total", "cached_prompt_tokens_total", "decode_tokens_total"
# what the client calls them
CLIENTS = {PREFILL: "prompt_tokens_processed", CACHED: "prompt_tokens_cached", DECODED: "generated_tokens"}


def engine(run: Recording, number: int) -> EngineSnapshot:
    return engine_of(run.pages[number].decode(), None, LLAMACPP)


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


def walk_llamacpp() -> dict[int, TargetReading]:
    """Every quarter of a second of the recording, refused where the server refused, loading where it said so (59 to 66)."""
    steps: list[Routes | None] = []
    for number in range(max(RESTART.pages) + 1):
        if number in RESTART.pages:
            steps.append({"/metrics": RESTART.pages[number]})
        else:
            steps.append({"/metrics": LOADING} if number >= 59 else None)
    return dict(enumerate(readings(steps, seconds=0.25, window_seconds=2.5, runtime="llamacpp")))


def test_a_restart_is_seen_once_and_no_rate_is_too_high() -> None:
    found = walk_llamacpp()
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


# --- What the exporter reads from a real Infinity server, model list included, against what the load client counted (groundtruth.json)


INFINITY = recording("infinity-0.0.78")


def answers(number: int) -> Routes:
    return {"/metrics": INFINITY.pages[number], "/models": INFINITY.members[f"json/models-{number:04}.json"]}


@pytest.fixture(scope="module")
def engines() -> dict[int, EngineSnapshot]:
    found = {}
    for number, one in zip(INFINITY.pages, readings([answers(number) for number in INFINITY.pages]), strict=True):
        assert one.page.snapshot is not None, one.page.problem
        assert one.server.runtime == "infinity"
        (found[number],) = one.page.snapshot.engines
    return found


def client(phase: str) -> dict[str, Any]:
    truth: dict[str, Any] = INFINITY.json("groundtruth.json")[phase]["truth"]
    return truth


def test_every_answer_of_the_run_is_counted_and_no_scrape(engines: dict[int, EngineSnapshot]) -> None:
    completed = sum(client(phase).get("completed", 0) for phase in INFINITY.json("groundtruth.json"))
    given_up = client("p4_timeouts")["client_timeout_abort"]
    assert (completed, given_up) == (1632, 268)
    last = engines[208]
    # the server answered those that nobody waited for any more, too
    assert last.http_responses_total == {"2xx": completed + given_up, "4xx": client("p5_errors")["http_422"]}
    assert last.requests_finished_total == {"success": 1900}
    assert last.e2e_request_latency_seconds.count == 1900 + 6  # refused ones have a duration too


def test_phases_in_which_nobody_gives_up_are_exact(engines: dict[int, EngineSnapshot]) -> None:
    first, second = client("p1_single")["completed"], client("p2_batch32")["completed"]
    assert engines[4].http_responses_total is None
    assert engines[20].http_responses_total == {"2xx": first} == {"2xx": 1524}
    assert engines[36].http_responses_total == {"2xx": first + second + 1}  # the first of p3 is answered


def test_nothing_is_there_before_the_first_request(engines: dict[int, EngineSnapshot]) -> None:
    assert engines[0].http_responses_total is None
    assert engines[0].requests_finished_total is None
    assert engines[0].e2e_request_latency_seconds is None
    assert (engines[0].requests_waiting, engines[0].batch_limit_requests) == (0, 16)
    assert engines[0].model_name == "minilm"


def test_quiet_counters_are_not_an_idle_server(engines: dict[int, EngineSnapshot]) -> None:
    """After 268 requests that nobody waits for any more, 3649 inputs are left; the next answer took 111.6 s."""
    assert engines[36].requests_waiting == 384  # p3: 40 requests of 16 inputs
    waiting = [engines[number].requests_waiting for number in (84, 100, 120, 160, 192, 196, 208)]
    assert waiting == [3649, 3009, 2753, 1217, 65, 0, 0]
    assert client("p5_errors")["completed"] == 3


# --- A real server stopped and started under load: no rate across the gap, no spike, down and up again, and the documented loss


RESTARTED = recording("vllm-0.32-restart")
LAST_BEFORE, FIRST_AFTER = 22, 72


def walk_second_by_second() -> dict[int, TargetReading]:
    """Every second of the recording through the host over HTTP, refused where the server refused; the window is 10 s."""
    found: dict[int, TargetReading] = {}
    server = SteppedServer(RESTARTED)
    port = server.port
    host, clock = hand_driven_host(Config(targets=(), window_seconds=10.0))
    hosted = host.add_target(Target("replica-0", server.url))
    listening = True
    try:
        for second in range(max(RESTARTED.pages) + 1):
            clock.seconds += 1.0
            if second in RESTARTED.pages:
                if not listening:
                    server, listening = SteppedServer(RESTARTED, port=port), True
                server.show(second)
            elif listening:
                server.close()
                listening = False
            found[second] = hosted.tick()
    finally:
        host.close()
        if listening:
            server.close()
    return found


def test_rates_over_a_restart_start_anew_and_never_spike() -> None:
    readings = walk_second_by_second()
    tokens = {number: decode(page.decode()) for number, page in RESTARTED.pages.items()}
    steps = [tokens[number] - tokens[number - 1] for number in tokens if number - 1 in tokens and number != FIRST_AFTER]
    rates = [
        rate
        for reading in readings.values()
        if reading.page.up and reading.page.derived
        for engine in reading.page.derived.engines
        for phase, rate in engine.phase_tokens_per_second.items()
        if phase == "decode"
    ]
    assert len(rates) > 40
    # no window can be faster than the fastest second of the engine's own page
    assert max(rates) <= max(steps)

    assert readings[LAST_BEFORE].server.state is State.READY
    assert [readings[second].page.up for second in (23, 24, 71)] == [False, False, False]
    assert readings[24].server.state is State.DOWN
    back = readings[FIRST_AFTER]
    assert (back.page.up, back.server.state, back.server.restarts_total) == (True, State.READY, 1)
    assert back.page.derived.window_seconds == 0.0
    assert [engine.phase_tokens_per_second for engine in back.page.derived.engines] == [{}]
    assert back.server.start_unix_seconds != readings[0].server.start_unix_seconds


def decode(page: str) -> float:
    line = next(line for line in page.splitlines() if line.startswith("vllm:generation_tokens_total"))
    return float(line.rsplit(" ", 1)[1])


def test_the_exporter_sees_the_server_go_and_come_and_loses_what_the_server_lost() -> None:
    server = SteppedServer(RESTARTED)
    port = server.port
    server.show(LAST_BEFORE)
    with DrivenExporter(server.url) as exporter:

        def after_a_tick() -> Scraped:
            exporter.tick()
            return exporter.scrape()

        page = after_a_tick()
        assert page.value("target_up") == 1
        first_life = page.total("decode_tokens_total")
        server.close()
        page = after_a_tick()
        assert page.value("target_up") == 0  # at once, while the last good values stay for three intervals
        assert page.total("decode_tokens_total") == first_life
        for _ in range(3):
            page = after_a_tick()
        assert page.series("decode_tokens_total") == {}
        server = SteppedServer(RESTARTED, port=port)
        server.show(FIRST_AFTER)
        page = after_a_tick()
        assert (page.value("target_up"), page.value("target_restarts_total")) == (1, 1)
        assert page.total("decode_tokens_total") == 0
        server.show(max(RESTARTED.pages))
        second_life = after_a_tick().total("decode_tokens_total")
        server.close()
    # the client received 9230 tokens; what the server counted in its last second went with it (captures README)
    assert (first_life, second_life) == (4296, 4891)
    assert json.loads(RESTARTED.members["client/truth.json"])["steady"]["gen_tokens_received"] == 9230


def test_an_exporter_that_restarts_loses_nothing_and_makes_no_reset() -> None:
    run = recording("vllm-0.32")

    def pages(*numbers: int) -> list[Scraped]:
        found = []
        with DrivenExporter(server.url) as exporter:
            for number in numbers:
                server.show(number)
                exporter.tick()
                found.append(exporter.scrape())
        return found

    with SteppedServer(run) as server:
        first, before = pages(60, 90)
        after, last = pages(95, 119)
    counters = {
        name
        for name, _ in first.samples
        if name.startswith("llm_serving_") and name.endswith(("_total", "_bucket", "_count"))
    }
    ours = {
        name
        for name in counters
        if name.startswith(("llm_serving_scrape_", "llm_serving_exporter_", "llm_serving_target_"))
    } | {metric.full_name for metric in COSTS}
    checked = 0
    for key, value in before.samples.items():
        if key[0] in counters - ours:
            assert after.samples[key] >= value, key
            checked += 1
    assert checked > 130
    # last minus first over the restart is what the engine counted
    tokens = {number: decode(run.pages[number].decode()) for number in (60, 119)}
    assert last.total("decode_tokens_total") - first.total("decode_tokens_total") == tokens[119] - tokens[60]
