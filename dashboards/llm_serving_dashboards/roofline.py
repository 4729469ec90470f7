"""The dashboard of the roofline: how close the engines are to the bandwidth and compute ceilings."""

from __future__ import annotations

from llm_serving_alerts.records.bands import BANDWIDTH, BATCH, COMPUTE, DECODE
from llm_serving_dashboards.firing import MOST_CHOSEN
from llm_serving_dashboards.panels import (
    Axis,
    Board,
    Colour,
    Column,
    Look,
    Mark,
    Panel,
    Query,
    Row,
    Unit,
    Visualization,
    Worst,
    X,
)
from llm_serving_dashboards.shared_panels import MODEL, BoardBuilder, warn_below

# --- The roofline as a picture: the roof with its ridge on logarithmic axes, where each model is now, and where it was over the last day.
#
# Arithmetic intensity is drawn over the ridge's and work over the peak, so that GPUs of every kind and format have the same roof
# (Williams, Waterman, Patterson 2009: attainable = min(peak, intensity x bandwidth); divided by the peak: min(intensity / ridge, 1)).

ENGINE = ("target", "model_name", "role", "engine")
MODELS = ("model_name", "role")
INTENSITY, RIDGE = (f"model:llm_serving_{name}_flops_per_byte:avg" for name in ("arithmetic_intensity", "ridge"))
# a thousandth of the ridge and of the peak is an engine that does next to nothing
_LOWEST, _HIGHEST = 0.001, 10.0
_TRAIL, _STEP = "24h", "1h"


def make_roof(board: BoardBuilder, width: int, height: int) -> Panel:
    """The picture of the chosen models."""
    return Panel(
        "Roofline",
        "Blue: each model now, its engines taken together. Orange: the same at each hour of the last day. Grey: its engines now, of up to "
        f"{MOST_CHOSEN} chosen models. Horizontal is the arithmetic intensity over the ridge's, vertical the FLOPs over the peak's (MFU). Left of the ridge memory bandwidth "
        "limits, right of it compute. A dot on the roof reaches what the hardware can do. A dot far below it waits for something else, or for requests. Idle engines have no dot.",
        Visualization.XY_CHART,
        Look(Unit.RATIO, width, height, time_from=_TRAIL),
        (
            Query(_draw_line((_LOWEST, _LOWEST), (1.0, 1.0), (_HIGHEST, 1.0)), instant=True, table=True),
            # a line that is not quite upright: rows are in the order of their horizontal value
            Query(_draw_line((1.0, 1.0), (1.000001, _LOWEST)), instant=True, table=True),
            Query(board.hide_above(MOST_CHOSEN, "model_name", _place_engines(board)), instant=True, table=True),
            Query(_place_models(board), table=True, step=_STEP),
            Query(_place_models(board), instant=True, table=True),
        ),
        axes=(
            Axis("arithmetic intensity over the ridge's", Unit.TIMES, _LOWEST, _HIGHEST),
            Axis("FLOPs over the peak's", Unit.RATIO, _LOWEST, 1.0),
        ),
        marks=(
            Mark("roof", "text"),
            Mark("ridge", Colour.UNKNOWN),
            Mark("engines now", Colour.UNKNOWN, 4),
            Mark("last day, by the hour", Colour.WARNING, 5),
            Mark("now", Colour.PLAIN, 12),
        ),
    )


def _draw_line(*points: tuple[float, float]) -> str:
    """PromQL of points with their horizontal value as a label."""
    return " or ".join(f'label_replace(vector({y:g}), "{X}", "{x:.10g}", "", "")' for x, y in points)


def _place_engines(board: BoardBuilder) -> str:
    """PromQL of the share of the peak of what is above the floor of the picture, with the intensity over the ridge as a label."""
    intensity, ridge, compute = (
        board.select_one(name, *ENGINE)
        for name in ("arithmetic_intensity_flops_per_byte", "ridge_flops_per_byte", "compute_ceiling_ratio")
    )
    return _place(board, f"{intensity} / {board.match_on(*ENGINE)} {ridge}", compute, *ENGINE)


def _place_models(board: BoardBuilder) -> str:
    """The same of models."""
    across = f"{board.select(INTENSITY)} / {board.select(RIDGE)}"
    return _place(board, across, board.select(COMPUTE.median), *MODELS)


def _place(board: BoardBuilder, across: str, up: str, *level: str) -> str:
    placed = f'count_values by ({board.dialect.labels(*level)}) ("{X}", {across})'
    return f"({up} > {_LOWEST:g}) * {board.match_on(*level)} group_left ({X}) {placed}"


UID = "llm-serving-roofline"
VARIABLES = ("model_name", "role", "target")


def build_board(board: BoardBuilder) -> Board:
    """Ratios first, then bytes and tokens, then the batch."""
    return Board(
        UID,
        "LLM serving: roofline",
        "How close is decode to the memory bandwidth ceiling, and all work to the compute ceiling, according to each source?",
        VARIABLES,
        (
            Row("Models under the roof", _make_roof_panels(board)),
            Row("Ceiling ratios", _make_ceiling_panels(board)),
            Row("Memory traffic and tokens", _make_traffic_panels(board)),
            Row("Batch and intensity", _make_batch_panels(board)),
            Row("Model facts", _make_model_panels(board)),
        ),
    )


def _make_roof_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    reached = board.select("model_gpu:llm_serving_bandwidth_ceiling:ratio")
    return (
        make_roof(board, 12, 12),
        board.model_graph(
            "MBU and MFU by model",
            "MBU: memory traffic over the peak bandwidth, from the best source that is not suspect. MFU: FLOPs over the dense tensor peak, the median of the "
            "replicas. Good kernels reach an MBU of 90 %. If both are low while requests run, overhead is the limit.",
            Look(Unit.RATIO, worst=Worst.LOWEST, height=12),
            Query(reached, "MBU {{model_name}} {{gpu_name}} ({{source}})"),
            board.line(COMPUTE.median, f"MFU {MODEL}"),
        ),
    )


def _make_ceiling_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    reached, usual = (board.select(f"model_gpu:llm_serving_bandwidth_ceiling:{what}") for what in ("ratio", "median7d"))
    of_kind = board.match_on("model_name", "role", "gpu_name", "source")
    return (
        board.band(
            "Bandwidth ceiling ratio (MBU) by replica",
            "From the best source that is not suspect. Above 100 % an input is wrong, and the exporter's dashboard names the likely cause. The replica's own "
            "dashboard has every source.",
            Look(Unit.RATIO, worst=Worst.LOWEST, width=6),
            BANDWIDTH,
        ),
        board.band(
            "Decode ceiling ratio by replica",
            "Decode steps of all sequences over what the hardware allows at the present batch and context. Idle time and steps shared with prefill lower it.",
            Look(Unit.RATIO, worst=Worst.LOWEST, width=6),
            DECODE,
        ),
        board.band(
            "Compute ceiling ratio (MFU) by replica",
            "FLOPs in the exporter's window over the dense tensor peak.",
            Look(Unit.RATIO, worst=Worst.LOWEST, width=6),
            COMPUTE,
        ),
        board.model_graph(
            "MBU against the baseline, by GPU model",
            "Memory traffic over the peak of all engines with this GPU, as a share of its own median of 7 days. Below the line while the batch is full and MFU is "
            "low, something else slows the steps down: compare clocks of the GPUs, then the host's CPU.",
            Look(Unit.RATIO, worst=Worst.LOWEST, width=6, limits=warn_below(board.settings.panels.bandwidth_below)),
            Query(f"{reached} / {of_kind} {usual}", "{{model_name}} {{gpu_name}} {{source}}"),
            may_be_empty="the history is too short",
        ),
    )


def _make_traffic_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    achieved, peak = (
        board.select(f"model_gpu:llm_serving_{name}_bytes_per_second:sum")
        for name in ("achieved_bandwidth", "bandwidth_ceiling")
    )
    ceiling = board.select("model:llm_serving_decode_ceiling_tokens_per_second:sum")
    decode = board.sum("model:llm_serving_phase_tokens:rate5m", *MODELS, phase="decode")
    return (
        board.model_graph(
            "Memory traffic and its peak",
            "Sum over the GPUs of all replicas of a model.",
            Look(Unit.BYTES_PER_SECOND),
            Query(board.aggregate("sum", achieved, *MODELS), f"traffic {MODEL}"),
            Query(board.aggregate("sum", peak, *MODELS), f"peak {MODEL}"),
        ),
        board.model_graph(
            "Decode tokens/s and their ceiling",
            "Generated tokens of all replicas of a model, and the most that is possible at the present batch and context with one token per step. Speculative decoding "
            "can exceed it.",
            Look(Unit.TOKENS_PER_SECOND),
            Query(decode, f"decode {MODEL}"),
            Query(ceiling, f"ceiling {MODEL}"),
        ),
    )


def _make_batch_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.model_graph(
            "Batch and its ridge",
            "Decoding sequences per step, the median of a model's replicas, and the batch from which decode is compute-bound, averaged over its engines. Ridge (step): with the present context; "
            "absent if KV cache reads alone keep decode bandwidth-bound. Ridge (weights): without context. Below the ridge a larger batch costs little.",
            Look(Unit.COUNT, width=8, logarithmic=True, from_zero=True),
            board.line(BATCH.median, f"batch {MODEL}"),
            board.line("model:llm_serving_batch_ridge_size:avg", f"ridge ({{{{part}}}}) {MODEL}"),
        ),
        board.model_graph(
            "Arithmetic intensity and its ridge",
            "FLOPs per byte of memory traffic, and the ridge above which compute is the limit, averaged over the engines of a model.",
            Look(Unit.FLOPS_PER_BYTE, width=8),
            board.line(INTENSITY, f"intensity {MODEL}"),
            board.line(RIDGE, f"ridge {MODEL}"),
        ),
        board.time_series(
            "Bytes per step",
            "Weights are read once per step, whatever the batch. KV cache reads grow with batch and context.",
            Look(Unit.BYTES, width=8, stacked=True),
            Query(board.aggregate("avg", board.select("model:llm_serving_step_bytes_mean:avg"), "part"), "{{part}}"),
        ),
    )


def _make_model_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    facts = "family", "weight_format", "kv_format", "origin"
    info = board.select_one("model_info", "target", "model_name", *facts)
    evidence = board.select_one("limiter_evidence", "target", "model_name", "role", "evidence")
    return (
        board.table(
            "Models",
            "The facts about each model behind these figures, their source, and how many replicas use them.",
            Look(),
            (
                "model_name",
                Column("family", "family", width=100),
                Column("weight_format", "weights", width=90),
                Column("kv_format", "KV", width=80),
                Column("origin", "source"),
                Column(0, "replicas", Unit.COUNT, width=90),
            ),
            board.aggregate("count", info, "model_name", *facts),
            may_be_empty="no exporter knows a model's facts",
        ),
        board.table(
            "Evidence of the limiter",
            "The present figures that decide what limits each model, as the mean of its replicas. The dashboard of a replica has those of one.",
            Look(),
            ("model_name", "role", "evidence", Column(0, "mean", Unit.COUNT, decimals=2)),
            board.aggregate("avg", evidence, "model_name", "role", "evidence"),
            may_be_empty="no exporter reports a limiter",
        ),
    )
