"""GPU time of one engine, tick by tick: to a state, and its price to exactly one phase (design section 8)."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.derive.busy import LONGEST_PENDING_SECONDS
from llm_serving_exporter.model.cost import (
    Attribution,
    CostPhase,
    EngineTotals,
    GpuState,
    Method,
    Power,
    Price,
    TickWork,
    WindowCost,
)
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Role

JOULES_PER_KWH = 3.6e6
_PHASE_OF = {
    GpuState.IDLE: CostPhase.IDLE,
    GpuState.DOWN: CostPhase.DOWN,
    GpuState.UNKNOWN: CostPhase.UNATTRIBUTED,
}
_TO_NOBODY = {CostPhase.UNATTRIBUTED.value: 1.0}
Usd = Mapping[tuple[str, str, str], float]


def split_busy_time(how: Attribution, tick: TickWork, role: Role) -> Mapping[str, float] | None:
    """Weights of prefill and decode in a tick's busy time; empty where no token was booked that could carry it, None where the method
    cannot tell them apart at all."""
    prefill, decode = tick.prefill_tokens, tick.decode_tokens
    match how.method:
        case Method.ROOFLINE:
            return tick.seconds
        case Method.POOLS:
            return {role.value: 1.0} if role in (Role.PREFILL, Role.DECODE) else None
        case Method.OUTPUT_ONLY:
            return None if decode is None else {"decode": 1.0} if decode > 0 else {}
        case _:
            if prefill is None and decode is None:
                return None
            each = how.decode_to_prefill_ratio if how.method is Method.PRICE_RATIO else 1.0
            return {"prefill": prefill or 0.0, "decode": each * (decode or 0.0)}


def describe_inputs(how: Attribution) -> str:
    """What the method splits by, in words."""
    match how.method:
        case Method.ROOFLINE:
            eta = how.efficiency
            return f"model facts, GPU peaks, efficiency compute {eta.compute:g} bandwidth {eta.bandwidth:g}"
        case Method.POOLS:
            return "role of the replica"
        case Method.OUTPUT_ONLY:
            return "generated tokens"
        case Method.PRICE_RATIO:
            return f"a generated token weighs {how.decode_to_prefill_ratio:g} computed prompt tokens"
        case _:
            return "computed prompt tokens and generated tokens alike"


def advance_totals(
    before: EngineTotals,
    *,
    seconds: float,
    gpus: float,
    state: GpuState,
    price: Price | None,
    method: Method,
    shares: Mapping[str, float] | None,
    busy_share: float = 1.0,
    foreign: float = 0.0,
    new_life: bool = False,
) -> EngineTotals:
    """The counters after a tick of `seconds` of `gpus` GPUs. `shares`: as `split_busy_time` returns them, for a busy tick, of which
    `busy_share` was busy; the rest of it is idle. `foreign`: the part of the GPUs that others than engines take, which is nobody's work
    whatever the engine does.

    Busy time waits for tokens, because engines book a prompt when its first token comes out: at most five minutes, and not beyond the
    engine's own life (`new_life`: it ended in this tick).
    """
    rate = price.rate.name if price is not None else ""
    key = (state.value, rate)
    gpu_seconds = dict(before.gpu_seconds)
    if key not in gpu_seconds:  # all of them: an increase() over a counter that is born above 0 misses its first value
        gpu_seconds |= {(other.value, rate): 0.0 for other in GpuState}
    busy_share = busy_share if state is GpuState.BUSY else 1.0
    own_gpu_seconds = seconds * gpus * (1.0 - foreign)
    gpu_seconds[key] += own_gpu_seconds * busy_share
    gpu_seconds[GpuState.IDLE.value, rate] += own_gpu_seconds * (1.0 - busy_share)
    gpu_seconds[GpuState.UNKNOWN.value, rate] += seconds * gpus * foreign
    usd = dict(before.usd)
    worth = own_gpu_seconds * price.usd_per_gpu_hour / 3600.0 if price is not None else None
    if price is not None and (CostPhase.IDLE.value, rate, method.value) not in usd:
        usd |= {(phase.value, rate, method.value): 0.0 for phase in CostPhase}
    if price is not None and foreign:
        usd[CostPhase.UNATTRIBUTED.value, rate, method.value] += (
            seconds * gpus * foreign * price.usd_per_gpu_hour / 3600.0
        )
    pending = dict(before.pending_usd)
    waited = before.pending_seconds

    def settle(weights: Mapping[str, float]) -> None:
        nonlocal waited
        _book_pending(usd, pending, weights, method)
        waited = 0.0

    if new_life or state in (GpuState.DOWN, GpuState.UNKNOWN):
        settle(_TO_NOBODY)  # the tokens that would have carried it are gone
    if state is not GpuState.BUSY and worth is not None:
        usd[_PHASE_OF[state].value, rate, method.value] += worth
    if state is GpuState.BUSY and worth is not None:
        usd[CostPhase.IDLE.value, rate, method.value] += worth * (1.0 - busy_share)
        pending[rate] = pending.get(rate, 0.0) + worth * busy_share
    if pending:
        waited += seconds
        if state is GpuState.BUSY and shares is None:
            settle(_TO_NOBODY)
        elif state is GpuState.BUSY and shares and add_up(shares.values()) > 0:
            settle(shares)
        elif waited > LONGEST_PENDING_SECONDS:
            settle(_TO_NOBODY)
    return replace(before, gpu_seconds=gpu_seconds, usd=usd, pending_usd=pending, pending_seconds=waited)


def settle_pending(before: EngineTotals, method: Method) -> EngineTotals:
    """With what waits for tokens booked as unattributed: the engine is gone, and no tokens of it will tell."""
    if not before.pending_usd:
        return before
    usd, pending = dict(before.usd), dict(before.pending_usd)
    _book_pending(usd, pending, _TO_NOBODY, method)
    return replace(before, usd=usd, pending_usd=pending, pending_seconds=0.0)


def _book_pending(
    usd: dict[tuple[str, str, str], float], pending: dict[str, float], weights: Mapping[str, float], method: Method
) -> None:
    """Moves what is pending, by rate, to the phases by their weights."""
    total = add_up(weights.values())
    for rate, amount in pending.items():
        for phase, weight in weights.items():
            key = phase, rate, method.value
            usd[key] = usd.get(key, 0.0) + amount * weight / total
    pending.clear()


def add_savings(
    before: EngineTotals, *, cached_seconds: float | None, gpus: float, price: Price | None
) -> EngineTotals:
    """With what the prefix cache saved in a tick; unchanged where it is not known."""
    if cached_seconds is None or price is None:
        return before
    worth = cached_seconds * gpus * price.usd_per_gpu_hour / 3600.0
    return replace(before, savings_usd=(before.savings_usd or 0.0) + worth)


def add_energy(before: EngineTotals, *, joules: float | None, price: Price | None, power: Power | None) -> EngineTotals:
    """With the energy of a tick, its carbon where stated, and its cost where the rate leaves electricity out."""
    if joules is None:
        return before
    usd, grams = before.energy_usd, before.carbon_grams
    if power is not None:
        kwh = joules / JOULES_PER_KWH * power.pue
        if power.carbon_grams_per_kwh is not None:
            grams = (grams or 0.0) + kwh * power.carbon_grams_per_kwh
        if price is not None and not price.rate.includes_power and power.usd_per_kwh is not None:
            usd = (usd or 0.0) + kwh * power.usd_per_kwh
    used = (before.energy_joules or 0.0) + joules
    return replace(before, energy_joules=used, energy_usd=usd, carbon_grams=grams)


def usd_by_phase(usd: Usd) -> dict[str, float]:
    """Summed over rates and methods; empty before the first price."""
    totals: dict[str, float] = {}
    for (phase, _rate, _method), amount in usd.items():
        totals[phase] = totals.get(phase, 0.0) + amount
    return totals


def usd_per_million_tokens(
    usd: Mapping[str, float], *, prefill_tokens: float | None, decode_tokens: float | None, prompt_tokens: float | None
) -> dict[tuple[str, str], float]:
    """By phase (prefill, decode, blended) and basis (busy, allocated), from the cost by phase and the tokens of one span.

    `prefill_tokens` computed, `prompt_tokens` as sent; None where not counted. A phase without tokens has no price. Nothing has one where
    no busy time could be split: what the tokens took is not known then, which is not 0.
    """
    prices: dict[tuple[str, str], float] = {}
    everything = add_up(usd.values())
    working = usd.get("prefill", 0.0) + usd.get("decode", 0.0)
    if working <= 0:
        return prices
    for phase, tokens in (("prefill", prefill_tokens), ("decode", decode_tokens)):
        if tokens and phase in usd:
            prices[phase, "busy"] = 1e6 * usd[phase] / tokens
            prices[phase, "allocated"] = 1e6 * usd[phase] * everything / working / tokens
    if prompt_tokens is not None and decode_tokens is not None and prompt_tokens + decode_tokens > 0:
        tokens = prompt_tokens + decode_tokens
        prices["blended", "busy"] = 1e6 * working / tokens
        prices["blended", "allocated"] = 1e6 * everything / tokens
    return prices


def window_cost(
    usd: Mapping[str, float],
    *,
    prefill_tokens: float | None,
    decode_tokens: float | None,
    prompt_tokens: float | None,
    requests: float | None,
    joules: float | None,
) -> WindowCost:
    """The window's figures from its cost by phase (empty without a price), tokens, finished requests and energy."""
    tokens = None
    if prompt_tokens is not None and decode_tokens is not None:
        tokens = prompt_tokens + decode_tokens
    everything = add_up(usd.values())
    return WindowCost(
        usd_per_million_tokens(
            usd, prefill_tokens=prefill_tokens, decode_tokens=decode_tokens, prompt_tokens=prompt_tokens
        ),
        tokens_per_usd=tokens / everything if tokens and everything > 0 else None,
        # a price is above 0: where nothing was booked, it waits for its tokens
        usd_per_request=everything / requests if requests and everything > 0 else None,
        joules_per_token=joules / tokens if tokens and joules is not None else None,
    )
