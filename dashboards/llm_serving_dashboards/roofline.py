"""Roofline: what the hardware could do, how near it is, and on which side of the ridge."""

from __future__ import annotations

from llm_serving_dashboards.panels import Board, Column, Panel, Query, Row, Unit, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import MODEL, REPLICA, make_table, make_time_series

UID = "llm-serving-roofline"
VARIABLES = ("model_name", "role", "target")
ENGINE = ("target", "model_name", "role", "engine")
_LEGEND = f"{REPLICA} engine {{{{engine}}}}"


def build_board(queries: QueryBuilder) -> Board:
    """Ratios, then bytes and tokens, then the batch."""
    return Board(
        UID,
        "LLM serving: roofline",
        "How near decode is to the memory-bandwidth ceiling and all work to the compute ceiling, by every source that knows.",
        VARIABLES,
        (
            Row("How near", _make_ceiling_panels(queries)),
            Row("Bytes and tokens", _make_traffic_panels(queries)),
            Row("Batch and intensity", _make_batch_panels(queries)),
            Row("What is known", _make_model_panels(queries)),
        ),
    )


def _make_ceiling_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    intensity, ridge, compute = (
        queries.select_one(name, *ENGINE)
        for name in ("arithmetic_intensity_flops_per_byte", "ridge_flops_per_byte", "compute_ceiling_ratio")
    )
    on = queries.match_on(*ENGINE)
    reached = queries.select("model_gpu:llm_serving_bandwidth_ceiling:ratio")
    return (
        make_time_series(
            "MBU and MFU by model",
            "Model bandwidth and model FLOPs utilisation together: memory traffic over the peak (by the best source that is not suspect), FLOPs over the dense "
            "tensor peak, mean of a model's engines. Good kernels reach 0.9 of the bandwidth; near neither while requests run, overhead binds.",
            Unit.RATIO,
            Query(reached, "MBU ({{source}}) {{model_name}} {{gpu_name}}"),
            Query(queries.aggregate("avg", compute, "model_name", "role"), f"MFU {MODEL}"),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Bandwidth ceiling ratio (MBU) by source",
            "Of each engine: gpm and dcgm measure it, model works it out from steps and context, runtime is the engine's own estimate. Above 1 an input is wrong, "
            "and the exporter's dashboard says which is likely.",
            Unit.RATIO,
            Query(queries.select("engine:llm_serving_bandwidth_ceiling_ratio:max"), f"{{{{source}}}} {_LEGEND}"),
            width=8,
            minimum=0,
        ),
        Panel(
            "Under the roof",
            "Each engine as a point: intensity over the ridge across, share of the compute peak upwards; the roof is the most that either allows. Left of "
            "1 bandwidth binds, right of it compute; far below the roof something else does.",
            Visualization.XY_CHART,
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
        make_time_series(
            "Decode against its ceiling",
            "Sequence-steps over what the hardware allows at the batch and context of now. Idle time and steps shared with prefill lower it.",
            Unit.RATIO,
            Query(queries.select_one("decode_ceiling_ratio", *ENGINE), _LEGEND),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Compute ceiling ratio (MFU)",
            "FLOPs of the window over the dense tensor peak, of each engine.",
            Unit.RATIO,
            Query(compute, _LEGEND),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "MBU against the usual, by kind of GPU",
            "Over the peak of all engines of that kind; usual: median of 7 days.",
            Unit.RATIO,
            Query(reached, "now {{model_name}} {{gpu_name}} {{source}}"),
            Query(
                queries.select("model_gpu:llm_serving_bandwidth_ceiling:median7d"),
                "usual {{model_name}} {{gpu_name}} {{source}}",
            ),
            width=8,
            minimum=0,
        ),
    )


def _make_traffic_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    achieved = queries.select("engine:llm_serving_achieved_bandwidth_bytes_per_second:max")
    ceiling = queries.select_one("bandwidth_ceiling_bytes_per_second", *ENGINE)
    decode = queries.aggregate("sum", queries.select("engine:llm_serving_phase_tokens:rate5m", phase="decode"), *ENGINE)
    return (
        make_time_series(
            "Memory traffic and its peak",
            "All GPUs of an engine together.",
            Unit.BYTES_PER_SECOND,
            Query(achieved, f"{{{{source}}}} {_LEGEND}"),
            Query(ceiling, f"peak {_LEGEND}"),
            minimum=0,
        ),
        make_time_series(
            "Decode tokens/s and their ceiling",
            "Generated, and the most at the batch and context of now with one token a step: speculation may go beyond.",
            Unit.TOKENS_PER_SECOND,
            Query(decode, f"decode {_LEGEND}"),
            Query(queries.select_one("decode_ceiling_tokens_per_second", *ENGINE), f"ceiling {_LEGEND}"),
            minimum=0,
        ),
    )


def _make_batch_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_time_series(
            "Batch and its ridge",
            "Decoding sequences in a step, and from how many on decode is bound by compute: step with the context of now (absent where KV alone keeps it bound by "
            "bandwidth), weights without any. Below the ridge a larger batch is nearly free.",
            Unit.COUNT,
            Query(queries.select_one("batch_size_mean", *ENGINE), f"batch {_LEGEND}"),
            Query(queries.select_one("batch_ridge_size", *ENGINE, "part"), f"ridge ({{{{part}}}}) {_LEGEND}"),
            width=8,
            minimum=0,
            logarithmic=True,
        ),
        make_time_series(
            "Intensity and its ridge",
            "FLOPs per byte moved, and where compute begins to bind.",
            Unit.FLOPS_PER_BYTE,
            Query(queries.select_one("arithmetic_intensity_flops_per_byte", *ENGINE), f"intensity {_LEGEND}"),
            Query(queries.select_one("ridge_flops_per_byte", *ENGINE), f"ridge {_LEGEND}"),
            width=8,
            minimum=0,
        ),
        make_time_series(
            "Bytes of a mean step",
            "Weights are read once a step whatever the batch; KV grows with batch and context.",
            Unit.BYTES,
            Query(
                queries.aggregate("avg", queries.select("model:llm_serving_step_bytes_mean:avg"), "part"), "{{part}}"
            ),
            width=8,
            minimum=0,
            stacked=True,
        ),
    )


def _make_model_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    info = queries.select_one("model_info", "target", "model_name", "family", "weight_format", "kv_format", "origin")
    return (
        make_table(
            "Models",
            "What the arithmetic rests on, and where it is known from.",
            (
                Column("target", "target"), Column("model_name", "model"), Column("family", "family"), Column("weight_format", "weights"),
                Column("kv_format", "KV"), Column("origin", "known from"),
            ),
            info,
        ),
        make_table(
            "Limiter's evidence",
            "The numbers that the limiter is decided on, now.",
            (Column("target", "target"), Column("evidence", "evidence"), Column(0, "value", Unit.COUNT, decimals=2)),
            queries.select_one("limiter_evidence", "target", "evidence"),
        ),
    )  # fmt: skip
