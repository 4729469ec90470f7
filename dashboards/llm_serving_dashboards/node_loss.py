"""The dashboard of node loss: can the fleet lose its largest node, which node matters most, and what did drills show."""

from __future__ import annotations

from llm_serving_alerts.records.node_loss import LARGEST, SUFFICIENT
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.firing import make_firing
from llm_serving_dashboards.panels import Board, Colour, Column, Panel, Query, Row, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import (
    MODEL,
    draw_thresholds,
    make_table,
    make_time_series,
    make_verdict,
    warn_above,
)

VARIABLES = ("model_name", "role")
_NO_REDUNDANCY = 2
# as many bars as can be read
_NODES = 10
SURVIVAL = (
    ValueMapping(1, "survives", Colour.GOOD),
    ValueMapping(0, "overloaded", Colour.BAD),
    ValueMapping(_NO_REDUNDANCY, "no redundancy", Colour.WARNING),
    ValueMapping(None, "unknown", Colour.UNKNOWN),
)


def build_board(queries: QueryBuilder) -> Board:
    """The verdict, the capacity behind it, then nodes and drills."""
    return Board(
        Check.NODE_LOSS.dashboard,
        "LLM serving: node loss",
        "N-1: can the surviving replicas carry the demand of the last hour without the largest node, for every resource?",
        VARIABLES,
        (
            Row("", (make_firing(queries, Check.NODE_LOSS.dashboard),)),
            Row("N-1", _make_n1_panels(queries)),
            Row("Capacity", _make_capacity_panels(queries)),
            Row("Nodes and drills", _make_node_panels(queries)),
        ),
    )


def _make_n1_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_verdict(queries, Check.NODE_LOSS, "Check", height=8),
        Panel(
            "Loss of the largest node",
            "Whether each model survives it, over time. No redundancy: no replica would be left, because all of them stand on it. Unknown: a replica has no "
            "node, or its capacity is unknown because it never had a queue and has no roofline.",
            Visualization.STATE_TIMELINE,
            (Query(f"{_find_without_redundancy(queries)} or {queries.select(SUFFICIENT)}", MODEL),),
            Unit.NONE,
            8,
            mappings=SURVIVAL,
        ),
        make_time_series(
            "Load without the largest node, by resource",
            "Demand of the last hour over the capacity that remains. The highest line is the scarcest resource: add that one.",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_n1_load:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            width=12,
            logarithmic=True,
            **draw_thresholds(warn_above(1)),
        ),
    )


def _find_without_redundancy(queries: QueryBuilder) -> str:
    """PromQL of the models that the largest node (or as many as may go at once) would leave without a replica."""
    ready = f"{queries.match_on('model_name', 'role')} {queries.select('model:llm_serving_ready_replicas:sum')} > 0"
    return f"({queries.select(LARGEST)} >= {ready}) * 0 + {_NO_REDUNDANCY}"


def _make_capacity_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    required = "model:llm_serving_required_replicas:ceil"
    return (
        make_time_series(
            "Replicas: desired, ready, required",
            "Required: replicas for the demand and its trend until a new replica is ready. With reserve: also without the largest node.",
            Unit.COUNT,
            Query(queries.select("model:llm_serving_desired_replicas:max"), f"desired {MODEL}"),
            Query(queries.select("model:llm_serving_ready_replicas:sum"), f"ready {MODEL}"),
            Query(queries.select(required, reserve="none"), f"required {MODEL}"),
            Query(queries.select(required, reserve="nodes"), f"required with reserve {MODEL}"),
            minimum=0,
            decimals=0,
        ),
        make_time_series(
            "Required replicas by resource",
            "How many replicas each resource alone requires. The highest number decides.",
            Unit.COUNT,
            Query(queries.select("model:llm_serving_required:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            minimum=0,
        ),
        make_time_series(
            "Load of the ready replicas, by resource",
            "Demand of the last hour over the present capacity. Above 100 %, requests already queue.",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_load:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            logarithmic=True,
            **draw_thresholds(warn_above(1)),
        ),
        make_table(
            "Source of a replica's capacity",
            "Measured: the best rate in 7 days while requests waited. Estimated: a share of the roofline's ceiling.",
            (
                Column("model_name", "model"),
                Column("gpu_name", "GPU"),
                Column("phase", "phase"),
                Column("basis", "basis"),
            ),
            f"{queries.select('model_gpu:llm_serving_replica_capacity:basis')} == 1",
        ),
    )


def _make_node_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    share = (
        f"{queries.select('model_node:llm_serving_capacity:sum')} / {queries.match_on('model_name', 'role', 'resource')} group_left () "
        f"{queries.select('model:llm_serving_capacity:sum')}"
    )
    largest = queries.aggregate("avg", share, "model_name", "node")
    verdicts = queries.select_one("drill_last_verdict", "model_name", "role", "verdict")
    last_run = queries.select_one("drill_last_run_timestamp_seconds", "model_name", "role")
    return (
        Panel(
            "Capacity share of each node",
            f"Averaged over the resources, of the {_NODES} nodes with the most. Losing the node with the longest bar costs the most capacity.",
            Visualization.BAR_GAUGE,
            (Query(f"topk({_NODES}, {largest})", "{{node}} {{model_name}}", instant=True),),
            Unit.RATIO,
            12,
            minimum=0,
            maximum=1,
        ),
        make_table(
            "Drills",
            "The last node-loss drill of each model. Only a drill proves that a model survives.",
            (
                Column("model_name", "model"), Column("role", "role"), Column("verdict", "verdict"),
                Column(0, "last run", Unit.MILLISECONDS_SINCE),
            ),
            f"({verdicts} == 1) * {queries.match_on('model_name', 'role')} group_left () (1000 * {last_run})",
            may_be_empty="no drill has run",
        ),
    )  # fmt: skip
