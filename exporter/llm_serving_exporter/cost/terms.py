"""What of a reading counts for the cost of a tick, at which price, and why not (design section 8)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from llm_serving_exporter.cost.window import WindowFigures
from llm_serving_exporter.model.cost import (
    Attribution,
    EngineTotals,
    GpuState,
    Price,
    PriceBook,
    PriceStatement,
    Scope,
    TickWork,
)
from llm_serving_exporter.model.later import Later
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.model.target import Role

# how gpus/attribution.py joins the kinds of a target with GPUs of several
_JOINS_KINDS = " + "
# and what it calls a slice of a card: "H100 SXM 80GB MIG 1g.10gb", "Instinct MI300X part 1/8"
_SLICES = (" MIG", " part 1/")


def find_price(
    book: PriceBook, target: str, nodes: Sequence[str], gpu_name: str, at_unix_seconds: float
) -> Price | Absence:
    """The price of one GPU of the target at a time. `nodes`: those it spans, () = not known; `gpu_name`: as `target_gpus` has it.

    NO_PRICE where nothing is stated that has begun; PRICE_AMBIGUOUS where its nodes, or its several kinds of GPU, cost differently.
    """
    of_target = _in_force(book, Scope.TARGET, target, at_unix_seconds)
    if of_target is not None:
        return _price(book, of_target)
    kinds = {_of_kind(book, kind, at_unix_seconds) for kind in gpu_name.split(_JOINS_KINDS)}
    statements: set[PriceStatement | None] = set()
    for node in nodes or ("",):
        of_node = _in_force(book, Scope.NODE, node, at_unix_seconds)
        statements |= kinds if of_node is None else {of_node}
    terms = {None if one is None else (one.usd_per_gpu_hour, one.rate) for one in statements}
    if len(terms) > 1:
        return Absence.PRICE_AMBIGUOUS
    statement = statements.pop()
    return Absence.NO_PRICE if statement is None else _price(book, statement)


def _of_kind(book: PriceBook, kind: str, at: float) -> PriceStatement | None:
    """A slice has the price of its card, of which its target has a share."""
    statement = _in_force(book, Scope.GPU_MODEL, kind, at)
    card = kind
    for mark in _SLICES:
        card = card.partition(mark)[0]
    return statement or _in_force(book, Scope.GPU_MODEL, card, at)


def _in_force(book: PriceBook, scope: Scope, value: str, at: float) -> PriceStatement | None:
    """The statement with the latest beginning that has passed."""
    begun = [
        (-math.inf if statement.from_unix_seconds is None else statement.from_unix_seconds, statement)
        for statement in book.statements
        if statement.scope is scope and statement.value == value
    ]
    return max((found for found in begun if found[0] <= at), key=lambda found: found[0], default=(0.0, None))[1]


def _price(book: PriceBook, statement: PriceStatement) -> Price:
    rate = next(rate for rate in book.rates if rate.name == statement.rate)
    return Price(statement.usd_per_gpu_hour, rate)


# --- What counts.


_STATES = {
    State.READY: GpuState.IDLE,  # or busy, by its pages
    State.LOADING: GpuState.IDLE,
    State.SLEEPING: GpuState.IDLE,
    State.DOWN: GpuState.DOWN,
    State.UNKNOWN: GpuState.UNKNOWN,
}
# signals, and what they are worked out from beside the price
COST, SECONDS = "cost_usd_total", "gpu_seconds_total"
PER_MILLION, PER_REQUEST = "cost_usd_per_million_tokens", "cost_usd_per_request_mean"
ENERGY, PER_TOKEN, SAVINGS = "energy_joules_total", "energy_joules_per_token", "prefix_cache_savings_usd_total"
SIGNALS = (COST, SECONDS, PER_MILLION, PER_REQUEST, SAVINGS, ENERGY, PER_TOKEN)


Key = tuple[str, str, str]


class Terms(Struct, frozen=True):
    """What a tick is priced and split by."""

    book: PriceBook | None  # None: no price file, or none that could be used so far
    how: Attribution  # how busy time is split between prefill and decode
    window_seconds: float  # of the figures per token and request
    no_book: Absence = Absence.NOT_CONFIGURED  # why there is no cost where `book` is None
    claimed_twice: bool = False  # another target has the same GPUs, and their shares are not stated or do not add up


def explain_uncounted(reading: TargetReading, terms: Terms) -> Absence | None:
    """Why GPU time cannot be counted; None where it can."""
    if reading.role is Role.FRONTEND:
        return Absence.OTHER_ROLE
    if reading.target.gpus == ():
        return Absence.NOT_CONFIGURED
    if reading.gpus.total is None:
        return Absence.GPUS_UNKNOWN
    # prices are stated for whole cards
    if terms.claimed_twice or reading.gpu_share is None:
        return Absence.GPU_CLAIMED_TWICE
    return None


def find_price_of(reading: TargetReading, terms: Terms, unix: float) -> Price | Absence:
    """The price of the target's GPUs at this time, or why there is none."""
    if terms.book is None:
        return terms.no_book
    assert reading.gpus.total is not None
    target = reading.target
    return find_price(terms.book, target.name, target.nodes, reading.gpus.total.name, unix)


def select_engines(reading: TargetReading) -> list[EngineSnapshot]:
    """Engines of the last good page that run on GPUs; where the page does not show which of its parts do, its first part."""
    assert reading.page.snapshot is not None
    every = list(reading.page.snapshot.engines)
    return [engine for engine in every if engine.is_engine] or every[:1]


def collect_work(reading: TargetReading) -> dict[tuple[str, str], TickWork]:
    """What each engine of this tick's page did; {} where there is no such page."""
    if not reading.page.up or reading.page.derivation is None:
        return {}
    return {
        (engine.model_name, engine.engine): engine.tick
        for engine in reading.page.derivation.tick_engines
        if engine.tick is not None
    }


def judge_state(reading: TargetReading, tick: TickWork | None, *, busy: bool) -> GpuState:
    """What the GPUs are counted as: `tick` is what the engine did, None where no page says; `busy`: whether it worked."""
    if reading.server.state is not State.READY:
        return _STATES[reading.server.state]
    if (
        reading.page.derivation is not None
        and reading.page.derivation.why_absent("decode_tokens_total") is Absence.NO_METRICS
    ):
        return GpuState.UNKNOWN  # the page does not say whether the engine works
    if tick is None:
        return GpuState.UNKNOWN
    return GpuState.BUSY if busy else GpuState.IDLE


def list_absences(
    signals: Mapping[str, Absence],
    windows: Sequence[Later[WindowFigures]],
    totals: Sequence[EngineTotals],
    *,
    counts_cached: bool,
    whole: bool,
) -> Mapping[str, Absence]:
    """`signals` with why each figure is absent. Without a price every figure in USD is: the old ones are not of now.

    `windows` and `totals` of the engines; `counts_cached`: whether an engine tells what its prefix cache saved; `whole`: whether all of the
    target's GPUs are seen here.
    """
    priced, figures = signals[COST], [each.value for each in windows]
    saved = any(each.savings_usd is not None for each in totals)
    energy = any(each.energy_joules is not None for each in totals)
    used = Absence.AVAILABLE if energy else Absence.NOT_EXPORTED if whole else Absence.GPUS_UNKNOWN
    not_saved = Absence.WARMING_UP if counts_cached else Absence.INPUT_MISSING
    return {
        **signals,
        PER_MILLION: priced or _choose_reason(each.tokens for each in figures),
        PER_REQUEST: priced or _choose_reason(each.requests for each in figures),
        SAVINGS: priced or (Absence.AVAILABLE if saved else not_saved),
        ENERGY: used,
        PER_TOKEN: used or _choose_reason(each.joules for each in figures),
    }


def _choose_reason(reasons: Iterable[Absence]) -> Absence:
    """AVAILABLE where one of the engines has the figure; else the first engine's reason; TARGET_DOWN without engines."""
    every = list(reasons)
    return Absence.AVAILABLE if Absence.AVAILABLE in every else next(iter(every), Absence.TARGET_DOWN)
