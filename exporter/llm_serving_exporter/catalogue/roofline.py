"""Series that need the model's and the GPU's facts: ceilings, how near to them, what limits, where memory goes."""

from __future__ import annotations

from functools import partial

from llm_serving_exporter.catalogue.spec import (
    GPU_LABELS,
    MOST_RATIO,
    SERVING_LABELS,
    WHY,
    WORKED_OUT,
    Group,
    Kind,
    Metric,
    Unit,
    declare_figure,
    list_declared,
)

_TARGET = ("target", "model_name", "role")


_roof = partial(declare_figure, Group.ROOFLINE)


def _facts(name: str, kind: Kind, unit: Unit, help: str, *labels: str, formula: str = "") -> Metric:
    return Metric(
        name,
        kind,
        unit,
        Group.FACTS,
        help,
        labels,
        "the model is not known; signal_available has the reason",
        formula,
        "facts",
    )


ACHIEVED_BANDWIDTH = _roof(
    "achieved_bandwidth_bytes_per_second", Unit.BYTES_PER_SECOND,
    "Memory traffic of all GPUs of the engine over the window, by source: gpm and dcgm are measured, model is computed from the engine's counters, runtime is the engine's own estimate of its reads.",
    "gpm, dcgm: mean ratio of the GPUs x peak x GPUs of the engine, absent where others use the GPUs too; model: (steps x weights read + sequence-steps x KV read + tokens x KV written) / seconds, activations left out",
    "source",
)  # fmt: skip
BANDWIDTH_CEILING = _roof(
    "bandwidth_ceiling_bytes_per_second", Unit.BYTES_PER_SECOND,
    "Peak memory bandwidth of all GPUs of the engine.",
    "peak of one GPU x tensor-parallel size x pipeline stages",
)  # fmt: skip
BANDWIDTH_RATIO = _roof(
    "bandwidth_ceiling_ratio", Unit.RATIO,
    "Achieved over peak memory bandwidth, by source; good kernels reach about 0.9. Above 1 an input is wrong; signal_suspect names the likely cause.",
    "achieved_bandwidth_bytes_per_second / bandwidth_ceiling_bytes_per_second",
    "source",
    most=MOST_RATIO, suspect_above=1.0,
)  # fmt: skip
BANDWIDTH_RATIO_RANGE = _roof(
    "bandwidth_ceiling_ratio_range", Unit.RATIO,
    "Bounds of the ratio of source model: shared prefixes are read once or by each sequence, tokens use the same experts or different ones, and two fits say what activations move.",
    "as bandwidth_ceiling_ratio{source=model} with the lower and the upper bound of KV in use, experts and activations; the upper one at most the peak",
    "bound",
    most=MOST_RATIO, suspect_above=1.0,
)  # fmt: skip
DECODE_CEILING = _roof(
    "decode_ceiling_tokens_per_second", Unit.TOKENS_PER_SECOND,
    "Maximum decode rate at the batch and context of the window, at one token per sequence and step.",
    "B / (1 / min(n BW / (W + max(B/p, 1) K), compute) + max(B/p, 1) (C - K) / (n 5.5 TB/s)): B batch, n tensor-parallel GPUs, p stages, W weights and K KV bytes read of a sequence, C those of its context: what sequences share is read again on the chip (fitted on an H100)",
)  # fmt: skip
DECODE_CEILING_UPPER = _roof(
    "decode_ceiling_upper_tokens_per_second", Unit.TOKENS_PER_SECOND,
    "The decode ceiling if what sequences share of the KV cache is read once and again in no time; nothing real is above it.",
    "as decode_ceiling_tokens_per_second without what is read again on the chip",
)  # fmt: skip
PHASE_CEILING = _roof(
    "phase_ceiling_tokens_per_second", Unit.TOKENS_PER_SECOND,
    "Capacity of the engine for each phase alone. Prefill: prompt tokens computed; decode: tokens generated at the largest batch that fits, including those from speculation.",
    "prefill: tokens of the window / max(FLOPs at the dense peak, KV bytes at the peak bandwidth) of all GPUs of the engine; decode: as decode_ceiling_tokens_per_second at B = min(batch_limit_requests, kv_cache_capacity_tokens / mean context), at least the batch of the window, x decode_tokens_per_sequence_step under speculation", "phase",
)  # fmt: skip
DECODE_RATIO = _roof(
    "decode_ceiling_ratio", Unit.RATIO,
    "Decode sequence-steps per second over their ceiling. Idle time and steps shared with prefill lower it.",
    "inter-token events / seconds / decode_ceiling_tokens_per_second",
    most=MOST_RATIO, suspect_above=1.0,
)  # fmt: skip
COMPUTE_RATIO = _roof(
    "compute_ceiling_ratio", Unit.RATIO,
    "Time that the window's FLOPs need at the dense tensor peak of all the engine's GPUs, over the window's time (MFU).",
    "sum over precisions of FLOPs / peak / GPUs / seconds; FLOPs: 2 per matrix parameter and token, attention by context. The peak is the data sheet's, which holds at the boost clock that it assumes (H100 SXM: 1,830 MHz): at a lower clock less of it can be reached, at a higher one more",
    most=MOST_RATIO, suspect_above=1.0,
)  # fmt: skip
INTENSITY = _roof(
    "arithmetic_intensity_flops_per_byte", Unit.FLOPS_PER_BYTE,
    "FLOPs per byte moved over the window, computed from the engine's counters.",
    "FLOPs / bytes of source model",
)  # fmt: skip
RIDGE = _roof(
    "ridge_flops_per_byte", Unit.FLOPS_PER_BYTE,
    "Arithmetic intensity above which decode is bound by compute, for its mix of precisions.",
    "peak FLOP/s / peak bandwidth",
)  # fmt: skip
BATCH_RIDGE = _roof(
    "batch_ridge_size", Unit.COUNT,
    "Batch size above which decode is bound by compute: part=step at the context of the window, part=weights for the weight matrices alone.",
    "least B with compute time of a step >= its memory time; weights: with no context; absent where reading a sequence's KV and state takes longer than computing with it",
    "part",
)  # fmt: skip
STEPS_PER_SECOND = _roof(
    "engine_steps_per_second", Unit.PER_SECOND,
    "Engine steps per second over the window: counted by the engine, or from the mean inter-token latency (a lower bound).",
    "increase of engine_steps_total / seconds, else share of busy readings / mean inter-token latency",
    "source",
)  # fmt: skip
STEP_BYTES = _roof(
    "step_bytes_mean", Unit.BYTES, "Mean bytes that a step of the window moves, by part: weights, kv_read, kv_written, activations.",
    "as source model, per step", "part",
)  # fmt: skip
EXPERTS = _roof(
    "experts_touched_mean", Unit.COUNT,
    "Mean number of distinct routed experts that a step uses in a layer: lower if all tokens use the same experts, upper if no two do, expected for independent uniform routing.",
    "mean over steps with and without prefill of E (1 - (1 - k/E)^T); lower k, upper min(T k, E)", "bound",
)  # fmt: skip
DECODE_CONTEXT = _roof(
    "decode_context_tokens", Unit.TOKENS,
    "Mean context that a decode step attends to per sequence.",
    "as the engine reports it for the sequences that decode; else mean prompt + E[o^2]/(2 E[o]) of the requests that finished, and KV in use / running requests less half a block: expected is the first, else the second; the bounds are both. Where prompts hit the prefix cache, KV in use is less than the context: the prompts that were begun stand in for it", "bound",
)  # fmt: skip
TOKENS_PER_STEP = _roof(
    "decode_tokens_per_sequence_step", Unit.TOKENS,
    "Tokens that a decode step yields per sequence; above 1 with speculative decoding.",
    "(decode tokens - first tokens) / inter-token events",
)  # fmt: skip
PHASE_BUSY_RATIO = _roof(
    "phase_busy_ratio", Unit.RATIO,
    "Share of busy time by phase over the window, split by the time that each phase needs at its ceiling.",
    "prefill: FLOPs at the dense peak; decode: sequence-steps at the decode ceiling", "phase",
)  # fmt: skip
PHASE_BUSY_SECONDS = Metric(
    "phase_busy_seconds_total", Kind.COUNTER, Unit.SECONDS, Group.ROOFLINE,
    "Busy time of the engine by phase since the exporter first saw it run. It is unattributed if no token was counted for five minutes.",
    (*SERVING_LABELS, "phase"), WHY, "each tick's busy seconds, split as phase_busy_ratio over the tick", WORKED_OUT,
)  # fmt: skip
PHASE_REFERENCE = _roof(
    "phase_reference_seconds_per_token", Unit.SECONDS,
    "Seconds that a token of each phase needs at its ceiling at a fixed batch and context, for use as weights when prefill and decode throughput are added up.",
    "prefill of 1024 tokens; decode at batch 32 and 1024 tokens of context", "phase",
)  # fmt: skip
MEMORY = _roof(
    "gpu_memory_bytes_estimate", Unit.BYTES,
    "Memory of the engine's GPUs by use: weights, kv (the whole pool), other (activations, graphs, CUDA context).",
    "weights: checkpoint's total_size where it is within a quarter of the formula, else by formula; kv: capacity x bytes per token; other: used - both, used being what the target's own processes hold where others use the GPUs too", "part",
)  # fmt: skip
LIMITER = Metric(
    "limiter", Kind.GAUGE, Unit.BOOLEAN, Group.ROOFLINE,
    "What limits the target's throughput now: 1 for the current state; docs/limiter.md explains the states.",
    (*_TARGET, "state"), WHY,
    "decision table over limiter_evidence, held for 15 s; power: a cap on power or heat holds the clock down; blocked: requests are held back for a reason that the page does not name, which may be a LoRA budget, a grammar or KV that "
    "is loaded", WORKED_OUT,
)  # fmt: skip
LIMITER_EVIDENCE = Metric(
    "limiter_evidence", Kind.GAUGE, Unit.COUNT, Group.ROOFLINE,
    "The numbers that the limiter is based on: ratios 0 to 1 (activations is a part of bandwidth), requests_waiting, requests_deferred, preemptions_per_second, decode_slowdown, batch_of_ridge, next_prompt_kv, attended_kv, standstill_seconds; docs/internals-limiter.md explains each of them.",
    (*_TARGET, "evidence"), WHY, "bandwidth and compute per working time", WORKED_OUT,
)  # fmt: skip
SUSPECT = Metric(
    "signal_suspect", Kind.GAUGE, Unit.BOOLEAN, Group.HEALTH,
    "A signal whose value is impossible, or contradicted by another for five minutes, with the likely cause; 1 while it is.",
    ("target", "signal", "cause"), "nothing is suspect", "", "exporter",
)  # fmt: skip

MODEL_INFO = _facts(
    "model_info", Kind.INFO, Unit.BOOLEAN, "Known facts about the served model; constant 1.",
    "target", "model_name", "family", "weight_format", "kv_format", "origin",
)  # fmt: skip
MODEL_PARAMETERS = _facts(
    "model_parameters", Kind.GAUGE, Unit.COUNT,
    "Parameters of the model: total, active (used by one token), decode_read (active without an untied input embedding).",
    "target", "model_name", "kind", formula="closed formulas over the fields of config.json",
)  # fmt: skip
MODEL_WEIGHT_BYTES = _facts(
    "model_weight_bytes", Kind.GAUGE, Unit.BYTES, "Bytes of the model's weights: computed, and checkpoint if its index gives them.",
    "target", "model_name", "kind",
)  # fmt: skip
MODEL_KV_BYTES = _facts(
    "model_kv_cache_bytes_per_token", Kind.GAUGE, Unit.BYTES, "KV cache bytes per token over all attention layers.",
    "target", "model_name",
)  # fmt: skip
GPU_PEAK_FLOPS = Metric(
    "gpu_peak_flops_per_second", Kind.GAUGE, Unit.FLOPS_PER_SECOND, Group.GPU,
    "Dense tensor peak by precision; a missing precision has no native support. bf16 means 16-bit float, which on Volta and Turing is FP16 only.",
    (*GPU_LABELS, "precision"), "the catalogue does not know the GPU", "", "the GPU catalogue",
)  # fmt: skip

ROOFLINE = list_declared(globals())
