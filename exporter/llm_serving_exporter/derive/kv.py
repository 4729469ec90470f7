"""The rows of the KV cache, of long contexts, and of what GPU memory is taken up by."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter

from llm_serving_exporter.catalogue import derived as names
from llm_serving_exporter.catalogue.roofline import MEMORY as MEMORY_METRIC
from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.derive.devices import average_samples
from llm_serving_exporter.derive.figures import (
    DEVICES,
    HARDWARE,
    MODEL,
    SETTINGS,
    WINDOW,
    DeriveSettings,
    figure,
    window_over,
)
from llm_serving_exporter.derive.lengths import FEWEST
from llm_serving_exporter.derive.signals import NEVER_SILENT, NOT_ON_A_FRONT_END, OF_AN_ENGINE, Row, Series, gauge
from llm_serving_exporter.derive.standstill import CONTRADICTED
from llm_serving_exporter.derive.steps import (
    average_context,
    average_tokens_per_request,
    holds_every_token,
    read_used_tokens,
)
from llm_serving_exporter.derive.work import experts_elsewhere_bytes, kept_token_bytes
from llm_serving_exporter.model.derived import Tail
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.window import DeviceSample, EngineWindow

# --- The rows of the KV cache: tokens in use and free, prefix hits, context, tokens that a request holds, preemptions.


def used_and_free_tokens(window: EngineWindow) -> tuple[float, float] | Absence:
    """Tokens held by live requests and the rest, in whole blocks as the engine allots them."""
    last = window.last
    used, capacity = read_used_tokens(last), last.kv_cache_capacity_tokens
    if used is None or capacity is None:
        return Absence.INPUT_MISSING
    usage = last.kv_cache_usage_ratio if last.kv_used_tokens is None else None
    free = capacity - used if usage is None else (1 - usage) * capacity
    return used, max(0.0, free)


def prefix_cache_hit_ratio(window: EngineWindow) -> float | Absence:
    """Looked-up tokens that were found / looked up, over the window; without look-ups there is no ratio."""
    if window.last.prefix_cache_queries is None or window.last.prefix_cache_hits is None:
        return Absence.INPUT_MISSING
    queries, hits = window.increase("prefix_cache_queries"), window.increase("prefix_cache_hits")
    if queries is None or hits is None:
        return Absence.WARMING_UP
    return hits / queries if queries > 0 else Absence.IDLE


def _explain_idle(mean: float | Absence, contradicted: bool) -> float | Absence:  # a figure's inputs go by place
    """INCONSISTENT where no reading shows a request, and that cannot be."""
    return Absence.INCONSISTENT if contradicted and mean is Absence.IDLE else mean


def preemptions_per_second(window: EngineWindow) -> float | Absence:
    """Preemption events per second over the window."""
    if window.last.preemptions_total is None:
        return Absence.INPUT_MISSING
    increase = window.increase("preemptions_total")
    return increase / window.elapsed_seconds if increase is not None else Absence.WARMING_UP


def _used_quality(window: EngineWindow, model: ModelFacts | Absence) -> Quality | None:
    """Where layers forget, a share of the capacity is no count of tokens."""
    forgets = isinstance(model, ModelFacts) and not holds_every_token(model.geometry)
    return Quality.APPROXIMATE if forgets and window.last.kv_used_tokens is None else None


USED_AND_FREE: Row[tuple[float, float]] = Row(
    figure(used_and_free_tokens, WINDOW),
    names.KV_CACHE_USED_TOKENS.name,
    fields=("kv_cache_usage_ratio", "kv_cache_capacity_tokens"),
    quality=figure(_used_quality, WINDOW, MODEL),
    silent=NOT_ON_A_FRONT_END,
    series=(
        Series(names.KV_CACHE_USED_TOKENS, part=itemgetter(0)),
        Series(names.KV_CACHE_FREE_TOKENS, part=itemgetter(1)),
    ),
)
# above 1, more found than looked up, where the two are booked at different moments of a request: suspect, as its declaration says
HIT_RATIO = gauge(
    names.PREFIX_CACHE_HIT_RATIO,
    figure(prefix_cache_hit_ratio, window_over("prefix_cache_queries", "prefix_cache_hits")),
    # in the engine's unit too, where that is not known to be tokens
    fields=(
        "prefix_cache_query_tokens_total",
        "prefix_cache_hit_tokens_total",
        "prefix_cache_queries",
        "prefix_cache_hits",
    ),
    # the prompt's KV arrives from the prefill replica and is a hit by definition (facts runtimes-others 18)
    silent=frozenset({Role.DECODE}),
    sentences={Absence.IDLE: "No request looked anything up in the prefix cache within the window."},
)
_HELD_WINDOW = window_over("requests_running", "kv_cache_usage_ratio")
CONTEXT_MEAN = gauge(
    names.CONTEXT_TOKENS_MEAN,
    figure(_explain_idle, figure(average_context, _HELD_WINDOW), CONTRADICTED),
    fields=("kv_cache_capacity_tokens", "requests_running"),
    silent=NOT_ON_A_FRONT_END,
    sentences={
        Absence.IDLE: "No request ran at any reading of the window.",
        Absence.INCONSISTENT: "The gauge of running requests shows none, while tokens flow.",
    },
)
# absent for the same reasons
TOKENS_PER_REQUEST: Row[float] = Row(
    figure(_explain_idle, figure(average_tokens_per_request, _HELD_WINDOW), CONTRADICTED),
    silent=NOT_ON_A_FRONT_END,
    series=(Series(names.KV_CACHE_TOKENS_PER_REQUEST),),
)
PREEMPTIONS = gauge(
    names.PREEMPTIONS_PER_SECOND,
    figure(preemptions_per_second, window_over("preemptions_total")),
    fields=("preemptions_total",),
    explained_by="preemptions_total",
)
STATE_USAGE: Row[float] = Row(
    figure(lambda window: window.last.state_cache_usage_ratio, WINDOW),
    silent=NOT_ON_A_FRONT_END,
    series=(Series(names.STATE_CACHE_USAGE_RATIO),),
)
KV_ROWS = (USED_AND_FREE, HIT_RATIO, CONTEXT_MEAN, TOKENS_PER_REQUEST, STATE_USAGE, PREEMPTIONS)


# --- The rows of the long-context tail: its figures out of the history of an engine's request lengths.


_PROMPTS, _OUTPUTS = "request_prompt_tokens", "request_generation_tokens"
_CAPACITY = "kv_cache_capacity_tokens"
_SENTENCES = {
    Absence.IDLE: "Fewer than 100 requests have finished in its window so far: the longest 1 % of them is less than one.",
    Absence.INPUT_MISSING: (
        "The histogram of request lengths has no buckets or no sum, or its sum contradicts its buckets: "
        "nothing can be said of the longest requests."
    ),
}


def _tail(window: EngineWindow, settings: DeriveSettings) -> Tail | None:
    last = window.last
    history = settings.lengths.get((last.model_name, last.engine))
    return history.tail if history is not None and last.request_prompt_tokens is not None else None


def _read_tail(name: str, fields: tuple[str, ...]) -> Callable[[EngineWindow, Tail | None], object]:
    def part(window: EngineWindow, found: Tail | None) -> object:
        value = getattr(found, name, None)
        if value is not None and value != {}:
            return value
        few = found is not None and found.observed < FEWEST
        there = all(getattr(window.last, field) is not None for field in fields)
        return Absence.IDLE if few and there else Absence.INPUT_MISSING

    return part


def _clipped(found: Tail | None) -> Quality | None:
    p99 = found.prompt_p99 if found is not None else None
    return Quality.CLIPPED if p99 is not None and p99.clipped else None


TAIL = figure(_tail, WINDOW, SETTINGS)
_P99_QUALITY = figure(_clipped, TAIL)


def _row(
    metric: Metric, name: str, *fields: str, of_p99: bool = False, silent: frozenset[Role] = NEVER_SILENT
) -> Row[object]:
    return gauge(
        metric,
        figure(_read_tail(name, fields), WINDOW, TAIL),
        fields=fields,
        explained_by=_PROMPTS,
        silent=silent,
        sentences=_SENTENCES,
        quality=_P99_QUALITY if of_p99 else None,
    )


OBSERVED = _row(names.LONG_CONTEXT_REQUESTS_OBSERVED, "observed", _PROMPTS)
BEYOND = _row(names.LONG_CONTEXT_BEYOND_TOP_BUCKET, "beyond_top_bucket_ratio", _PROMPTS)
AMPLIFICATION = _row(names.LONG_CONTEXT_AMPLIFICATION, "amplification_ratio", _PROMPTS, of_p99=True)
SHARE = _row(names.LONG_CONTEXT_KV_SHARE, "kv_share_ratio", _PROMPTS, _OUTPUTS, silent=NOT_ON_A_FRONT_END)
FIT = _row(
    names.LONG_CONTEXT_REQUESTS_FIT,
    "requests_fit",
    _PROMPTS,
    _OUTPUTS,
    _CAPACITY,
    of_p99=True,
    silent=NOT_ON_A_FRONT_END,
)
LONG_CONTEXT_ROWS = (OBSERVED, BEYOND, AMPLIFICATION, SHARE, FIT)


def shown_tail(found: Tail | None, role: Role) -> Tail | None:
    """The tail without what the role does not have."""
    if found is not None and role in SHARE.silent:
        return replace(found, kv_share_ratio=None, requests_fit={})
    return found


# --- What an engine's GPU memory is taken up by: weights, KV cache, the rest.


# a checkpoint further than this from the computed bytes is not what is served: engines can quantise while they load
CHECKPOINT_BELIEVED_WITHIN_RATIO = 0.25


def split_memory(
    window: EngineWindow, model: ModelFacts | Absence, parallel: Parallel | None, used_bytes: float | Absence
) -> dict[str, float] | Absence:
    """Bytes by part, over the engine's GPUs. `other` (activations, graphs, the CUDA context) only where NVML says what is used.

    Weights: the checkpoint's own size where its index was read. KV: the whole pool, reserved at start whether used or not; absent for
    models with recurrent state or sliding windows, where the engine's capacity is no count of tokens (facts model-math E.3.6).
    """
    if isinstance(model, Absence):
        return model
    if parallel is None:
        return Absence.GPUS_UNKNOWN
    parts = {"weights": _weights(model, parallel)}
    geometry, capacity = model.geometry, window.last.kv_cache_capacity_tokens
    if geometry.encoder:
        countable = True
    else:
        countable = capacity is not None and bool(geometry.attention) and holds_every_token(geometry)
        if countable and capacity is not None:
            parts["kv"] = capacity * kept_token_bytes(model, parallel)
    if countable and not isinstance(used_bytes, Absence):
        other = used_bytes - add_up(parts.values())
        if other >= 0:
            parts["other"] = other
    return parts


def _weights(model: ModelFacts, parallel: Parallel) -> float:
    weights, checkpoint = model.weight_bytes, model.checkpoint_bytes
    if checkpoint is not None and abs(checkpoint - weights) <= CHECKPOINT_BELIEVED_WITHIN_RATIO * weights:
        weights = float(checkpoint)
    return weights - experts_elsewhere_bytes(model, parallel)


def _used_bytes(samples: tuple[DeviceSample, ...], hardware: Hardware) -> float | Absence:
    """Bytes in use on the engine's GPUs: its share of the newest sample's."""
    if hardware.engine_gpus is None:
        return Absence.GPUS_UNKNOWN
    used = average_samples(samples[-1:], "memory_used_bytes")
    return used if isinstance(used, Absence) else used * hardware.engine_gpus / samples[-1].gpus


def _parts(
    window: EngineWindow, model: ModelFacts | Absence, hardware: Hardware, used: float | Absence
) -> dict[str, float] | Absence:
    return split_memory(window, model, hardware.parallel, used)


MEMORY = gauge(
    MEMORY_METRIC, figure(_parts, WINDOW, MODEL, HARDWARE, figure(_used_bytes, DEVICES, HARDWARE)), **OF_AN_ENGINE
)
