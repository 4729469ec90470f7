"""Node loss: can the largest node go, which would hurt most, and has it been tried."""

from __future__ import annotations

from llm_serving_alerts.rules import Check
from llm_serving_dashboards.asking import Asking
from llm_serving_dashboards.nouns import Board, Colour, Column, Look, Panel, Query, Row, Says, Unit
from llm_serving_dashboards.parts import MODEL, above, lines, table, threshold, verdict

VARIABLES = ("model_name", "role")
SUFFICIENT = (
    Says(1, "can go", Colour.GOOD),
    Says(0, "cannot go", Colour.BAD),
    Says(None, "unknown", Colour.UNKNOWN),
)


def board(asking: Asking) -> Board:
    """The answer, what it rests on, and what was tried."""
    return Board(
        Check.NODE_LOSS.dashboard,
        "LLM serving: node loss",
        "N-1: whether the survivors carry the demand of the last hour when the largest node goes, by every resource.",
        VARIABLES,
        (
            Row("N-1", _answer(asking)),
            Row("What it rests on", _rests(asking)),
            Row("Nodes and drills", _nodes(asking)),
        ),
    )


def _answer(asking: Asking) -> tuple[Panel, ...]:
    return (
        verdict(asking, Check.NODE_LOSS, "Check", asking.of("model:llm_serving_n1_sufficient:bool"), height=8),
        Panel(
            "The largest node may go",
            "By model, over time. Unknown where a resource is: a replica that was never seen under a queue and has no roofline, or a node that nobody names.",
            Look.STATES,
            (Query(asking.of("model:llm_serving_n1_sufficient:bool"), MODEL),),
            Unit.NONE,
            8,
            says=SUFFICIENT,
        ),
        lines(
            "Load without the largest node, by resource",
            "Demand of the last hour over what would be left. The highest line binds: it says what to add.",
            Unit.RATIO,
            Query(asking.of("model:llm_serving_n1_load:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            width=12,
            logarithmic=True,
            **threshold(above(1)),
        ),
    )


def _rests(asking: Asking) -> tuple[Panel, ...]:
    required = "model:llm_serving_required_replicas:ceil"
    return (
        lines(
            "Replicas: wanted, ready, required",
            "Required: what the demand and its slope need until a new replica serves; with the reserve: and the largest node may go.",
            Unit.COUNT,
            Query(asking.of("model:llm_serving_desired_replicas:max"), f"wanted {MODEL}"),
            Query(asking.of("model:llm_serving_ready_replicas:sum"), f"ready {MODEL}"),
            Query(asking.of(required, reserve="none"), f"required {MODEL}"),
            Query(asking.of(required, reserve="nodes"), f"required with reserve {MODEL}"),
            least=0,
            decimals=0,
        ),
        lines(
            "Required replicas by reason",
            "What each resource alone would need: the largest is the reason.",
            Unit.COUNT,
            Query(asking.of("model:llm_serving_required:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            least=0,
        ),
        lines(
            "Load of the ready replicas, by resource",
            "Demand of the last hour over what is there now. Above 100 % they queue already.",
            Unit.RATIO,
            Query(asking.of("model:llm_serving_load:ratio", 'resource!="work"'), f"{{{{resource}}}} {MODEL}"),
            logarithmic=True,
            **threshold(above(1)),
        ),
        table(
            "How the capacity of a replica is known",
            "Measured: the best rate seen while requests waited in 7 days. Estimated: a share of the roofline's ceiling.",
            (
                Column("model_name", "model"),
                Column("gpu_name", "GPU"),
                Column("phase", "phase"),
                Column("basis", "basis"),
            ),
            f"{asking.of('model_gpu:llm_serving_replica_capacity:basis')} == 1",
        ),
    )


def _nodes(asking: Asking) -> tuple[Panel, ...]:
    share = (
        f"{asking.of('model_node:llm_serving_capacity:sum')} / {asking.on('model_name', 'role', 'resource')} group_left () "
        f"{asking.of('model:llm_serving_capacity:sum')}"
    )
    verdicts = asking.one("drill_last_verdict", "model_name", "role", "verdict")
    last_run = asking.one("drill_last_run_timestamp_seconds", "model_name", "role")
    return (
        Panel(
            "Capacity that goes with a node",
            "Mean share over the resources. The longest bar is the node that would hurt most.",
            Look.BARS,
            (Query(asking.by("avg", share, "model_name", "node"), "{{node}} {{model_name}}", instant=True),),
            Unit.RATIO,
            12,
            least=0,
            most=1,
        ),
        table(
            "Drills",
            "The last node-loss drill of each model: what has not been tried does not work.",
            (
                Column("model_name", "model"), Column("role", "role"), Column("verdict", "verdict"),
                Column(0, "last run", Unit.MILLISECONDS_SINCE),
            ),
            f"({verdicts} == 1) * {asking.on('model_name', 'role')} group_left () (1000 * {last_run})",
            may_be_empty="no drill was recorded",
        ),
    )  # fmt: skip
