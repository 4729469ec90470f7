"""Five checks: the page that stays open."""

from __future__ import annotations

from llm_serving_alerts.promql import seconds_text
from llm_serving_alerts.records.slo import RATIO
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.panels import Board, Colour, Column, Panel, Query, Row, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import make_verdict, warn_above, warn_below

UID = "llm-serving-home"
VARIABLES = ("model_name", "role")
MODEL = "{{model_name}} {{role}}"
_CHANGES = 20

# in the order of docs/limiter.md, with what it takes to give more
LIMITERS = (
    ("starved", "super-light-blue"),
    ("bandwidth", Colour.GOOD),
    ("compute", Colour.PLAIN),
    ("batch_limit", "yellow"),
    ("kv_capacity", Colour.WARNING),
    ("prefill_interference", Colour.BAD),
    ("overhead", Colour.DEAD),
    ("unknown", Colour.UNKNOWN),
)


def build_board(queries: QueryBuilder) -> Board:
    """A row a check: its verdict, and the two numbers that it goes by."""
    return Board(
        UID,
        "LLM serving: five checks",
        "Is every model well, and if not, which check says so? A row a check; the coloured field leads to its details.",
        VARIABLES,
        (
            Row("Now", (*_make_now_panels(queries),)),
            Row("1. Phases: prefill and decode apart", _make_phase_panels(queries)),
            Row("2. Time to first token", _make_ttft_panels(queries)),
            Row("3. KV cache", _make_kv_panels(queries)),
            Row("4. Long-context tail", _make_tail_panels(queries)),
            Row("5. Node loss", _make_node_loss_panels(queries)),
        ),
    )


def make_limiter(queries: QueryBuilder, width: int, height: int = 6) -> Panel:
    """What holds throughput now, a line a model."""
    counted = "model:llm_serving_limiter:count"
    most = queries.aggregate("max", queries.select(counted), "model_name", "role")
    states = [
        f"(({queries.aggregate('max', queries.select(counted, state=state), 'model_name', 'role')} == {queries.match_on('model_name', 'role')} {most}) * 0 + {code})"
        for code, (state, _) in enumerate(LIMITERS)
    ]
    return Panel(
        "What limits",
        "What most replicas of a model are bound by: bandwidth and compute are a well-fed server; batch_limit and kv_capacity give more once the "
        "limit or the memory grows; prefill_interference asks for a smaller prefill budget or pools of their own; overhead is launch or network. "
        "See docs/limiter.md.",
        Visualization.STATE_TIMELINE,
        (Query(" or ".join(states), MODEL),),
        Unit.NONE,
        width,
        height,
        mappings=tuple(
            ValueMapping(code, state.replace("_", " "), colour) for code, (state, colour) in enumerate(LIMITERS)
        ),
    )


def _make_now_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    rest = tuple(
        make_verdict(queries, check, title, queries.select(present), width=4, height=3)
        for check, title, present in (
            (Check.SLO, "Other SLOs", "model:llm_serving_slo_events:increase5m"),
            (Check.GPU, "GPUs", "gpu_up"),
            (Check.COST, "Cost", "model:llm_serving_cost_usd:increase1h"),
            (Check.EXPORTER, "Exporter", "target:llm_serving_ready:max"),
        )
    )
    errors = queries.aggregate(
        "sum", queries.select("model:llm_serving_slo_bad:increase5m", slo="errors"), "model_name", "role"
    )
    return (
        *rest,
        Panel(
            "Replicas",
            "Ready ones, of all that were chosen. Loading and sleeping ones are not ready, and not down.",
            Visualization.STAT,
            (Query(f"sum({queries.select('model:llm_serving_ready_replicas:sum')})", "ready"),),
            Unit.COUNT,
            4,
            3,
            thresholds=warn_below(1),
        ),
        Panel(
            "Waiting",
            "Requests that wait to run, of all that were chosen. Above 0 for minutes, something limits: see what, below.",
            Visualization.STAT,
            (Query(f"sum({queries.select('model:llm_serving_requests_waiting:sum')})", "waiting"),),
            Unit.COUNT,
            4,
            3,
            thresholds=warn_above(1),
        ),
        make_limiter(queries, 9, 9),
        Panel(
            "Error rate",
            "Share of requests that failed in 5m: finished by error, and HTTP 5xx that no finish covers. Rejections and aborts are neither good nor bad. "
            "Absent while nothing ends.",
            Visualization.TIME_SERIES,
            (Query(f"{errors} / ({queries.aggregate('sum', queries.select('model:llm_serving_slo_events:increase5m', slo='errors'), 'model_name', 'role')} > 0)", MODEL),),
            Unit.RATIO,
            5,
            9,
            minimum=0,
            may_be_empty="nothing ended yet",
        ),
        _make_changes_panel(queries),
    )  # fmt: skip


def _make_changes_panel(queries: QueryBuilder) -> Panel:
    started = queries.aggregate("max", queries.select("target_start_time_seconds"), "target")
    whose = queries.aggregate("max", queries.select("target_info"), "target", "model_name", "version")
    what = (
        ("started", f"{whose} * {queries.match_on('target')} group_left () {started}"),
        ("drill", queries.aggregate("max", queries.select("drill_last_run_timestamp_seconds"), "model_name")),
        ("config loaded", f"max({queries.select('exporter_config_reload_success_timestamp_seconds')})"),
    )
    named = " or ".join(f'label_replace({when}, "what", "{text}", "", "")' for text, when in what)
    return Panel(
        "What changed",
        f"The {_CHANGES} latest starts of replicas with their versions, drills, and loads of the exporter's configuration. A start a moment ago explains "
        "cold caches; two versions of a model explain most else.",
        Visualization.TABLE,
        (Query(f"topk({_CHANGES}, 1000 * ({named}))", table=True, instant=True),),
        Unit.NONE,
        10,
        9,
        columns=(
            Column(0, "when", Unit.MILLISECONDS_SINCE), Column("what", "what"), Column("target", "target"), Column("version", "version"),
            Column("model_name", "model"),
        ),
    )  # fmt: skip


def _make_phase_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    per_gpu = "model:llm_serving_phase_tokens_per_gpu:rate5m"
    return (
        make_verdict(queries, Check.PHASES, "Phases", queries.select("model:llm_serving_phase_tokens:rate5m")),
        *(
            Panel(
                f"{phase.capitalize()} tokens/s per GPU",
                f"{what}, per GPU of the ready replicas: comparable between models and fleets of any size.",
                Visualization.TIME_SERIES,
                (Query(queries.select(per_gpu, phase=phase), MODEL),),
                Unit.TOKENS_PER_SECOND,
                10,
                6,
                minimum=0,
            )
            for phase, what in (
                ("prefill", "Prompt tokens really computed"),
                ("decode", "Tokens generated"),
            )
        ),
    )


def _make_ttft_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    objective = queries.settings.slo["ttft"]
    quantile = "model:llm_serving_time_to_first_token_seconds:quantile_rate5m"
    steps = warn_above(objective.threshold_seconds) if objective.threshold_seconds is not None else ()
    span = seconds_text(queries.settings.burn["fast"][0].long_seconds)
    bad = queries.select(RATIO.format(window=span), slo="ttft")
    return (
        make_verdict(
            queries, Check.TTFT, "TTFT", queries.select("model:llm_serving_slo_events:increase5m", slo="ttft")
        ),
        Panel(
            "p99 time to first token",
            "99th percentile over 5m. At the engine's largest bucket edge it reads that edge and means at least so much.",
            Visualization.TIME_SERIES,
            (Query(queries.select(quantile, rank="p99"), MODEL),),
            Unit.SECONDS,
            10,
            6,
            logarithmic=True,
            thresholds=steps,
            draw_thresholds=bool(steps),
        ),
        Panel(
            "Requests within the objective",
            f"Share of first tokens in time over {span}; the objective is {objective.objective:.4g}. Absent while nothing was asked.",
            Visualization.TIME_SERIES,
            (Query(f"1 - {bad}", MODEL),),
            Unit.RATIO,
            10,
            6,
            maximum=1,
            thresholds=warn_below(objective.objective),
            draw_thresholds=True,
        ),
    )


def _make_kv_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    full = queries.settings.alerts["KVSaturated"]["above"]
    return (
        make_verdict(queries, Check.KV, "KV cache", queries.select("model:llm_serving_kv_cache_usage_ratio:max")),
        Panel(
            "KV cache usage of the fullest engine",
            "Share of the KV cache that live requests hold, of the engine where it is most. Full while requests wait: the next ones are preempted.",
            Visualization.TIME_SERIES,
            (Query(queries.select("model:llm_serving_kv_cache_usage_ratio:max"), MODEL),),
            Unit.RATIO,
            10,
            6,
            minimum=0,
            maximum=1,
            thresholds=warn_above(full),
            draw_thresholds=True,
        ),
        Panel(
            "Prefix cache hit rate",
            "Share of looked-up tokens that were there, over 5m. Half of the usual means that prefill computes again what it used to find.",
            Visualization.TIME_SERIES,
            (Query(queries.select("model:llm_serving_prefix_cache_hit:ratio_rate5m"), MODEL),),
            Unit.RATIO,
            10,
            6,
            minimum=0,
            maximum=1,
        ),
    )


def _make_tail_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    few, share = (queries.settings.alerts[name] for name in ("LongContextFewFit", "LongContextShare"))
    return (
        make_verdict(
            queries, Check.TAIL, "Tail", queries.select("model:llm_serving_long_context_requests_observed:max")
        ),
        Panel(
            "Requests of p99 length that fit",
            "How many requests with a p99 prompt and a mean answer the KV cache holds at once, at least: few of them leave room for nobody else.",
            Visualization.TIME_SERIES,
            (Query(queries.select("model:llm_serving_long_context_requests_fit:min", bound="lower"), MODEL),),
            Unit.COUNT,
            10,
            6,
            minimum=0,
            thresholds=warn_below(few["below"]),
            draw_thresholds=True,
        ),
        Panel(
            "KV held by the longest hundredth",
            "Share of all KV that the longest 1 % of requests hold, at least: an estimate from the lengths of finished requests.",
            Visualization.TIME_SERIES,
            (Query(queries.select("model:llm_serving_long_context_kv_share_ratio:max", bound="lower"), MODEL),),
            Unit.RATIO,
            10,
            6,
            minimum=0,
            maximum=1,
            thresholds=warn_above(share["above"]),
            draw_thresholds=True,
        ),
    )


def _make_node_loss_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_verdict(queries, Check.NODE_LOSS, "Node loss", queries.select("model:llm_serving_n1_sufficient:bool")),
        Panel(
            "Load without the largest node",
            "Demand of the last hour over what would be left without the largest node, of the scarcest resource: above 100 % the loss is not carried.",
            Visualization.TIME_SERIES,
            (Query(queries.select("model:llm_serving_n1_load:max"), MODEL),),
            Unit.RATIO,
            10,
            6,
            logarithmic=True,
            thresholds=warn_above(1),
            draw_thresholds=True,
        ),
        Panel(
            "Replicas: ready, required, required with the reserve",
            "What serves now, what the demand needs, and what it needs so that the largest node may go.",
            Visualization.TIME_SERIES,
            (
                Query(queries.select("model:llm_serving_ready_replicas:sum"), f"ready {MODEL}"),
                Query(
                    queries.select("model:llm_serving_required_replicas:ceil"),
                    f"required {MODEL}, reserve: {{{{reserve}}}}",
                ),
            ),
            Unit.COUNT,
            10,
            6,
            minimum=0,
            decimals=0,
        ),
    )
