"""The dashboard of node loss: which nodes are lost, can the fleet lose its largest one, which node matters most, and what did drills show."""

from __future__ import annotations

from llm_serving_alerts.alerting.verdicts import GOOD, REST, VERDICT
from llm_serving_alerts.declare import CHOICES
from llm_serving_alerts.promql import MODEL as BY_MODEL
from llm_serving_alerts.records.history import NODE_SERVED
from llm_serving_alerts.records.node_loss import LARGEST, LOAD, N1_LOAD, SUFFICIENT
from llm_serving_alerts.records.presence import LOST_REPLICAS, LOST_SHARE
from llm_serving_alerts.records.targets import DESIRED, KNOWN
from llm_serving_alerts.rules import Check
from llm_serving_dashboards.firing import MOST_CHOSEN, make_firing
from llm_serving_dashboards.panels import Board, Colour, Column, Look, Panel, Query, Row, Unit, ValueMapping, Worst
from llm_serving_dashboards.shared_panels import DEAD, MODEL, UNKNOWN, VERDICTS, BoardBuilder, keep_highest, warn_above

VARIABLES = CHOICES[Check.NODE_LOSS.dashboard]
# codes of the timeline, the worst is the highest
_SURVIVES, _UNKNOWN, _NO_REDUNDANCY, _OVERLOADED, _NODE_LOST = range(5)
# beside the verdicts of checks
_ALONE = 6.0
# as many as can be read
_NODES = 10
# models by name where many are chosen
_WORST_MODELS = 5
# heavier than any load
_NOTHING_LEFT = 1_000_000
_READY = "model:llm_serving_ready_replicas:sum"
_MOST, _N1_MOST = (record.replace(":ratio", ":max") for record in (LOAD, N1_LOAD))
_NO_LOAD = "no demand or no capacity is known yet"
SURVIVAL = (
    ValueMapping(_SURVIVES, "survives", Colour.FINE),
    ValueMapping(_UNKNOWN, "unknown", Colour.UNKNOWN),
    ValueMapping(_NO_REDUNDANCY, "no redundancy", Colour.WARNING),
    ValueMapping(_OVERLOADED, "overloaded", Colour.BAD),
    ValueMapping(_NODE_LOST, "node lost", "dark-red"),
)


def build_board(board: BoardBuilder) -> Board:
    """What is lost, the verdict, the capacity behind it, then nodes and drills."""
    return Board(
        Check.NODE_LOSS.dashboard,
        "LLM serving: node loss",
        "Which nodes are lost, and who carries their load? N-1: can the surviving replicas carry the demand of the last hour without the largest node, for every resource?",
        VARIABLES,
        (
            Row("", (make_firing(board, Check.NODE_LOSS.dashboard),)),
            Row("Now", (_make_lost_panel(board), *_make_n1_panels(board))),
            Row("Capacity", _make_capacity_panels(board)),
            Row("Nodes and drills", _make_node_panels(board)),
        ),
    )


def _make_lost_panel(board: BoardBuilder) -> Panel:
    lost = f"{board.select(LOST_REPLICAS)} > 0"
    by = board.dialect.labels(*BY_MODEL, "node")
    rows, on = f"max by ({by}) ({lost})", board.match_on(*BY_MODEL)

    def of_model(record: str) -> str:
        return f"{rows} * 0 + {on} group_left () {board.select(record)}"

    # where nothing is left there is no load, and nothing is worse
    nothing = f"{rows} * 0 + {on} group_left () ({board.select(_READY)} == 0) + {_NOTHING_LEFT}"
    return board.table("Lost nodes", "Nodes that had ready replicas, have none now, and do not answer. One row for each model that a node served; first the model whose other replicas carry the most load. Load of the rest: demand "
        "of the last hour over what the ready replicas can carry, for the scarcest resource; above 100 % requests queue. After one more: the same without the largest remaining node.", Look(width=24, height=5, sorted_by=0), (
            "node", Column(1, "lost", Unit.MILLISECONDS_SINCE), "model_name", "role",
            Column(2, "replicas gone", Unit.COUNT), Column(3, "ready", Unit.COUNT), Column(4, "wanted", Unit.COUNT),
            Column(5, "load of the rest", Unit.RATIO, warn_above(1)), Column(6, "after one more", Unit.RATIO, warn_above(1)),
        ), f"{nothing} or {of_model(_MOST)} or {rows} * 0", f"{rows} * 0 + {board.match_on('node')} group_left () (1000 * ({board.find_start('NodeLost', 'node')} or {board.match_on('node')} {board.select(NODE_SERVED)}))", rows, of_model(_READY), of_model(DESIRED), of_model(_MOST), of_model(_N1_MOST), may_be_empty="no node is known to be lost")  # fmt: skip


def _make_n1_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    alone = _find_without_redundancy(board)
    lost = board.aggregate("max", board.select(LOST_SHARE), *BY_MODEL)
    states = f"{lost} * 0 + {_NODE_LOST} or ({alone}) * 0 + {_NO_REDUNDANCY} or (1 - {board.select(SUFFICIENT)}) * {_OVERLOADED} or {board.select(KNOWN)} * 0 + {_UNKNOWN}"
    scarcest = board.select(_N1_MOST)
    return (
        _make_verdict(board, alone),
        board.timeline(
            "Loss of the largest node",
            "Whether each model would survive it, over time; models that would not come first. Node lost: a node is gone and nothing has replaced it; the table above names it. No redundancy: no replica would "
            "be left, because all of them run on it. Unknown: a replica has no node, or its capacity is unknown because it never had a queue and has no roofline.",
            Look(width=8, mappings=SURVIVAL),
            *board.list_worst_first("survival", states, _NODE_LOST, _OVERLOADED, _NO_REDUNDANCY),
            may_be_empty="no model is known",
        ),
        board.time_series(
            "Load without the largest node, by resource",
            f"Demand of the last hour over the capacity that remains. The highest line is the scarcest resource: add that one. With more than {MOST_CHOSEN} models chosen, only the scarcest "
            f"resource of the {_WORST_MODELS} models with the highest mean over the time range.",
            Look(Unit.RATIO, logarithmic=True, limits=warn_above(1)),
            Query(
                board.hide_above(MOST_CHOSEN, "model_name", board.select(N1_LOAD, 'resource!="work"')),
                f"{{{{resource}}}} {MODEL}",
            ),
            Query(_find_worst(board, scarcest), MODEL),
            may_be_empty="no redundancy, or no demand or capacity is known yet",
        ),
    )


def _make_verdict(board: BoardBuilder, alone: str) -> Panel:
    """The worst verdict of the selection as the rules record it; else what is known instead. `alone`: PromQL of the models without redundancy."""
    check, lost = Check.NODE_LOSS.value, f"{board.select(LOST_REPLICAS)} > 0"
    said = board.select(VERDICT, check=check)
    worst = (
        # a lost node is of no model: it counts where one of the selection was on it
        f"max({said} or {board.select(REST, check=check)} > {GOOD} and on () count({lost}))",
        f"max({alone}) * 0 + {_ALONE:g}",
        f"max({UNKNOWN:g} * {board.select('exporter_build_info')})",
        # without any series Grafana would show no field at all
        f"vector({DEAD:g})",
    )
    return board.stat(
        "Check",
        f"The worst verdict of the check {check}: a page, a ticket or none (fine), by the alerts of these rules alone. No redundancy: there is no verdict, because all replicas run on one "
        "node. Unknown: the series that the check needs are absent, or its alerts are not evaluated; the exporter's dashboard says which and why. No exporter: no exporter is running.",
        Look(
            width=4,
            mappings=(*VERDICTS, ValueMapping(_ALONE, "no redundancy", Colour.WARNING)),
            detail_uid=Check.EXPORTER.dashboard,
        ),
        Query(" or ".join(worst), "check", instant=True),
    )


def _find_without_redundancy(board: BoardBuilder) -> str:
    """PromQL of the models that the largest node (or as many as may go at once) would leave without a replica."""
    ready = f"{board.match_on('model_name', 'role')} {board.select(_READY)} > 0"
    return f"{board.select(LARGEST)} >= {ready}"


def _find_worst(board: BoardBuilder, by_model: str) -> str:
    """PromQL of the models by name where many are chosen."""
    many = board.hide_below(MOST_CHOSEN + 1, "model_name", by_model)
    return board.find_worst(many, Worst.HIGHEST, _WORST_MODELS, "model_name")


def _make_capacity_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    required = "model:llm_serving_required_replicas:ceil"

    def few(expression: str) -> str:
        return board.hide_above(MOST_CHOSEN, "model_name", expression)

    by_resource = board.select("model:llm_serving_required:ratio", 'resource!="work"')
    shown = f" With more than {MOST_CHOSEN} models chosen, only the {_WORST_MODELS} with the highest mean over the time range."
    return (
        board.time_series(
            "Replicas: desired, ready, required",
            f"Required: replicas for the demand and its trend until a new replica is ready. With reserve: also without the largest node. With more than {MOST_CHOSEN} models chosen: their sums.",
            Look(Unit.COUNT, decimals=0),
            *(
                Query(query, legend)
                for words, selected in (
                    ("desired", board.select(DESIRED)),
                    ("ready", board.select(_READY)),
                    ("required", board.select(required, reserve="none")),
                    ("required with reserve", board.select(required, reserve="nodes")),
                )
                for query, legend in (
                    (few(selected), f"{words} {MODEL}"),
                    (board.hide_below(MOST_CHOSEN + 1, "model_name", f"sum({selected})"), f"{words}, all"),
                )
            ),
            may_be_empty="no replica is known",
        ),
        board.time_series(
            "Required replicas by resource",
            f"How many replicas each resource alone requires. The highest number decides.{shown}",
            Look(Unit.COUNT),
            Query(few(by_resource), f"{{{{resource}}}} {MODEL}"),
            Query(_find_worst(board, board.aggregate("max", by_resource, *BY_MODEL)), MODEL),
            may_be_empty=_NO_LOAD,
        ),
        board.time_series(
            "Load of the ready replicas, by resource",
            f"Demand of the last hour over the present capacity. Above 100 %, requests already queue.{shown}",
            Look(Unit.RATIO, logarithmic=True, limits=warn_above(1)),
            Query(few(board.select(LOAD, 'resource!="work"')), f"{{{{resource}}}} {MODEL}"),
            Query(_find_worst(board, board.select(_MOST)), MODEL),
            may_be_empty=_NO_LOAD,
        ),
        board.table(
            "Source of a replica's capacity",
            "Measured: the best rate in 7 days while requests waited. Estimated: a share of the roofline's ceiling.",
            Look(),
            ("model_name", "gpu_name", "phase", "basis"),
            f"{board.select('model_gpu:llm_serving_replica_capacity:basis')} == 1",
            may_be_empty="no capacity is known yet",
        ),
    )


def _make_node_panels(board: BoardBuilder) -> tuple[Panel, ...]:
    share = (
        f"{board.select('model_node:llm_serving_capacity:sum')} / {board.match_on('model_name', 'role', 'resource')} group_left () "
        f"{board.select('model:llm_serving_capacity:sum')}"
    )
    largest = board.aggregate("avg", share, "model_name", "node")
    verdicts = board.select_one("drill_last_verdict", "model_name", "role", "verdict")
    last_run = board.select_one("drill_last_run_timestamp_seconds", "model_name", "role")
    return (
        board.table(
            "Capacity share of each node",
            f"Share of a model's capacity that stands on a node, averaged over the resources, of up to {_NODES} nodes with the largest shares: losing the first one costs the most. Nodes "
            "with equal shares are all shown or none.",
            Look(sorted_by=0),
            ("node", "model_name", Column(0, "share", Unit.RATIO, decimals=1, width=100)),
            keep_highest(largest, _NODES),
            may_be_empty=f"more than {_NODES} nodes carry as much as the largest one, or no replica's node is known",
        ),
        board.table(
            "Drills",
            "The last node-loss drill of each model. Only a drill proves that a model survives.",
            Look(),
            ("model_name", "role", "verdict", Column(0, "last run", Unit.MILLISECONDS_SINCE)),
            f"({verdicts} == 1) * {board.match_on('model_name', 'role')} group_left () (1000 * {last_run})",
            may_be_empty="no drill has run",
        ),
    )
