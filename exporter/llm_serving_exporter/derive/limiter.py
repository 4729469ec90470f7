"""What bounds a target's throughput now: a decision table over evidence, and a verdict that does not flap.

The first row that holds; docs/internals-limiter.md has the table with its reasons and what to do about each state.

| state | holds when |
|---|---|
| unknown | the engine says nothing of its requests, or has been read only once |
| stalled | requests run or wait and nothing moves for longer than the longest prefill: LLMServingStalled's condition |
| starved | it works less than a tenth of the time and nothing waits |
| prefill_interference | compute's threshold is met by work that is half prefill or more, while decode alone is bound by bandwidth and its steps take three times their floor or more |
| power | a cap on power or heat holds the clock down for most of the time, memory is not near its peak, and one of compute, bandwidth and overhead would hold |
| compute | the FLOPs need a quarter of the time or more at peak, less where prompts are all the work, and compute is nearer to what kernels reach than bandwidth is |
| kv_capacity | requests wait and the KV cache is full, or has no room for a usual prompt while the batch has, or sequences are preempted, often or while others wait |
| batch_limit | requests wait and the batch is at its limit |
| transfer | requests are deferred, and the page shows a KV connector or the role is decode |
| blocked | requests are deferred for a reason that the page does not name |
| attention | what attention looks at of the KV cache is twice as much as is read of it, or more, and memory moves at less than half of its peak |
| bandwidth | memory moves at 0.4 of its peak or more while the engine works |
| overhead | both ratios are known and low |
| unknown | they are not |
"""  # noqa: E501

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from llm_serving_exporter.catalogue import roofline as names
from llm_serving_exporter.catalogue.standstill import SPAN_SECONDS as STALLED_AFTER_SECONDS
from llm_serving_exporter.derive.bandwidth import (
    ACHIEVED,
    ACTIVATIONS,
    ATTENDED,
    CEILING,
    EXPERTS,
    MEASURED,
    MODEL_RANGE,
    RATIOS,
    STEP_BYTES,
    choose_ratio,
)
from llm_serving_exporter.derive.busy import BUSY_RATIO
from llm_serving_exporter.derive.compute import (
    BATCH,
    CAPACITY,
    COMPUTE_RATIO,
    CONTEXT,
    DECODE_RATIO,
    FLOPS_PER_SECOND,
    INTENSITY,
    PREFILL_CAPACITY,
    RIDGE,
    STEPS,
    TOKENS_PER_STEP,
    WEIGHTS_RIDGE,
)
from llm_serving_exporter.derive.compute import CEILING as DECODE_CEILING
from llm_serving_exporter.derive.devices import find_cap
from llm_serving_exporter.derive.figures import DEVICES, SETTINGS, Figure, figure, given
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row, Shown
from llm_serving_exporter.derive.standstill import Standstill, measure_standstill
from llm_serving_exporter.derive.steps import ITL, busy_ratio
from llm_serving_exporter.model.derived import BandwidthSource, Cap, Cause, Limiter, Range, Roofline, Verdict
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.window import EngineWindow

# --- The roofline of one engine, as the limiter and the pages read it: out of the rows that its role shows.


# what the limiter reads where compute may be what binds, beside the rows that are worked out at every tick
REST = (ACTIVATIONS, DECODE_CEILING, DECODE_RATIO, RIDGE, BATCH, BUSY_RATIO)
NO_CAUSES: Mapping[str, Cause] = MappingProxyType({})


def gather_roofline(shown: Shown, causes: Mapping[str, Cause] = NO_CAUSES) -> Roofline:
    """The roofline of the values that are shown; what is not among them is None. `causes`: of the engine's suspect signals."""
    ceiling, done, context = shown.get(DECODE_CEILING), shown.get(STEPS), shown.get(CONTEXT)
    return Roofline(
        achieved=shown.by_key(ACHIEVED),
        ratio=shown.by_key(RATIOS),
        bandwidth_ceiling=shown.get(CEILING),
        model_ratio_range=shown.get(MODEL_RANGE),
        activation_ratio=shown.get(ACTIVATIONS),
        decode_ceiling=ceiling.tokens_per_second if ceiling else None,
        decode_ceiling_upper=ceiling.read_once_tokens_per_second if ceiling else None,
        decode_ratio=shown.get(DECODE_RATIO),
        attended_kv_ratio=shown.get(ATTENDED),
        compute_ratio=shown.get(COMPUTE_RATIO),
        flops_per_second=shown.get(FLOPS_PER_SECOND),
        intensity_flops_per_byte=shown.get(INTENSITY),
        ridge_flops_per_byte=ceiling.ridge_flops_per_byte if ceiling else None,
        batch_ridge=shown.get(RIDGE),
        weights_ridge=shown.get(WEIGHTS_RIDGE),
        steps_per_second=done.steps.count / done.elapsed_seconds if done else None,
        steps_counted=done.steps.counted if done else True,
        batch=shown.get(BATCH),
        context=context[0] if context else None,
        context_source=context[1] if context else "",
        step_bytes=shown.get(STEP_BYTES) or {},
        experts=shown.get(EXPERTS),
        tokens_per_sequence_step=shown.get(TOKENS_PER_STEP),
        step_floor_seconds=ceiling.step_seconds if ceiling else None,
        phase_ceiling=shown.by_key({"prefill": PREFILL_CAPACITY, "decode": CAPACITY}),
        phase_busy_ratio=shown.get(BUSY_RATIO) or {},
        causes=causes,
    )


# --- The verdict.


# what good kernels reach of the peak (facts model-math D.8): triad 0.87-0.95 of HBM, GEMM 0.71-0.87 of the dense rate
REACHABLE_BANDWIDTH, REACHABLE_COMPUTE = 0.9, 0.75
# facts model-math F: MLPerf's saturated replicas (rows 26-28) lie at 0.28-0.51 of compute and 0.12-0.17 of bandwidth;
# single-GPU decode (rows 1-5) at 0.42-0.69 of bandwidth, latency-bound replicas (rows 8, 20, 22, 34) below 0.35
COMPUTE_FROM, BANDWIDTH_FROM = 0.25, 0.4
# sequences that share a prefix look at it for each of them, which the chip's cache gives at a rate of its own: on an H100 prefixes of 4k
# tokens for 48 and 64 sequences left memory at 0.35 to 0.47 of its peak, and one of 1k at 0.60 (tests/truth/test_h100.py)
ATTENDED_FROM, BANDWIDTH_OF_ATTENTION_BELOW = 2.0, 0.5
# kernels of prompts reach less on cards without fast paths for what is stored (4-bit weights: 0.18-0.23 on an RTX 4090 and an RTX PRO
# 6000, tests/truth/states.toml); nothing but a prompt's matrices and attention takes the time there
PROMPTS_ALONE_FROM, COMPUTE_OF_PROMPTS_FROM = 0.9, 0.15
STARVED_BELOW, WAITING_FROM = 0.1, 0.5
# three within a minute: sequences that are preempted wait for too short a time to be seen waiting; a single one is a burst
PREEMPTIONS_FROM = 0.05
KV_FULL_FROM, BATCH_FULL_FROM = 0.95, 0.95
# a usual prompt that waits over what is free of the KV cache: from here on it does not fit
PROMPT_FITS_BELOW = 1.0
# decode without prefill takes 1.4 to 2.2 times its floor on up to four GPUs (rows 1-6, 9, 16-18); as much prefill in between doubles that
PREFILL_SHARE_FROM, DECODE_SLOWDOWN_FROM = 0.5, 3.0
# from here on decode is bound by compute by itself (rows 26-28): prefill beside it is more of the same, not interference
RIDGE_REACHED_FROM = 1.0
# of the window: from here on a cap holds the clock for most of the time; memory nearer to its peak than that binds whatever the clock is
HELD_ABOVE, DRAM_BELOW = 0.5, 0.75
# where requests wait for room in a full batch below the ridge, compute has to be this near to what kernels reach to be what binds: a larger
# batch gives more tokens there (256 sequences of a Llama-8B on an H100 compute 0.45 to 0.5 of the peak)
FULL_COMPUTE_FROM = 0.6
# the state in force keeps its place until its own thresholds are missed by this share ...
MARGIN = 0.1
# ... and until another has held for this long, or the evidence has said anything but it for this long
HOLD_SECONDS, LONGEST_DOUBT_SECONDS = 15.0, 60.0

Evidence = Mapping[str, float]
# what is averaged over readings
GAUGES = ("requests_running", "requests_waiting", "kv_cache_usage_ratio")
# without these there may be no verdict; of the sources of bandwidth each target may have the model
_GIVEN_BY = {"busy": "requests_running", "bandwidth": RATIOS[BandwidthSource.MODEL].name, "compute": COMPUTE_RATIO.name}


class Judged(Struct, frozen=True):
    """One engine, as far as the limiter looks at it."""

    live: EngineWindow  # of what is averaged over readings
    roofline: Roofline  # how near it is to its ceilings: ratios of bandwidth and of compute
    worked: EngineWindow  # of the roofline's own work; longer where that is booked late
    contradicted: bool = False  # whether its counters exclude what its gauge of running requests shows
    standstill: Standstill | None = None  # since when nothing has moved; None: it does not say so at once
    prompt_tokens: float | None = None  # mean prompt of its last finished requests
    # what of a page's KV connector follows from the role: decode gets its prompts' KV from another engine
    receives_kv: bool = False
    # has the share of the peak bandwidth that our arithmetic says, which is read only where a cap holds the clock; None: nothing does
    find_range: Callable[[], Range | Absence | None] | None = None
    # has the rest of the roofline, which is worked out only where it may decide: decode's ratio, floor and ridge, phases; None: it is in
    # `roofline`
    find_rest: Callable[[], Roofline] | None = None


def gather_evidence(
    engines: Sequence[Judged], stalled_after_seconds: float = STALLED_AFTER_SECONDS, cap: Cap | None = None
) -> dict[str, float]:
    """The numbers that the table always reads, over the engines of one target; what is not known is not there.

    `bandwidth` and `compute` are over the time in which the engines worked that have them, `busy` is the mean over all. Where requests
    wait, `kv_cache_usage` and `batch_utilization` are the fullest engine's that has them waiting, else the fullest of all.
    `attended_kv`, `next_prompt_kv` and `kv_connector` are the largest, `requests_waiting`, `requests_deferred` and
    `preemptions_per_second` sums. Ratios above 1 are wrong and not used. Where a `cap` held the clock for half of the time it
    is there with the clock, and with `dram`: memory bandwidth as measured, else the most that it may be.
    """
    evidence: dict[str, float] = {}
    judged = [engine for engine in engines if engine.live.elapsed_seconds > 0]
    still = [engine.standstill for engine in judged if engine.standstill is not None]
    _add(evidence, "standstill_seconds", [measure_standstill(each, stalled_after_seconds) for each in still], max)
    both = [(engine.live, engine.roofline) for engine in judged]
    _add(evidence, "busy", [busy_ratio(engine) for engine, _ in both], _mean)
    busy = [busy_ratio(engine.worked) for engine in judged]
    waiting = [engine.mean("requests_waiting") for engine, _ in both]
    _add(evidence, "requests_waiting", waiting, sum)
    queued = [
        engine for engine, value in zip(judged, waiting, strict=True) if value and value >= WAITING_FROM
    ] or judged
    pools = ("kv_cache_usage_ratio", "state_cache_usage_ratio")
    _add(
        evidence,
        "kv_cache_usage",
        [_drop_impossible(engine.live.mean(pool)) for engine in queued for pool in pools],
        max,
    )
    _add(evidence, "batch_utilization", [_batch(engine.live) for engine in queued if not engine.contradicted], max)
    if evidence.get("requests_waiting", 0.0) >= WAITING_FROM:
        _add_of_waiting(evidence, queued)
    _add(evidence, "preemptions_per_second", [_rate(engine, "preemptions_total") for engine, _ in both], sum)
    _add_per_working_time(evidence, "bandwidth", [choose_ratio(roof.ratio) for _, roof in both], busy)
    _add(evidence, "attended_kv", [roof.attended_kv_ratio for _, roof in both], max)
    _add_per_working_time(evidence, "compute", [_drop_impossible(roof.compute_ratio) for _, roof in both], busy)
    if cap is not None and cap.share > HELD_ABOVE * (1 - MARGIN):
        evidence[f"held_by_{cap.reason}"], evidence["sm_clock"] = cap.share, min(1.0, cap.sm_hertz / cap.sm_max_hertz)
        _add_per_working_time(evidence, "dram", [_find_dram(engine) for engine in judged], busy)
    return evidence


def _find_dram(one: Judged) -> float | None:
    """Share of the peak bandwidth, measured, else the most that it may be; None where neither is known."""
    measured = [value for source in MEASURED if (value := one.roofline.ratio.get(source.value)) is not None]
    if measured:
        return measured[0]
    estimated = one.find_range() if one.find_range is not None else None
    return estimated.upper if isinstance(estimated, Range) else None


def _add_of_waiting(evidence: dict[str, float], queued: Sequence[Judged]) -> None:
    """What is known of the requests that wait: by the reasons that pages give, and by whether the next of them would fit."""
    deferred = add_up(engine.live.mean("requests_deferred") or 0.0 for engine in queued)
    if deferred > 0:
        evidence["requests_deferred"] = deferred
    if deferred >= WAITING_FROM:
        connected = any(engine.receives_kv or engine.live.last.kv_connector for engine in queued)
        evidence["kv_connector"] = 1.0 if connected else 0.0
    _add(evidence, "next_prompt_kv", [_fill_by_next_prompt(engine) for engine in queued], max)


def _fill_by_next_prompt(one: Judged) -> float | None:
    """Estimated KV of a usual prompt that waits / what is free, at least a token. None where a part is not known."""
    last, usage = one.live.last, _drop_impossible(one.live.mean("kv_cache_usage_ratio"))
    if one.prompt_tokens is None or usage is None or not last.kv_cache_capacity_tokens:
        return None
    queries, hits = one.worked.increase("prefix_cache_queries"), one.worked.increase("prefix_cache_hits")
    hit = min(1.0, hits / queries) if queries and hits is not None else 0.0
    need, free = one.prompt_tokens * (1.0 - hit), (1.0 - usage) * last.kv_cache_capacity_tokens
    return need / max(free, 1.0)


def gather_rest(engines: Sequence[Judged]) -> dict[str, float]:
    """The numbers that the table reads only where compute may be what binds: means over the engines, `activations` per working time."""
    evidence: dict[str, float] = {}
    there = [engine for engine in engines if engine.live.elapsed_seconds > 0]
    judged = [(engine.worked, engine.find_rest() if engine.find_rest else engine.roofline) for engine in there]
    _add(evidence, "prefill_busy", [roof.phase_busy_ratio.get("prefill") for _, roof in judged], _mean)
    if evidence.get("prefill_busy", 0.0) >= PROMPTS_ALONE_FROM * (1 - MARGIN):
        worked = [busy_ratio(engine.worked) for engine in there]
        _add_per_working_time(evidence, "activations", [roof.activation_ratio for _, roof in judged], worked)
    of_ridge = [roof.batch / roof.batch_ridge for _, roof in judged if roof.batch and roof.batch_ridge]
    _add(evidence, "batch_of_ridge", of_ridge, _mean)
    _add(evidence, "decode_slowdown", [_slowdown(worked, roof) for worked, roof in judged], _mean)
    return evidence


def _mean(values: Sequence[float]) -> float:
    return add_up(values) / len(values)


def _add(
    evidence: dict[str, float], name: str, values: Sequence[float | None], how: Callable[[list[float]], float]
) -> None:
    present = [value for value in values if value is not None]
    if present:
        evidence[name] = float(how(present))


def _add_per_working_time(
    evidence: dict[str, float], name: str, ratios: Sequence[float | None], busy: Sequence[float | None]
) -> None:
    """An engine that did next to nothing is left out: what its GPU moved in that time is not its work."""
    present = [
        (ratio, 1.0 if worked is None else worked)
        for ratio, worked in zip(ratios, busy, strict=True)
        if ratio is not None and (worked is None or worked >= STARVED_BELOW)
    ]
    if present:
        # the busy share is of a few readings: it can come out below what the ratio says
        evidence[name] = min(1.0, add_up(ratio for ratio, _ in present) / add_up(worked for _, worked in present))


def _drop_impossible(ratio: float | None) -> float | None:
    return ratio if ratio is not None and ratio <= 1 else None


def _batch(window: EngineWindow) -> float | None:
    limit, running = window.last.batch_limit_requests, window.mean("requests_running")
    return running / limit if limit and running is not None else None


def _rate(window: EngineWindow, field: str) -> float | None:
    grown = window.increase(field)
    return grown / window.elapsed_seconds if grown is not None else None


def _slowdown(window: EngineWindow, roofline: Roofline) -> float | None:
    """Mean inter-token latency over the floor of a step that decodes only; not where decode outran its ceiling."""
    if not roofline.step_floor_seconds or _drop_impossible(roofline.decode_ratio) is None:
        return None
    gained = window.grown(ITL)
    mean = gained.mean() if gained is not None else None
    return mean / roofline.step_floor_seconds if mean is not None else None


def decide_limiter(
    evidence: Evidence, current: Limiter | None = None, ask_rest: Callable[[], Evidence] | None = None
) -> Limiter:
    """The first row of the table that holds. `current` has its thresholds eased by MARGIN.

    `ask_rest`: has what `gather_rest` finds, where `evidence` lacks it; asked only where it may decide.
    """

    def is_at_least(name: str, threshold: float, state: Limiter) -> bool:
        eased = threshold * (1 - MARGIN) if state is current else threshold
        value = evidence.get(name)
        return value is not None and value >= eased

    def is_below(name: str, threshold: float, state: Limiter) -> bool:
        eased = threshold * (1 + MARGIN) if state is current else threshold
        return evidence.get(name, 0.0) < eased

    if "busy" not in evidence:
        return Limiter.UNKNOWN
    if "standstill_seconds" in evidence:
        return Limiter.STALLED
    waiting = evidence.get("requests_waiting", 0.0) >= WAITING_FROM
    deferred = evidence.get("requests_deferred", 0.0)
    # of those that wait, the ones that room for them would help
    for_room = evidence.get("requests_waiting", 0.0) - deferred >= WAITING_FROM
    if is_below("busy", STARVED_BELOW, Limiter.STARVED) and not waiting:
        return Limiter.STARVED
    capped: Limiter | None = None
    if max(evidence.get("held_by_power", 0.0), evidence.get("held_by_thermal", 0.0)) > HELD_ABOVE * (
        1 - MARGIN if current is Limiter.POWER else 1
    ):
        # where nobody knows whether memory binds, nobody knows whether the cap does
        capped = Limiter.UNKNOWN if "dram" not in evidence else None
        capped = Limiter.POWER if capped is None and is_below("dram", DRAM_BELOW, Limiter.POWER) else capped
    interference = Limiter.PREFILL_INTERFERENCE
    may_interfere = is_at_least("compute", COMPUTE_FROM, interference)
    if ask_rest is not None and (may_interfere or is_at_least("compute", COMPUTE_OF_PROMPTS_FROM, Limiter.COMPUTE)):
        evidence = {**evidence, **ask_rest()}
    if (
        may_interfere
        and is_at_least("prefill_busy", PREFILL_SHARE_FROM, interference)
        and is_at_least("decode_slowdown", DECODE_SLOWDOWN_FROM, interference)
        and is_below("batch_of_ridge", RIDGE_REACHED_FROM, interference)
    ):
        return interference
    batch_is_full = is_at_least("batch_utilization", BATCH_FULL_FROM, Limiter.BATCH_LIMIT)
    bandwidth, compute = evidence.get("bandwidth"), evidence.get("compute")
    if bandwidth is not None and compute is not None:
        prompts_alone = is_at_least("prefill_busy", PROMPTS_ALONE_FROM, Limiter.COMPUTE)
        # what a prompt's activations move was fitted on one card: it does not decide whether a prompt's FLOPs bind on another
        believed = bandwidth - evidence.get("activations", 0.0) if prompts_alone else bandwidth
        nearer_compute = compute / REACHABLE_COMPUTE > believed / REACHABLE_BANDWIDTH
        threshold = COMPUTE_OF_PROMPTS_FROM if prompts_alone else COMPUTE_FROM
        if for_room and batch_is_full and is_below("batch_of_ridge", RIDGE_REACHED_FROM, Limiter.COMPUTE):
            threshold = FULL_COMPUTE_FROM
        if nearer_compute and is_at_least("compute", threshold, Limiter.COMPUTE):
            return capped or Limiter.COMPUTE
    preempted = evidence.get("preemptions_per_second", 0.0) > 0
    if (preempted and waiting) or is_at_least("preemptions_per_second", PREEMPTIONS_FROM, Limiter.KV_CAPACITY):
        return Limiter.KV_CAPACITY
    if for_room and (
        is_at_least("kv_cache_usage", KV_FULL_FROM, Limiter.KV_CAPACITY)
        or (not batch_is_full and is_at_least("next_prompt_kv", PROMPT_FITS_BELOW, Limiter.KV_CAPACITY))
    ):
        return Limiter.KV_CAPACITY
    if for_room and batch_is_full:
        return Limiter.BATCH_LIMIT
    if deferred >= WAITING_FROM:
        return Limiter.TRANSFER if evidence.get("kv_connector", 0.0) > 0 else Limiter.BLOCKED
    if (
        bandwidth is not None
        and is_at_least("attended_kv", ATTENDED_FROM, Limiter.ATTENTION)
        and is_below("bandwidth", BANDWIDTH_OF_ATTENTION_BELOW, Limiter.ATTENTION)
    ):
        return Limiter.ATTENTION
    if capped is not None:
        return capped
    if is_at_least("bandwidth", BANDWIDTH_FROM, Limiter.BANDWIDTH):
        return Limiter.BANDWIDTH
    return Limiter.OVERHEAD if bandwidth is not None and compute is not None else Limiter.UNKNOWN


def list_lacking_signals(evidence: Evidence) -> tuple[str, ...]:
    """The signals that would have given what evidence without a verdict lacks, in the order in which the table asks for it."""
    return tuple(signal for name, signal in _GIVEN_BY.items() if name not in evidence)


def judge_limiter(
    evidence: Evidence,
    previous: Verdict | None,
    now_monotonic_seconds: float,
    ask_rest: Callable[[], Evidence] | None = None,
    cap: Cap | None = None,
) -> Verdict:
    """The verdict after another tick: the state changes once another candidate has held for HOLD_SECONDS.

    Candidates that take turns hold for none; after LONGEST_DOUBT_SECONDS without a word for the state in force the one of now takes
    its place. `unknown` gives way at once. `cap`: what held the clock, for whoever shows the verdict.
    """
    now = now_monotonic_seconds
    candidate = decide_limiter(evidence, previous.state if previous else None, ask_rest)
    if previous is None or previous.state in (candidate, Limiter.UNKNOWN):
        return Verdict(candidate, candidate, now, evidence, cap=cap)
    since = previous.candidate_since_monotonic_seconds if previous.candidate is candidate else now
    doubted = previous.doubted_since_monotonic_seconds
    doubted = now if doubted is None else doubted
    if now - since >= HOLD_SECONDS or now - doubted >= LONGEST_DOUBT_SECONDS:
        return Verdict(candidate, candidate, now, evidence, cap=cap)
    # what is shown is what the state in force was decided on
    return Verdict(previous.state, candidate, since, previous.evidence, doubted, previous.cap)


# of the target: its engines' windows with the rooflines that are published, the verdict of the last tick, the time of the page
JUDGED: Figure[Sequence[Judged]] = given("judged")
PREVIOUS: Figure[Verdict | None] = given("previous")
NOW: Figure[float] = given("now")


def _judge(
    evidence: Evidence, previous: Verdict | None, now: float, judged: Sequence[Judged], cap: Cap | None
) -> Verdict:
    return judge_limiter(evidence, previous, now, lambda: gather_rest(judged), cap)


def _add_evidence(verdict: Verdict, judged: Sequence[Judged]) -> Verdict:
    if verdict.state is not verdict.candidate:
        return verdict  # what was evidence now speaks for another state
    return replace(verdict, evidence={**verdict.evidence, **gather_rest(judged)})


_CAP = figure(find_cap, DEVICES)
_EVIDENCE = figure(
    lambda judged, settings, cap: gather_evidence(judged, settings.stalled_after_seconds, cap), JUDGED, SETTINGS, _CAP
)
# at every tick; with as much of the evidence as it takes
VERDICT = figure(_judge, _EVIDENCE, PREVIOUS, NOW, JUDGED, _CAP)
# the same with all of the evidence, for whoever shows it
WHOLE_VERDICT = figure(_add_evidence, VERDICT, JUDGED)
# the signals among the row's fields whose absence explains that there is no verdict
LACKING = figure(list_lacking_signals, _EVIDENCE)
LIMITER: Row[Verdict] = Row(
    figure(lambda verdict: Absence.INPUT_MISSING if verdict.state is Limiter.UNKNOWN else verdict, WHOLE_VERDICT),
    names.LIMITER.name,
    fields=tuple(_GIVEN_BY.values()),
    # what is suspect has not been used, so that it does not make the verdict suspect
    fields_read=Figure("nothing", tuple),
    silent=NOT_ON_A_FRONT_END,
    sentences={
        Absence.INPUT_MISSING: "The evidence does not suffice; the signals that it lacks have their own reasons."
    },
)
