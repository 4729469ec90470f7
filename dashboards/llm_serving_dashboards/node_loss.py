"""Node loss: can the largest node go, which would hurt most, and has it been tried."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
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
SUFFICIENT = (
    ValueMapping(1, "can go", Colour.GOOD),
    ValueMapping(0, "cannot go", Colour.BAD),
    ValueMapping(None, "unknown", Colour.UNKNOWN),
)


def build_board(queries: QueryBuilder) -> Board:
    """The answer, what it rests on, and what was tried."""
    return Board(
        Check.NODE_LOSS.dashboard,
        "LLM serving: node loss",
        "N-1: whether the survivors carry the demand of the last hour when the largest node goes, by every resource.",
        VARIABLES,
        (
            Row("N-1", _make_n1_panels(queries)),
            Row("What it rests on", _make_capacity_panels(queries)),
            Row("Nodes and drills", _make_node_panels(queries)),
        ),
    )


def _make_n1_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    return (
        make_verdict(
            queries, Check.NODE_LOSS, "Check", queries.select("model:llm_serving_n1_sufficient:bool"), height=8
        ),
        Panel(
            "The largest node may go",
            "By model, over time. Unknown where a resource is: a replica that was never seen under a queue and has no roofline, or a node that nobody names.",
            Visualization.STATE_TIMELINE,
            (Query(queries.select("model:llm_serving_n1_sufficient:bool"), MODEL),),
            Unit.NONE,
            8,
            mappings=SUFFICIENT,
        ),
        make_time_series(
            "Load without the largest node, by resource",
            "Demand of the last hour over what would be left. The highest line binds: it says what to add.",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_n1_load:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            width=12,
            logarithmic=True,
            **draw_thresholds(warn_above(1)),
        ),
    )


def _make_capacity_panels(queries: QueryBuilder) -> tuple[Panel, ...]:
    required = "model:llm_serving_required_replicas:ceil"
    return (
        make_time_series(
            "Replicas: wanted, ready, required",
            "Required: what the demand and its slope need until a new replica serves; with the reserve: and the largest node may go.",
            Unit.COUNT,
            Query(queries.select("model:llm_serving_desired_replicas:max"), f"wanted {MODEL}"),
            Query(queries.select("model:llm_serving_ready_replicas:sum"), f"ready {MODEL}"),
            Query(queries.select(required, reserve="none"), f"required {MODEL}"),
            Query(queries.select(required, reserve="nodes"), f"required with reserve {MODEL}"),
            minimum=0,
            decimals=0,
        ),
        make_time_series(
            "Required replicas by reason",
            "What each resource alone would need: the largest is the reason.",
            Unit.COUNT,
            Query(queries.select("model:llm_serving_required:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            minimum=0,
        ),
        make_time_series(
            "Load of the ready replicas, by resource",
            "Demand of the last hour over what is there now. Above 100 % they queue already.",
            Unit.RATIO,
            Query(queries.select("model:llm_serving_load:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            logarithmic=True,
            **draw_thresholds(warn_above(1)),
        ),
        make_table(
            "How the capacity of a replica is known",
            "Measured: the best rate seen while requests waited in 7 days. Estimated: a share of the roofline's ceiling.",
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
    verdicts = queries.select_one("drill_last_verdict", "model_name", "role", "verdict")
    last_run = queries.select_one("drill_last_run_timestamp_seconds", "model_name", "role")
    return (
        Panel(
            "Capacity that goes with a node",
            "Mean share over the resources. The longest bar is the node that would hurt most.",
            Visualization.BAR_GAUGE,
            (Query(queries.aggregate("avg", share, "model_name", "node"), "{{node}} {{model_name}}", instant=True),),
            Unit.RATIO,
            12,
            minimum=0,
            maximum=1,
        ),
        make_table(
            "Drills",
            "The last node-loss drill of each model: what has not been tried does not work.",
            (
                Column("model_name", "model"), Column("role", "role"), Column("verdict", "verdict"),
                Column(0, "last run", Unit.MILLISECONDS_SINCE),
            ),
            f"({verdicts} == 1) * {queries.match_on('model_name', 'role')} group_left () (1000 * {last_run})",
            may_be_empty="no drill was recorded",
        ),
    )  # fmt: skip
