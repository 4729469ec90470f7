"""Busy time is split as it was spent, whenever the engine books what it did: an engine of our own, of which every second is known."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

import pytest

from llm_serving_exporter.derive.busy import BOOKINGS_ROW, LONGEST_PENDING_SECONDS
from llm_serving_exporter.derive.derive import DeriveSettings, Tick
from llm_serving_exporter.derive.roof import decode_ceiling
from llm_serving_exporter.derive.window import advance_window, find_spans
from llm_serving_exporter.derive.work import compute_seconds, prefill_flops
from llm_serving_exporter.model.derived import BusySeconds
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.snapshot import EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.window import Window
from tests.support.builders.windows import all_of
from tests.support.models.roofs import H100, LLAMA_8B, roof, served
from tests.support.quick import keep_quick
from tests.support.rows import check_rows

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
