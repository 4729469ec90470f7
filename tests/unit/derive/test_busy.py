"""Busy time by phase: where each tick's seconds go, whenever the engine books them, and what it could do of each phase alone."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_exporter.derive.busy import (
    BOOKINGS_ROW,
    LONGEST_PENDING_SECONDS,
    REFERENCE_BATCH,
    REFERENCE_CONTEXT_TOKENS,
    REFERENCE_PROMPT_TOKENS,
    Weights,
    advance_busy_seconds,
    compute_reference_seconds,
    split_busy_time,
    was_busy,
    weigh_work,
)
from llm_serving_exporter.derive.derive import DeriveSettings, Tick
from llm_serving_exporter.derive.roof import decode_ceiling, encoder_ceiling_tokens_per_second, prefill_floor_seconds
from llm_serving_exporter.derive.traffic import Work, measure_work
from llm_serving_exporter.derive.window import advance_window, find_spans
from llm_serving_exporter.derive.work import compute_seconds, prefill_flops
from llm_serving_exporter.model.derived import BusySeconds
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import EngineWindow, Window
from tests.support.builders.engine_roofline import Outcome, roofline
from tests.support.builders.windows import all_of, engine, window
from tests.support.models.roofs import FP8, GPT_OSS, H100, LLAMA_8B, LLAMA_70B, flat, gpu, roof, served, shape
from tests.support.paths import TESTS
from tests.support.quick import keep_quick
from tests.support.rows import check_rows

# --- Busy time by phase: where each tick's seconds go


LLAMA = roof(served(LLAMA_8B))
THREE_TO_ONE = Weights(3.0, 1.0)


def tick(seconds: float = 5.0, *, running: float = 1.0, decoded: float = 0.0) -> EngineWindow:
    readings = engine(requests_running=running), engine(decoded=decoded, steps=decoded, requests_running=running)
    return EngineWindow(readings, seconds)


def test_a_ticks_seconds_are_split_by_what_each_phase_needs() -> None:
    assert advance_busy_seconds(None, tick(decoded=10), THREE_TO_ONE) == BusySeconds(3.75, 1.25, 0.0, 0.0)


def test_an_idle_tick_counts_nothing() -> None:
    before = BusySeconds(1.0, 2.0, 3.0, 4.0)
    assert advance_busy_seconds(before, tick(running=0.0), THREE_TO_ONE) == before
    assert advance_busy_seconds(before, EngineWindow((engine(decoded=5),), 0.0), THREE_TO_ONE) == before


def test_seconds_without_a_token_wait_for_the_tick_that_books_them() -> None:
    waiting = advance_busy_seconds(None, tick(), None)
    assert waiting == BusySeconds(pending_seconds=5.0)
    waiting = advance_busy_seconds(waiting, tick(), Weights(0.0, 0.0))
    assert waiting.pending_seconds == 10.0
    assert advance_busy_seconds(waiting, tick(decoded=10), THREE_TO_ONE) == BusySeconds(11.25, 3.75, 0.0, 0.0)


def test_what_waits_too_long_is_unattributed() -> None:
    counted = BusySeconds(1.0, 1.0)
    for _ in range(int(LONGEST_PENDING_SECONDS / 5)):
        counted = advance_busy_seconds(counted, tick(), None)
    assert (counted.pending_seconds, counted.unattributed) == (LONGEST_PENDING_SECONDS, 0.0)
    counted = advance_busy_seconds(counted, tick(), None)
    assert counted == BusySeconds(1.0, 1.0, LONGEST_PENDING_SECONDS + 5.0, 0.0)


def test_a_request_that_came_and_went_between_two_readings_made_it_busy() -> None:
    assert was_busy(tick(running=0.0, decoded=10))
    assert was_busy(tick(running=1.0))
    assert not was_busy(tick(running=0.0))


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 400.0), st.booleans(), st.floats(0, 1e3) | st.none(), st.floats(0, 1e3)
        ), max_size=40,
    )
)  # fmt: skip
def test_the_counters_never_fall_and_sum_to_the_busy_time(ticks: list[tuple[float, bool, float | None, float]]) -> None:
    counted, busy = BusySeconds(), 0.0
    for seconds, running, prefill, decode in ticks:
        shares = None if prefill is None else Weights(prefill, decode)
        after = advance_busy_seconds(counted, tick(seconds, running=float(running)), shares)
        busy += seconds if running else 0.0
        for name in ("prefill", "decode", "unattributed"):
            assert getattr(after, name) >= getattr(counted, name)
        assert 0 <= after.pending_seconds <= LONGEST_PENDING_SECONDS
        counted = after
    total = counted.prefill + counted.decode + counted.unattributed + counted.pending_seconds
    assert total == pytest.approx(busy, abs=1e-6)


def done(**told: float) -> Work:
    made = measure_work(window(**told))
    assert isinstance(made, Work)
    return made


def test_seconds_that_each_phase_needs() -> None:
    """Facts G.7: a prefill token 2 N / peak; decode its step at the ceiling of the batch."""
    made = done(decoded=6400, steps=100, prompts=64, prefill=64_000)
    found = weigh_work(LLAMA, made, 1000.0)
    assert found.prefill == pytest.approx(64_000 * 2 * 7.5e9 / 989.4e12, rel=0.1)
    assert found.decode == pytest.approx(100 * (7_504_924_672 * 2 + 64 * 1000 * 131_072) / 3.35e12)
    ratio = split_busy_time(found)
    assert sum(ratio.values()) == pytest.approx(1.0)


def test_micro_batches_do_not_make_decode_look_slower() -> None:
    """Two stages: 100 micro-steps of 32 of the 64 sequences take as long as each stage's half of the weights, in turn."""
    staged = roof(served(LLAMA_8B), pipeline=2)
    found = weigh_work(staged, done(decoded=3200, steps=100, requests_running=64.0), 1000.0)
    assert found.decode == pytest.approx(3200 / 64 * (7_504_924_672 * 2 + 32 * 1000 * 131_072) / 3.35e12)


def test_prefill_alone_and_encoders_have_no_decode() -> None:
    only = weigh_work(LLAMA, done(steps=20, prompts=20, prefill=20_000), 0.0)
    assert only is not None
    assert split_busy_time(only) == {"prefill": 1.0, "decode": 0.0}
    encoder = roof(flat(1e9, form=shape(encoder=True)))
    assert split_busy_time(weigh_work(encoder, done(steps=20, prompts=20, prefill=20_000), 0.0))["prefill"] == 1.0


def test_without_a_rate_nothing_is_split() -> None:
    unknown = roof(served(LLAMA_8B), gpu("?", 3.35))
    assert weigh_work(unknown, done(decoded=10, steps=10, prefill=100, prompts=1), 100.0) is None
    assert split_busy_time(None) == split_busy_time(Weights(0.0, 0.0)) == {}


def test_reference_seconds_are_the_ceilings_at_a_fixed_point() -> None:
    found = compute_reference_seconds(LLAMA)
    ceiling = decode_ceiling(LLAMA, REFERENCE_BATCH, REFERENCE_CONTEXT_TOKENS)
    assert found["decode"] == 1 / ceiling.tokens_per_second
    assert found["prefill"] == pytest.approx(2 * 7.5e9 / 989.4e12, rel=0.1)
    assert REFERENCE_PROMPT_TOKENS == 1024


def test_reference_of_an_encoder_is_prefills_alone() -> None:
    assert compute_reference_seconds(roof(flat(1e9, form=shape(encoder=True)))).keys() == {"prefill"}
    assert compute_reference_seconds(roof(served(LLAMA_8B), gpu("?", 3.35))) == {}


# --- Busy time is split as it was spent, whenever the engine books what it did: an engine of our own, of which every second is known


MODEL = served(LLAMA_8B)
ROOF = roof(MODEL)
KNOWN = DeriveSettings(hardware=Hardware(H100, Parallel(), 1.0), models={"m": MODEL})
INTERVAL = 5.0
# steps that are made at a time while nobody joins or leaves: less than half a second
STEPS = 50
CAPACITY = 4e6
PREFILL, DECODE, ITL = "prefill_tokens_total", "decode_tokens_total", "inter_token_latency_seconds"


@dataclass
class Request:
    """A client's request; its answer is as long as it says."""

    prompt: int
    output: int
    made: int = 0


@dataclass
class Engine:
    """Computes one prompt at a time, and between them steps of every request that runs, each in the time that its work needs at least."""

    clients: int
    rng: random.Random
    outputs: tuple[int, int]
    prompts: tuple[int, int] = (4000, 30_000)
    now: float = 0.0
    steps: int = 0
    waiting: list[Request] = field(default_factory=list)
    running: list[Request] = field(default_factory=list)
    # what was really spent
    spent: dict[str, float] = field(default_factory=lambda: {"prefill": 0.0, "decode": 0.0})
    # booked as it happens, and at the end of a request
    live: dict[str, float] = field(default_factory=lambda: {PREFILL: 0.0, DECODE: 0.0, ITL: 0.0})
    late: dict[str, float] = field(default_factory=lambda: {PREFILL: 0.0, DECODE: 0.0, ITL: 0.0})

    def __post_init__(self) -> None:
        self.waiting = [self._ask() for _ in range(self.clients)]

    def _ask(self) -> Request:
        return Request(self.rng.randint(*self.prompts), self.rng.randint(*self.outputs))

    def work(self) -> None:
        if self.waiting:
            self.steps += 1
            request = self.waiting.pop()
            self._spend("prefill", compute_seconds(ROOF, prefill_flops(ROOF, request.prompt, 0.0, 1.0)))
            request.made = 1
            self._book(PREFILL, request.prompt)
            self._book(DECODE, 1)
            self.running.append(request)
            return
        steps = min(STEPS, min(one.output - one.made for one in self.running))
        context = sum(one.prompt + one.made + steps / 2 for one in self.running) / len(self.running)
        ceiling = decode_ceiling(ROOF, len(self.running), context)
        self.steps += steps
        self._spend("decode", steps * len(self.running) / ceiling.tokens_per_second)
        for request in list(self.running):
            request.made += steps
            self._book(DECODE, steps)
            self._book(ITL, steps)
            if request.made >= request.output:
                self.running.remove(request)
                for name, count in ((PREFILL, request.prompt), (DECODE, request.made), (ITL, request.made - 1)):
                    self.late[name] += count
                self.waiting.append(self._ask())

    def _spend(self, phase: str, seconds: float | None) -> None:
        assert seconds is not None
        self.spent[phase] += seconds
        self.now += seconds

    def _book(self, name: str, count: float) -> None:
        self.live[name] += count


@dataclass(frozen=True)
class Moment:
    """What the engine has booked, as it happens and at the end of requests, and what it holds."""

    live: dict[str, float]
    late: dict[str, float]
    steps: int
    running: int
    waiting: int
    kv_tokens: int


def look_at(engine: Engine) -> Moment:
    held = sum(one.prompt + one.made for one in engine.running)
    running, waiting = len(engine.running), len(engine.waiting)
    return Moment(dict(engine.live), dict(engine.late), engine.steps, running, waiting, held)


def watch(engine: Engine, seconds: float) -> Iterator[Moment]:
    """Works, and yields at each interval how things stood when what it does then began."""
    at = 0.0
    moment = look_at(engine)
    while at < seconds:
        while engine.now <= at:
            moment = look_at(engine)
            engine.work()
        yield moment
        at += INTERVAL


def read(moment: Moment, late: frozenset[str], *, latencies: bool) -> EngineSnapshot:
    """What the engine's page says."""
    shown = {name: (moment.late if name in late else moment.live)[name] for name in (PREFILL, DECODE, ITL)}
    return EngineSnapshot(
        "m",
        "0",
        prefill_tokens_total=shown[PREFILL],
        decode_tokens_total=shown[DECODE],
        engine_steps_total=float(moment.steps),
        inter_token_latency_seconds=all_of(0.01, shown[ITL]) if latencies else None,
        requests_running=float(moment.running + bool(moment.waiting)),
        requests_waiting=float(max(0, moment.waiting - 1)),
        kv_cache_usage_ratio=moment.kv_tokens / CAPACITY,
        kv_cache_capacity_tokens=CAPACITY,
    )


def pages(moments: Iterable[Moment], late: frozenset[str], *, latencies: bool) -> Iterator[Snapshot]:
    """A page an interval. `late`: fields that are booked at a request's end; `latencies`: whether it has inter-token latencies."""
    for number, moment in enumerate(moments):
        reading, at = read(moment, late, latencies=latencies), number * INTERVAL
        yield Snapshot((reading,), "vllm", 1e9 + at, at, quality=dict.fromkeys(late, Quality.LAGGING))


def run(snapshots: Iterator[Snapshot]) -> list[Tick]:
    """What is derived at each tick, as the pipeline does it: what nobody asks for of a tick is not worked out."""
    window: Window | None = None
    result: Tick | None = None
    found = []
    for snapshot in snapshots:
        window = advance_window(window, snapshot, find_spans(60.0, snapshot))
        result = Tick(window, KNOWN, result)
        found.append(result)
    return found


def busy_of(result: Tick) -> BusySeconds:
    [engine] = result.tick_engines
    assert engine.busy is not None
    return engine.busy


# pages until every client has had an answer, so that what is booked late is known to be
BEGUN = 120
LATE = {
    "all live": frozenset[str](),
    "decode late": frozenset({DECODE, ITL}),
    "prompts late": frozenset({PREFILL}),
    "both late": frozenset({PREFILL, DECODE, ITL}),
}


# tokens of prompts and of answers: answers of half a minute after prompts of a second, and prompts of minutes before short answers
LOADS = {"long answers": ((4000, 30_000), (3000, 9000)), "long prompts": ((100_000, 400_000), (300, 3000))}


@cache
def an_hour(clients: int, prompts: tuple[int, int], outputs: tuple[int, int]) -> tuple[list[Moment], dict[str, float]]:
    """The moments of an hour, and the seconds that were spent; the same however they are booked and shown."""
    engine = Engine(clients, random.Random(18), outputs, prompts)
    return list(watch(engine, 3600.0)), engine.spent


@check_rows("latencies", keep_quick([True, False], lambda latencies: latencies), ids=["latencies", "tokens only"])
@check_rows("clients", keep_quick([1, 12], lambda clients: clients == 12))
@check_rows("late", LATE.values(), ids=LATE.keys())
@check_rows(("prompts", "outputs"), LOADS.values(), ids=LOADS.keys())
def test_busy_time_is_split_as_it_was_spent(
    prompts: tuple[int, int], outputs: tuple[int, int], late: frozenset[str], clients: int, *, latencies: bool
) -> None:
    moments, spent = an_hour(clients, prompts, outputs)
    results = run(pages(moments, late, latencies=latencies))
    first, last = busy_of(results[BEGUN]), busy_of(results[-1])
    assert last.unattributed == first.unattributed
    prefill, decode = last.prefill - first.prefill, last.decode - first.decode
    truth = spent["prefill"] / (spent["prefill"] + spent["decode"])
    assert prefill / (prefill + decode) == pytest.approx(truth, rel=0.2)


def test_decode_of_unknown_length_is_nobodys() -> None:
    """Answers of more than five minutes: what waits for them is unattributed, and never the prompts', which took a second."""
    engine = Engine(1, random.Random(18), outputs=(90_000, 90_000))
    results = run(pages(watch(engine, 1800.0), LATE["decode late"], latencies=False))
    first = next(number for number, one in enumerate(results) if busy_of(one).decode > 0)
    last = busy_of(results[-1])
    assert last.unattributed > LONGEST_PENDING_SECONDS
    # the first answer of all is not known to be booked late yet
    assert last.prefill - busy_of(results[first - 1]).prefill < 10
    assert engine.spent["prefill"] < 10


def test_prompts_that_are_not_booked_for_minutes_leave_the_time_to_decode() -> None:
    engine = Engine(1, random.Random(18), outputs=(90_000, 90_000))
    last = busy_of(run(pages(watch(engine, 1800.0), LATE["prompts late"], latencies=True))[-1])
    assert last.unattributed == 0.0
    assert last.prefill < 10
    assert last.decode > 1500 - LONGEST_PENDING_SECONDS


def test_an_engine_that_only_embeds_waits_for_no_decode() -> None:
    engine = Engine(4, random.Random(18), outputs=(2, 2))
    engine.late[DECODE] = 0.0

    def embedding() -> Iterator[Snapshot]:
        for snapshot in pages(watch(engine, 300.0), LATE["decode late"], latencies=False):
            [reading] = snapshot.engines
            yield Snapshot(
                (
                    EngineSnapshot(
                        "m",
                        "0",
                        prefill_tokens_total=reading.prefill_tokens_total,
                        decode_tokens_total=0.0,
                        engine_steps_total=reading.engine_steps_total,
                        requests_running=1.0,
                    ),
                ),
                "vllm",
                snapshot.unix_seconds,
                snapshot.monotonic_seconds,
                quality=snapshot.quality,
            )

    last = busy_of(run(embedding())[-1])
    assert last.prefill == pytest.approx(295.0)


def test_a_pause_ends_what_is_waited_for() -> None:
    """An answer, an hour of nothing, and another one: the hour is nobody's."""
    quality = dict.fromkeys(LATE["decode late"], Quality.LAGGING)

    def page(number: int, prompts: float, decoded: float, steps: float, running: float) -> Snapshot:
        reading = EngineSnapshot(
            "m", "0", prefill_tokens_total=1000 * prompts, decode_tokens_total=decoded, engine_steps_total=steps,
            requests_running=running, kv_cache_usage_ratio=0.5, kv_cache_capacity_tokens=4000.0,
        )  # fmt: skip
        return Snapshot((reading,), "vllm", 1e9 + number * INTERVAL, number * INTERVAL, quality=quality)

    def snapshots() -> Iterator[Snapshot]:
        yield page(0, 0, 0, 0, 0)
        yield page(1, 1, 0, 500, 1)
        yield page(2, 1, 1001, 1001, 0)
        for number in range(3, 720):
            yield page(number, 1, 1001, 1001, 0)
        yield page(720, 2, 1001, 1500, 1)
        yield page(721, 2, 2002, 2002, 0)

    results = run(snapshots())
    before, last = busy_of(results[719]), busy_of(results[-1])
    assert last.unattributed == last.pending_seconds == 0.0
    assert last.prefill + last.decode - before.prefill - before.decode == pytest.approx(2 * INTERVAL)
    assert last.prefill - before.prefill < 0.1
    [engine] = results[720].tick_engines
    waits = engine.figures[BOOKINGS_ROW]
    assert waits.window is None
    assert waits.started_seconds == 719 * INTERVAL


# --- What one engine could do of each phase alone: by hand, by the ceilings of facts model-math A.3, and over recorded pages


PREFILL_OF_ENGINE, DECODE_OF_ENGINE = (f"phase_ceiling_tokens_per_second_{phase}" for phase in ("prefill", "decode"))
ONE, FOUR = Hardware(H100, Parallel(), 1.0), Hardware(H100, Parallel(4), 4.0)
SERVED_LLAMA = served(LLAMA_8B)
# 8B: matrices of the layers, lm_head (128,256 x 4,096), KV bytes of a token, attention FLOPs of a token and token of context
LAYERS, LM_HEAD, KV, ATTENTION = 6_979_321_856, 525_336_576, 131_072, 4 * 32 * 32 * 128
BF16_FLOPS, BANDWIDTH = 989.4e12, 3.35e12
GOLDENS = sorted((TESTS / "golden").glob("*.prom"))


def of(model: ModelFacts | Absence = SERVED_LLAMA, hardware: Hardware = ONE, **done: Any) -> Outcome:
    return roofline(window(**done), (), model, hardware)


def gauges(context: float, running: float, capacity: float) -> dict[str, float]:
    """Gauges of an engine whose `running` requests hold that much context each."""
    usage = context * running / capacity
    return {"requests_running": running, "kv_cache_usage_ratio": usage, "kv_cache_capacity_tokens": capacity}


def decoding(batch: float, context: float, capacity: float, **more: Any) -> dict[str, Any]:
    return {"decoded": 1000 * batch, "steps": 1000.0, **gauges(context, batch, capacity), **more}


@check_rows(
    ("limit", "facts"),
    [(None, 6244), (1024.0, 6244), (64.0, 6244), (32.0, 4345)],
    ids=["the KV cache alone", "the KV cache before the limit", "both", "the limit before the KV cache"],
)
def test_decode_of_llama_8b_on_one_h100_at_the_largest_batch(limit: float | None, facts: float) -> None:
    """Facts A.3, rows :239 and :240 of H100 FP16: 2,304 tokens of context; 64 sequences of them fit. One decodes now, at 218.8 tokens/s."""
    outcome = of(**decoding(1, 2304, 64 * 2304, batch_limit_requests=limit))
    assert outcome.roofline.phase_ceiling["decode"] == pytest.approx(facts, abs=0.5)
    assert outcome.roofline.decode_ceiling == pytest.approx(218.8, abs=0.05)
    assert outcome.signals[DECODE_OF_ENGINE] is Absence.AVAILABLE


def test_decode_of_llama_70b_fp8_on_four_h100_at_the_largest_batch() -> None:
    """Facts A.3, row :254 with 8-bit KV: 4,608 tokens of context, 190.7 tokens/s at batch 1 and 4,578 at 32."""
    model = served(LLAMA_70B, FP8, 1.0)
    found = of(model, FOUR, **decoding(1, 4608, 100 * 4608, batch_limit_requests=32.0)).roofline
    assert found.decode_ceiling == pytest.approx(190.7, abs=0.5)
    assert found.phase_ceiling == {"decode": pytest.approx(4578, abs=1)}


def test_prefill_of_llama_8b_by_hand() -> None:
    """60 prompts of 1,000 tokens, logits for the last of each; one GPU, and four as four ranks or as two stages of two."""
    prompt = 2 * LAYERS * 1000 + 2 * LM_HEAD + ATTENTION * 1000 * 1001 / 2
    done = {"steps": 60.0, "prompts": 60.0, "prefill": 60_000.0}
    outcome = of(**done)
    assert outcome.roofline.phase_ceiling == {"prefill": pytest.approx(1000 * BF16_FLOPS / prompt)}
    assert outcome.signals[PREFILL_OF_ENGINE] is Absence.AVAILABLE
    for parallel in (Parallel(4), Parallel(2, 2)):
        found = of(hardware=Hardware(H100, parallel, 4.0), **done).roofline.phase_ceiling
        assert found == {"prefill": pytest.approx(4 * 1000 * BF16_FLOPS / prompt)}
    # one prompt alone passes the two stages one after the other, and is no faster for the second
    alone = prefill_floor_seconds(roof(SERVED_LLAMA, H100, 2, 2), 1000)
    assert alone == pytest.approx(prompt / BF16_FLOPS / 2)


def test_prefill_behind_a_long_prefix_is_bound_by_reading_it() -> None:
    """10 tokens computed behind 30,000 that are in the cache: 1.17 ms to read them, 0.30 to compute."""
    done = {"steps": 60.0, "prompts": 60.0, "prefill": 600.0, "cached": 60 * 30_000.0}
    flops = 2 * LAYERS * 10 + 2 * LM_HEAD + ATTENTION * (10 * 30_000 + 55)
    reading = (30_000 + 10) * KV / BANDWIDTH
    assert reading > flops / BF16_FLOPS
    assert of(**done).roofline.phase_ceiling["prefill"] == pytest.approx(10 / reading)
    for parallel in (Parallel(4), Parallel(2, 2)):  # each rank and each stage reads its own part
        found = of(hardware=Hardware(H100, parallel, 4.0), **done).roofline.phase_ceiling["prefill"]
        assert found == pytest.approx(4 * 10 / reading)


def test_short_prompts_share_the_weights_of_a_step() -> None:
    """One prompt of 8 tokens takes as long as reading the weights; a thousand of them do not take a thousand times that."""
    found = of(steps=1.0, prompts=1000.0, prefill=8000.0).roofline.phase_ceiling["prefill"]
    assert found == pytest.approx(8 * BF16_FLOPS / (2 * LAYERS * 8 + 2 * LM_HEAD + ATTENTION * 36))


def test_what_decodes_now_fits_whatever_the_lengths_say() -> None:
    """Sixteen sequences share a prefix of 30,000 tokens in a cache of 100,000: by their lengths three would fit."""
    lengths = {"finished": 20.0, "prompt": 30_000.0, "output": 100.0}
    found = of(**{**decoding(16, 2500, 100_000), **lengths, "batch_limit_requests": 64.0}).roofline
    assert found.context.expected > 30_000
    assert found.phase_ceiling["decode"] == found.decode_ceiling


WINDOWED = flat(8e9, form=shape(GPT_OSS))


@check_rows("model", [WINDOWED, SERVED_LLAMA], ids=["no count of tokens", "not said"])
@check_rows(("limit", "most"), [(None, 32), (20.0, 20)])
def test_without_a_capacity_in_tokens_as_many_fit_as_fill_it_as_those_of_now_do(
    model: ModelFacts, limit: float | None, most: float
) -> None:
    """Eight requests take a quarter of the cache: 32 fit."""
    capacity = 1e6 if model is WINDOWED else None
    lengths = {"finished": 20.0, "prompt": 1000.0, "output": 100.0}
    now = {"requests_running": 8.0, "kv_cache_usage_ratio": 0.25, "kv_cache_capacity_tokens": capacity}
    work = {"decoded": 8000.0, "steps": 1000.0, **lengths, **now, "batch_limit_requests": limit}
    # the same lengths at that batch, decoding now
    full = {**work, "decoded": 1000.0 * most, "requests_running": most, "kv_cache_usage_ratio": most / 32}
    assert of(model, **work).roofline.phase_ceiling["decode"] == pytest.approx(
        of(model, **full).roofline.decode_ceiling
    )


def test_a_batch_limit_alone_says_nothing_about_memory() -> None:
    lengths = {"finished": 20.0, "prompt": 1000.0, "output": 100.0}
    outcome = of(decoded=8000.0, steps=1000.0, **lengths, batch_limit_requests=256.0)
    assert outcome.roofline.decode_ceiling is not None
    assert outcome.roofline.phase_ceiling == {}
    assert outcome.signals[DECODE_OF_ENGINE] is Absence.INPUT_MISSING


def test_speculation_counts_in_tokens_and_its_drafts_in_the_step() -> None:
    """Three drafts a sequence-step, one and a half of them accepted: 2.5 tokens a step, for the FLOPs of four."""
    spec = {"speculative_draft_tokens_total": 48_000.0, "speculative_accepted_tokens_total": 24_000.0}
    events = {"decode_tokens_total": 40_010.0, "time_to_first_token_seconds": all_of(1.0, 10)}
    now = decoding(16, 100, 1600, batch_limit_requests=16.0)
    found = of(**now, **spec, **events).roofline
    assert found.tokens_per_sequence_step == pytest.approx(2.5)
    assert found.phase_ceiling["decode"] == pytest.approx(2.5 * found.decode_ceiling)
    # an engine that says how many tokens a step yields, and observes an event for each
    said = of(**{**now, "decoded": 32_000.0, "prompts": 10.0, "prefill": 1000.0}, accepted_tokens_per_step=2.0).roofline
    assert said.phase_ceiling["decode"] == pytest.approx(2 * said.decode_ceiling)
    # several tokens in one event without speculation are several steps, not a better one
    batched = of(**now, **events).roofline
    assert batched.tokens_per_sequence_step == pytest.approx(2.5)
    assert batched.phase_ceiling["decode"] == batched.decode_ceiling


@check_rows(
    ("done", "prefill", "decode"),
    [
        ({}, Absence.IDLE, Absence.IDLE),
        ({"steps": 60.0, "prompts": 60.0, "prefill": 60_000.0}, Absence.AVAILABLE, Absence.IDLE),
        (decoding(4, 1000, 100_000), Absence.IDLE, Absence.AVAILABLE),
        ({"decoded": 4000.0, "steps": 1000.0, "prompts": 9.0, "prefill": 9000.0}, Absence.AVAILABLE, Absence.INPUT_MISSING),
    ],
    ids=["idle", "prefill only", "decode only", "context unknown"],
)  # fmt: skip
def test_a_phase_without_work_has_no_ceiling_and_says_why(
    done: dict[str, Any], prefill: Absence, decode: Absence
) -> None:
    outcome = of(**done)
    assert (outcome.signals[PREFILL_OF_ENGINE], outcome.signals[DECODE_OF_ENGINE]) == (prefill, decode)
    there = {phase for phase, why in (("prefill", prefill), ("decode", decode)) if not why}
    assert set(outcome.roofline.phase_ceiling) == there


@pytest.mark.parametrize(
    ("model", "hardware", "why"),
    [
        (Absence.MODEL_UNKNOWN, ONE, Absence.MODEL_UNKNOWN),
        (SERVED_LLAMA, Hardware(), Absence.GPUS_UNKNOWN),
        # its bandwidth is known, by NVML's clocks, and its FLOP/s are not
        (SERVED_LLAMA, Hardware(gpu("Unheard of", 3.35), Parallel(), 1.0), Absence.PEAK_UNKNOWN),
    ],
)
def test_what_is_not_known_is_no_capacity(model: ModelFacts | Absence, hardware: Hardware, why: Absence) -> None:
    outcome = of(model, hardware, **decoding(4, 1000, 100_000, prompts=10.0, prefill=10_000.0))
    assert outcome.roofline.phase_ceiling == {}
    assert (outcome.signals[PREFILL_OF_ENGINE], outcome.signals[DECODE_OF_ENGINE]) == (why, why)


def test_an_encoder_has_prefill_only() -> None:
    encoder = flat(1e9, form=shape(encoder=True))
    outcome = of(encoder, steps=20.0, prompts=20.0, prefill=40_000.0)
    expected = encoder_ceiling_tokens_per_second(roof(encoder), 2000)
    assert outcome.roofline.phase_ceiling == {"prefill": pytest.approx(expected)}
    assert outcome.signals[DECODE_OF_ENGINE] is Absence.NO_DECODE


@check_rows("golden", GOLDENS, ids=lambda path: path.stem)
def test_over_recorded_pages_no_rate_is_above_what_the_engine_could_do(golden: Path) -> None:
    """And the largest batch never does less than the batch of now, nor more than in proportion."""
    found: dict[tuple[str, str, str], float] = {
        (
            sample.name.removeprefix("llm_serving_"),
            sample.labels["engine"],
            sample.labels.get("phase", ""),
        ): sample.value
        for family in text_string_to_metric_families(golden.read_text())
        for sample in family.samples
        if "engine" in sample.labels
    }
    at_most = {key[1:]: value for key, value in found.items() if key[0] == "phase_ceiling_tokens_per_second"}
    for (number, phase), most in at_most.items():
        assert most >= found["phase_tokens_per_second", number, phase]
        if phase == "prefill":
            continue
        now, steps = found["decode_ceiling_tokens_per_second", number, ""], most
        if golden.stem == "vllm-0.32-spec":
            steps /= found["decode_tokens_per_sequence_step", number, ""]
        assert steps >= now * (1 - 1e-9)
        limit, batch = (found.get((name, number, "")) for name in ("batch_limit_requests", "batch_size_mean"))
        if limit and batch:
            assert steps <= now * max(1.0, limit / batch) * (1 + 1e-9)


def test_recorded_pages_have_both_phases() -> None:
    """What the test before this one looks at is there."""
    found = [
        sample.labels["phase"]
        for path in GOLDENS
        if path.stem.startswith("vllm-0.32")
        for family in text_string_to_metric_families(path.read_text())
        for sample in family.samples
        if sample.name == "llm_serving_phase_ceiling_tokens_per_second"
    ]
    for phase in ("prefill", "decode"):
        assert found.count(phase) >= 6
