"""Roofline: what the hardware could do, how near it is, and on which side of the ridge."""

from __future__ import annotations

from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Board, Column, Look, Panel, Query, Row, Unit
from llm_serving_dashboards.parts import MODEL, REPLICA, lines, table

UID = "llm-serving-roofline"
VARIABLES = ("model_name", "role", "target")
ENGINE = ("target", "model_name", "role", "engine")
_LEGEND = f"{REPLICA} engine {{{{engine}}}}"


def board(asking: Asking) -> Board:
    """Ratios, then bytes and tokens, then the batch."""
    return Board(
        UID,
        "LLM serving: roofline",
        "How near decode is to the memory-bandwidth ceiling and all work to the compute ceiling, by every source that knows.",
        VARIABLES,
        (
            Row("How near", _near(asking)),
            Row("Bytes and tokens", _amounts(asking)),
            Row("Batch and intensity", _batch(asking)),
            Row("What is known", _known(asking)),
        ),
    )


def _near(asking: Asking) -> tuple[Panel, ...]:
    intensity, ridge, compute = (
        asking.one(name, *ENGINE)
        for name in ("arithmetic_intensity_flops_per_byte", "ridge_flops_per_byte", "compute_ceiling_ratio")
    )
    on = asking.on(*ENGINE)
    reached = asking.of("model_gpu:llm_serving_bandwidth_ceiling:ratio")
    return (
        lines(
            "MBU and MFU by model",
            "Model bandwidth and model FLOPs utilisation together: memory traffic over the peak (by the best source that is not suspect), FLOPs over the dense "
            "tensor peak, mean of a model's engines. Good kernels reach 0.9 of the bandwidth; near neither while requests run, overhead binds.",
            Unit.RATIO,
            Query(reached, "MBU ({{source}}) {{model_name}} {{gpu_name}}"),
            Query(asking.by("avg", compute, "model_name", "role"), f"MFU {MODEL}"),
            width=8,
            least=0,
        ),
        lines(
            "Bandwidth ceiling ratio (MBU) by source",
            "Of each engine: gpm and dcgm measure it, model works it out from steps and context, runtime is the engine's own estimate. Above 1 an input is wrong, "
            "and the exporter's dashboard says which is likely.",
            Unit.RATIO,
            Query(asking.of("engine:llm_serving_bandwidth_ceiling_ratio:max"), f"{{{{source}}}} {_LEGEND}"),
            width=8,
            least=0,
        ),
        Panel(
            "Under the roof",
            "Each engine as a point: intensity over the ridge across, share of the compute peak upwards; the roof is the most that either allows. Left of "
            "1 bandwidth binds, right of it compute; far below the roof something else does.",
            Look.POINTS,
            (
                Query(f"{intensity} / {on} {ridge}", instant=True, table=True),
                Query(compute, instant=True, table=True),
                Query(f"clamp_max({intensity} / {on} {ridge}, 1)", instant=True, table=True),
            ),
            Unit.RATIO,
            8,
            logarithmic=True,
            columns=(
                Column(0, "intensity over ridge", Unit.TIMES),
                Column(1, "MFU", Unit.RATIO),
                Column(2, "roof", Unit.RATIO),
            ),
        ),
        lines(
            "Decode against its ceiling",
            "Sequence-steps over what the hardware allows at the batch and context of now. Idle time and steps shared with prefill lower it.",
            Unit.RATIO,
            Query(asking.one("decode_ceiling_ratio", *ENGINE), _LEGEND),
            width=8,
            least=0,
        ),
        lines(
            "Compute ceiling ratio (MFU)",
            "FLOPs of the window over the dense tensor peak, of each engine.",
            Unit.RATIO,
            Query(compute, _LEGEND),
            width=8,
            least=0,
        ),
        lines(
            "MBU against the usual, by kind of GPU",
            "Over the peak of all engines of that kind; usual: median of 7 days.",
            Unit.RATIO,
            Query(reached, "now {{model_name}} {{gpu_name}} {{source}}"),
            Query(
                asking.of("model_gpu:llm_serving_bandwidth_ceiling:median7d"),
                "usual {{model_name}} {{gpu_name}} {{source}}",
            ),
            width=8,
            least=0,
        ),
    )


def _amounts(asking: Asking) -> tuple[Panel, ...]:
    achieved = asking.of("engine:llm_serving_achieved_bandwidth_bytes_per_second:max")
    ceiling = asking.one("bandwidth_ceiling_bytes_per_second", *ENGINE)
    decode = asking.by("sum", asking.of("engine:llm_serving_phase_tokens:rate5m", phase="decode"), *ENGINE)
    return (
        lines(
            "Memory traffic and its peak",
            "All GPUs of an engine together.",
            Unit.BYTES_PER_SECOND,
            Query(achieved, f"{{{{source}}}} {_LEGEND}"),
            Query(ceiling, f"peak {_LEGEND}"),
            least=0,
        ),
        lines(
            "Decode tokens/s and their ceiling",
            "Generated, and the most at the batch and context of now with one token a step: speculation may go beyond.",
            Unit.TOKENS_PER_SECOND,
            Query(decode, f"decode {_LEGEND}"),
            Query(asking.one("decode_ceiling_tokens_per_second", *ENGINE), f"ceiling {_LEGEND}"),
            least=0,
        ),
    )


def _batch(asking: Asking) -> tuple[Panel, ...]:
    return (
        lines(
            "Batch and its ridge",
            "Decoding sequences in a step, and from how many on decode is bound by compute: step with the context of now (absent where KV alone keeps it bound by "
            "bandwidth), weights without any. Below the ridge a larger batch is nearly free.",
            Unit.COUNT,
            Query(asking.one("batch_size_mean", *ENGINE), f"batch {_LEGEND}"),
            Query(asking.one("batch_ridge_size", *ENGINE, "part"), f"ridge ({{{{part}}}}) {_LEGEND}"),
            width=8,
            least=0,
            logarithmic=True,
        ),
        lines(
            "Intensity and its ridge",
            "FLOPs per byte moved, and where compute begins to bind.",
            Unit.FLOPS_PER_BYTE,
            Query(asking.one("arithmetic_intensity_flops_per_byte", *ENGINE), f"intensity {_LEGEND}"),
            Query(asking.one("ridge_flops_per_byte", *ENGINE), f"ridge {_LEGEND}"),
            width=8,
            least=0,
        ),
        lines(
            "Bytes of a mean step",
            "Weights are read once a step whatever the batch; KV grows with batch and context.",
            Unit.BYTES,
            Query(asking.by("avg", asking.of("model:llm_serving_step_bytes_mean:avg"), "part"), "{{part}}"),
            width=8,
            least=0,
            stacked=True,
        ),
    )


def _known(asking: Asking) -> tuple[Panel, ...]:
    info = asking.one("model_info", "target", "model_name", "family", "weight_format", "kv_format", "origin")
    return (
        table(
            "Models",
            "What the arithmetic rests on, and where it is known from.",
            (
                Column("target", "target"), Column("model_name", "model"), Column("family", "family"), Column("weight_format", "weights"),
                Column("kv_format", "KV"), Column("origin", "known from"),
            ),
            info,
        ),
        table(
            "Limiter's evidence",
            "The numbers that the limiter is decided on, now.",
            (Column("target", "target"), Column("evidence", "evidence"), Column(0, "value", Unit.COUNT, decimals=2)),
            asking.one("limiter_evidence", "target", "evidence"),
        ),
    )  # fmt: skip
