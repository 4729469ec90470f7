"""The home dashboard: on one screen what is wrong and which model it concerns; below it the graphs of the five checks."""

from __future__ import annotations

from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.records.slo import RATIO
from llm_serving_dashboards.first_screen import make_matrix, make_sentence
from llm_serving_dashboards.panels import Board, Column, Look, Panel, Query, Row, Unit, Worst
from llm_serving_dashboards.shared_panels import MODEL, BoardBuilder, warn_above, warn_below

UID = "llm-serving-home"
VARIABLES = ("model_name", "role")
# of Grafana's grid: with its bars above they end at 1080 pixels
_SENTENCE_ROWS, _MATRIX_ROWS = 5, 19
_CHANGES = 20


def build_board(board: BoardBuilder) -> Board:
    """What is wrong and the matrix of models and checks, which fill a screen of 1080 pixels with seventeen models; below them two graphs a check."""
    return Board(
        UID,
        "LLM serving: five checks",
        "Is every model healthy, and if not, which check fails of which model? Click a coloured field for the panel that shows why.",
        VARIABLES,
        (
            Row("", (make_sentence(board, _SENTENCE_ROWS), make_matrix(board, _MATRIX_ROWS))),
            Row("Over time", _make_now_panels(board)),
            Row("1. Phases: prefill and decode", _make_phase_panels(board)),
            Row("2. Time to first token", _make_ttft_panels(board)),
            Row("3. KV cache", _make_kv_panels(board)),
            Row("4. Long-context tail", _make_tail_panels(board)),
            Row("5. Node loss", _make_node_loss_panels(board)),
        ),
    )


def _make_now_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    errors = board.sum("model:llm_serving_slo_bad:increase5m", "model_name", "role", slo="errors")
    return (
        board.limiter(9, 9),
        board.model_graph(
            "Error rate",
            "Share of requests that failed in the last 5m: requests that finished with an error, and HTTP 5xx responses without a finish reason. Rejections "
            "and aborts count neither as good nor as bad. There is no data while no request ends.",
            Look(Unit.RATIO, width=5, height=9),
            Query(
                f"{errors} / ({board.sum('model:llm_serving_slo_events:increase5m', 'model_name', 'role', slo='errors')} > 0)",
                MODEL,
            ),
            may_be_empty="no request has ended",
        ),
        _make_changes_panel(board),
        board.stat(
            "Replicas",
            "Ready replicas in the selection. Loading and sleeping replicas are neither ready nor down.",
            Look(Unit.COUNT, height=3, thresholds=warn_below(1)),
            Query(f"sum({board.select('model:llm_serving_ready_replicas:sum')})", "ready"),
        ),
        board.stat(
            "Waiting",
            "Requests in the queue, over the selection. If they stay above 0 for minutes, the panel Limiter shows the reason.",
            Look(Unit.COUNT, height=3, thresholds=warn_above(1)),
            Query(f"sum({board.engines_first('model:llm_serving_requests_waiting:sum')})", "waiting"),
        ),
    )


def _make_changes_panel(board: BoardBuilder) -> Panel:
    started = board.aggregate("max", board.select("target_start_time_seconds"), "target")
    whose = board.aggregate("max", board.select("target_info"), "target", "model_name", "version")
    what = (
        ("started", f"{whose} * {board.match_on('target')} group_left () {started}"),
        ("drill", board.aggregate("max", board.select("drill_last_run_timestamp_seconds"), "model_name")),
        ("config loaded", f"max({board.select('exporter_config_reload_success_timestamp_seconds')})"),
    )
    named = " or ".join(f'label_replace({when}, "what", "{text}", "", "")' for text, when in what)
    return board.table(
        "Recent changes",
        f"The {_CHANGES} latest replica starts with their versions, drills, and configuration loads of the exporter. A recent start explains cold caches. Two "
        "versions of one model explain most other differences.",
        Look(width=10, height=9),
        (
            Column(0, "when", Unit.MILLISECONDS_SINCE),
            Column("what", "what", width=120),
            "target",
            Column("version", "version", width=80),
            "model_name",
        ),
        f"topk({_CHANGES}, 1000 * ({named}))",
        may_be_empty="no exporter reports a start, a drill or a loaded configuration",
    )


def _make_phase_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    per_gpu = "model:llm_serving_phase_tokens_per_gpu:rate5m"
    return (
        *(
            board.model_graph(
                f"{phase.capitalize()} tokens/s per GPU",
                f"{what}, per GPU of the ready replicas. So models and fleets of any size compare.",
                Look(Unit.TOKENS_PER_SECOND, height=6),
                board.line(per_gpu, MODEL, phase=phase),
            )
            for phase, what in (("prefill", "Prompt tokens that were computed"), ("decode", "Generated tokens"))
        ),
    )


def _make_ttft_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    objective = board.settings.slo["ttft"]
    quantile = "model:llm_serving_time_to_first_token_seconds:quantile_rate5m"
    steps = warn_above(objective.threshold_seconds) if objective.threshold_seconds is not None else ()
    span = seconds_text(board.settings.burn["fast"][0].long_seconds)
    bad = board.name_clock(RATIO.format(window=span), "ttft")
    return (
        board.model_graph(
            "p99 time to first token",
            '99th percentile over 5m. "At least" in the legend: more than 1 % are longer than the engine\'s largest bucket edge, and the line shows that edge.',
            Look(Unit.SECONDS, height=6, logarithmic=True, limits=steps),
            Query(_say_where_clipped(board, quantile), f"{{{{bound}}}} {MODEL}"),
        ),
        board.model_graph(
            "Requests within the objective",
            f"Share of first tokens that were in time over {span}. The objective is {objective.objective:.4g}. Measured by the engines or by the front door: the legend says which. There is no data without requests.",
            Look(
                Unit.RATIO,
                worst=Worst.LOWEST,
                height=6,
                from_zero=False,
                maximum=1,
                limits=warn_below(objective.objective),
            ),
            Query(f"1 - {bad}", f"{MODEL} by {{{{clock}}}}"),
            may_be_empty=f"no first token was counted in {span}",
        ),
    )


def _say_where_clipped(board: BoardBuilder, quantile: str) -> str:
    """PromQL of the p99 with a label `bound` that says whether it is above the top edge, so that the edge stands for it."""
    p99 = board.select(quantile, rank="p99")
    on = board.match_on("model_name", "role")
    clipped = f"{on} {board.select(quantile.replace(':quantile_', ':above_top_edge_ratio_'))} > 0.01"
    return (
        f'label_replace({p99} unless {clipped}, "bound", "p99", "", "") or '
        f'label_replace({p99} and {clipped}, "bound", "at least", "", "")'
    )


def _make_kv_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    full = board.settings.alerts["KVSaturated"]["above"]
    return (
        board.model_graph(
            "KV cache usage of the fullest engine",
            "Share of the KV cache that running requests hold, on the engine with the highest usage. If it is full while requests wait, running requests get preempted.",
            Look(Unit.RATIO, height=6, maximum=1, limits=warn_above(full)),
            board.line("model:llm_serving_kv_cache_usage_ratio:max", MODEL),
        ),
        board.model_graph(
            "Prefix cache hit rate",
            "Share of looked-up tokens that were in the cache, over 5m. When it falls, prefill computes tokens that used to be cached.",
            Look(Unit.RATIO, worst=Worst.LOWEST, height=6, maximum=1),
            board.line("model:llm_serving_prefix_cache_hit:ratio_rate5m", MODEL),
        ),
    )


def _make_tail_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    few = board.settings.alerts["LongContextFewFit"]
    return (
        board.model_graph(
            "Long requests that fit",
            "How many requests with a p99 prompt and a mean answer fit into the KV cache at once (lower bound). If only a few fit, they leave no room for others.",
            Look(Unit.COUNT, worst=Worst.LOWEST, height=6, limits=warn_below(few["below"])),
            board.line("model:llm_serving_long_context_requests_fit:min", MODEL, bound="lower"),
        ),
        board.model_graph(
            "KV cache share of the longest 1 %",
            "Share of the KV cache that the longest 1 % of requests hold (lower bound). Estimated from the lengths of finished requests.",
            Look(Unit.RATIO, height=6, maximum=1, limits=warn_above(board.settings.panels.long_context_share_above)),
            board.line("model:llm_serving_long_context_kv_share_ratio:max", MODEL, bound="lower"),
        ),
    )


def _make_node_loss_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    return (
        board.model_graph(
            "Load without the largest node",
            "Demand of the last hour over the capacity that remains without the largest node, for the scarcest resource. Above 100 %, the survivors cannot carry the demand.",
            Look(Unit.RATIO, height=6, logarithmic=True, limits=warn_above(1)),
            board.line("model:llm_serving_n1_load:max", MODEL),
            may_be_empty="no demand or no capacity is known yet",
        ),
        board.model_graph(
            "Replicas: ready, required, required with reserve",
            "How many replicas are ready, how many the demand requires, and how many it requires so that the largest node can fail.",
            Look(Unit.COUNT, worst=Worst.LOWEST, height=6, decimals=0),
            board.line("model:llm_serving_ready_replicas:sum", f"ready {MODEL}"),
            board.line("model:llm_serving_required_replicas:ceil", f"required {MODEL}, reserve: {{{{reserve}}}}"),
        ),
    )
