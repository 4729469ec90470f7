"""How full the batch is, and its limit by what is seen."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.derive.figures import WINDOW, figure, window_over
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, SET_THE_BATCH_LIMIT, gauge
from llm_serving_exporter.derive.steps import TTFT, count_sequence_steps, list_step_fields, window_over_steps
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, LimitSource, Quality, Snapshot
from llm_serving_exporter.model.window import GAP_INTERVALS, EngineWindow

# --- The limit of a batch by what is seen: a level of running requests that does not rise although others wait and nothing else binds.
#
# It is at least the limit's lower bound. Other things hold a level, too: the tokens of a step (prefill), a full KV cache, preemptions, KV
# or adapters on their way. A level beside one of them says nothing, nor does one at which nobody waits: so many were asked for.


# a level is one from so many readings over so long on; readings come a little early and late
FEWEST_READINGS, SPAN_SECONDS, JITTER_SECONDS = 5, 20.0, 0.1
# a reading may fall between the step that requests ended in and the next one, which lets others in (225 of 256 in a queue on an H100, 14 of
# 16 in vllm-0.32): more than so many of a level's readings have to show it, and each tick's steps have to be full
SHOWN_ABOVE = 0.5
# decoding sequences of a tick's mean step over the level; with fewer it is prefill that takes the time
DECODING_FROM = 0.9
KV_BELOW = 0.9
# what vLLM's API server computes in a step at most by default, on its smaller devices (vllm/engine/arg_utils.py); near to it, and to the
# most that was seen of an engine, a step's tokens are what binds
STEP_TOKENS, STEP_FULL_FROM = 2048.0, 0.8
# of fewer steps the tokens that are booked with them may be of others
FEWEST_STEPS = 10.0
# engines that come and go, as replicas on a Ray node
MOST_ENGINES = 64


class Plateau(Struct, frozen=True):
    """What is known of one engine's level."""

    last: EngineSnapshot  # reading
    last_seconds: float  # its monotonic time
    first: EngineSnapshot | None = None  # reading of the level that holds; None: none does
    first_seconds: float = 0.0  # its monotonic time
    level: float = 0.0  # running requests of that level, at most
    readings: int = 0  # of that level
    shown: int = 0  # of these, the ones with that many running
    limit: float | None = None  # the highest level that was one; None: there was none, or more have run since
    step_tokens: float = 0.0  # the most tokens that a step had, in the mean of a tick


# by model name and engine
Plateaus = Mapping[tuple[str, str], Plateau]


def follow_plateaus(known: Plateaus, snapshot: Snapshot, interval_seconds: float) -> dict[tuple[str, str], Plateau]:
    """The levels after one more page of the same life, of engines whose limit nothing else says. `interval_seconds`: between pages."""
    if any(
        snapshot.quality.get(name, Quality.LIVE) is not Quality.LIVE
        for name in ("requests_running", "requests_waiting")
    ):
        return {}
    plateaus = {}
    for engine in snapshot.engines[:MOST_ENGINES]:
        if engine.requests_running is not None and engine.batch_limit_requests is None:
            key = engine.model_name, engine.engine
            plateaus[key] = _follow(known.get(key), engine, snapshot.monotonic_seconds, interval_seconds)
    return plateaus


def add_observed_limits(snapshot: Snapshot, plateaus: Plateaus) -> Snapshot:
    """The snapshot with the limits that were observed."""
    limits = {key: plateau.limit for key, plateau in plateaus.items() if plateau.limit is not None}
    if not limits:
        return snapshot
    engines = tuple(
        replace(engine, batch_limit_requests=limit, batch_limit_source=LimitSource.OBSERVED)
        if (limit := limits.get((engine.model_name, engine.engine))) is not None
        else engine
        for engine in snapshot.engines
    )
    absent = {name: why for name, why in snapshot.absent.items() if name != "batch_limit_requests"}
    return replace(snapshot, engines=engines, absent=absent)


def _follow(before: Plateau | None, now: EngineSnapshot, seconds: float, interval_seconds: float) -> Plateau:
    running = now.requests_running or 0.0
    new = Plateau(now, seconds, now, seconds, running, 1, 1) if _may_be_full(now) else Plateau(now, seconds)
    if before is None:
        return new
    limit = before.limit if before.limit is not None and running <= before.limit else None
    new = replace(new, limit=limit, step_tokens=before.step_tokens)
    if seconds - before.last_seconds > GAP_INTERVALS * interval_seconds:
        return new
    tick = EngineWindow((before.last, now), seconds - before.last_seconds)
    most = max(before.step_tokens, _count_step_tokens(tick) or 0.0)
    if before.first is None or running > before.level or not _goes_on(tick, before.level):
        return replace(new, step_tokens=most)
    level = replace(
        before,
        last=now,
        last_seconds=seconds,
        readings=before.readings + 1,
        shown=before.shown + (running == before.level),
        limit=limit,
        step_tokens=most,
    )
    return replace(level, limit=max(limit or 0.0, level.level)) if _is_limit(level) else level


def _may_be_full(engine: EngineSnapshot) -> bool:
    """Whether others wait at this reading, and nothing that it shows keeps them from running but the batch."""
    usage, held_back = engine.kv_cache_usage_ratio, engine.requests_deferred
    return (
        bool(engine.requests_running)
        and (engine.requests_waiting or 0.0) >= 1
        and usage is not None
        and usage < KV_BELOW
        # a page that does not say who is held back, for KV or an adapter, does not tell what binds (vLLM before 0.20)
        and held_back == 0
    )


def _goes_on(tick: EngineWindow, level: float) -> bool:
    """Whether a level holds over another tick: the batch was full of sequences that decode, others wait, and none was preempted."""
    made, steps = count_sequence_steps(tick), tick.increase("engine_steps_total")
    return (
        _may_be_full(tick.last)
        and tick.increase("preemptions_total") == 0
        and bool(steps)
        and not isinstance(made, Absence)
        and made >= DECODING_FROM * level * (steps or 0.0)
    )


def _is_limit(level: Plateau) -> bool:
    elapsed = level.last_seconds - level.first_seconds
    if level.first is None or level.readings < FEWEST_READINGS or elapsed < SPAN_SECONDS - JITTER_SECONDS:
        return False
    window = EngineWindow((level.first, level.last), elapsed)
    tokens = _count_step_tokens(window)
    if (
        level.shown <= SHOWN_ABOVE * level.readings
        or tokens is None
        or tokens >= STEP_FULL_FROM * max(STEP_TOKENS, level.step_tokens)
    ):
        return False
    return bool(window.events(TTFT)) or _fits_any(level.last)


def _count_step_tokens(window: EngineWindow) -> float | None:
    """Tokens that a mean step computed, of prompts and of decode; None where that is not counted, or of too few steps."""
    steps, prompts = window.increase("engine_steps_total"), window.increase("prefill_tokens_total")
    made = count_sequence_steps(window)
    if steps is None or steps < FEWEST_STEPS or prompts is None or isinstance(made, Absence):
        return None
    return (prompts + made) / steps


def _fits_any(engine: EngineSnapshot) -> bool:
    """Whether the longest request would fit into what is free of the KV cache, as far as that is known.

    Where none was let in, one that is too long for it may stand before all others.
    """
    capacity, longest, usage = engine.kv_cache_capacity_tokens, engine.context_limit_tokens, engine.kv_cache_usage_ratio
    return not capacity or not longest or usage is None or (1.0 - usage) * capacity >= longest


# --- How full the batch is.


# counters of one page are booked at slightly different moments
BATCH_TOLERANCE = 0.05


def batch_size_mean(window: EngineWindow) -> float | Absence:
    """Decoding sequences in a step: sequence-steps over engine steps of the window, both counted by the engine; over its decode passes,
    where these are passes of their own.

    Independent of when the page is read, unlike the gauge of running requests; idle time does not enter.
    """
    counter = "engine_steps_total" if window.last.decode_steps_total is None else "decode_steps_total"
    decoded, made = count_sequence_steps(window), window.increase(counter)
    if window.last.engine_steps_total is None:
        return Absence.INPUT_MISSING
    if isinstance(decoded, Absence):
        return decoded
    if made is None:
        return Absence.WARMING_UP
    return decoded / made if made > 0 else Absence.IDLE


def batch_utilization_ratio(window: EngineWindow) -> float | Absence:
    """Mean of running requests over the window's readings / the engine's limit of running requests."""
    limit = window.last.batch_limit_requests
    if not limit:
        return Absence.NOT_CONFIGURED
    running = window.mean("requests_running")
    return running / limit if running is not None else Absence.INPUT_MISSING


def _quality(window: EngineWindow, mean: float | Absence) -> Quality | None:
    """Suspect where more decode than run at once: the engine's steps are not what they seem."""
    limit = window.last.batch_limit_requests
    beyond = limit and not isinstance(mean, Absence) and mean > limit * (1 + BATCH_TOLERANCE)
    return Quality.SUSPECT if beyond else None


_SIZE_MEAN = figure(batch_size_mean, window_over_steps())

SIZE_MEAN = gauge(
    names.BATCH_SIZE_MEAN,
    _SIZE_MEAN,
    fields=("inter_token_latency_seconds", "engine_steps_total", "decode_tokens_total"),
    fields_read=figure(lambda window: list_step_fields(window.last), WINDOW),
    silent=NOT_ON_A_FRONT_END,
    quality=figure(_quality, WINDOW, _SIZE_MEAN),
    sentences={Absence.IDLE: "The engine made no step within the window."},
)
UTILIZATION = gauge(
    names.BATCH_UTILIZATION_RATIO,
    figure(batch_utilization_ratio, window_over("requests_running")),
    fields=("requests_running",),
    silent=NOT_ON_A_FRONT_END,
    sentences={Absence.NOT_CONFIGURED: SET_THE_BATCH_LIMIT},
)
ROWS = (SIZE_MEAN, UTILIZATION)
