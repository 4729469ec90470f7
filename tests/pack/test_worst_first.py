"""What boards show first: who is lost, slow, missing or not ready; asked of promtool's Prometheus, 15 minutes in."""

from collections.abc import Iterable
from pathlib import Path

import pytest

from llm_serving_alerts.declare import FIRING_PANEL
from llm_serving_dashboards import exporter, node_loss, shared_panels
from llm_serving_dashboards.firing import BEFORE_RANGE
from llm_serving_dashboards.panels import Colour, Panel
from llm_serving_dashboards.shared_panels import DEAD, UNKNOWN
from tests.support.builders.askedpanels import ask_promtool, default_boards, write_series
from tests.support.builders.panelqueries import answered, filled

pytestmark = pytest.mark.process

Series = Iterable[dict[str, str]]
CHAT, CODE, ALONE, NEW = ({"model_name": name, "role": "unified"} for name in ("chat", "code", "alone", "new"))
LOST = "model_node:llm_serving_lost_replicas:count"
READY, LOAD = "model:llm_serving_ready_replicas:sum", "model:llm_serving_load:max"
STATE = "target:llm_serving_state:max"


def panel(board: str, title: str) -> Panel:
    (found,) = (one for one in default_boards()[f"llm-serving-{board}"].board.panels if one.title == title)
    return found


def text(**labels: str) -> str:
    """Labels as promtool compares them."""
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def asked(made: Panel, number: int) -> str:
    """A query of a panel with everything chosen, without its metric's name."""
    (hidden,) = (one.queries.hidden for one in default_boards().values() if made in one.board.panels)
    return f"({answered(made.queries[number].expr, hidden)}) * 1"


def column(made: Panel, title: str) -> str:
    """The query of a table's column."""
    (source,) = (one.source for one in made.columns if one.title == title)
    assert isinstance(source, int)
    return asked(made, source)


def alert(name: str, severity: str = "warning", values: str = "1x20", **labels: str) -> Series:
    """An alert that fires, and whose condition held from second 300 on."""
    about = {"alertname": f"LLMServing{name}", "severity": severity, **labels}
    yield write_series("ALERTS", values, alertstate="firing", **about)
    yield write_series("ALERTS_FOR_STATE", "300x20", **about)


# --- node loss ---------------------------------------------------------------------------------------------------------


def lose(model: dict[str, str], node: str, ready: int, load: float | None) -> Series:
    """A model that had two replicas on a lost node."""
    yield write_series(LOST, "2x20", **model, node=node)
    yield write_series(LOST, "0x20", **model, node="there")
    yield write_series(READY, f"{ready}x20", **model)
    yield write_series("model:llm_serving_desired_replicas:max", f"{ready + 2}x20", **model)
    yield write_series("node:llm_serving_served:time", "240x20", node=node)
    if load is not None:
        yield write_series(LOAD, f"{load}x20", **model)


def test_lost_nodes_stand_with_what_they_took_the_worst_first(tmp_path: Path) -> None:
    lost = panel("node-loss", "Lost nodes")
    series = [*lose(CHAT, "n1", 3, 0.4), *lose(CODE, "n1", 1, 1.2), *lose(ALONE, "n2", 0, None)]
    series += [*alert("NodeLost", "critical", node="n1", check="node_loss")]
    chat, code, alone = text(**CHAT, node="n1"), text(**CODE, node="n1"), text(**ALONE, node="n2")
    assert lost.look.sorted_by == 0
    ask_promtool(
        tmp_path,
        series,
        {
            # nothing is left of the last one, which weighs more than any load
            asked(lost, 0): {chat: 0.4, code: 1.2, alone: 1_000_000},
            # by the alert; of the one that nobody wrote down, when it last served
            column(lost, "lost"): {chat: 300_000, code: 300_000, alone: 240_000},
            column(lost, "replicas gone"): {chat: 2, code: 2, alone: 2},
            column(lost, "ready"): {chat: 3, code: 1, alone: 0},
            column(lost, "wanted"): {chat: 5, code: 3, alone: 2},
            column(lost, "load of the rest"): {chat: 0.4, code: 1.2},
        },
    )


def test_where_no_node_is_lost_one_sentence_says_so(tmp_path: Path) -> None:
    lost = panel("node-loss", "Lost nodes")
    series = [write_series(LOST, "0x20", **CHAT, node="n1"), write_series(READY, "3x20", **CHAT)]
    ask_promtool(tmp_path, series, {asked(lost, number): {} for number in range(len(lost.queries))})
    assert lost.may_be_empty == "no node is known to be lost"


def test_models_that_would_not_survive_come_first_and_the_lost_node_before_all(tmp_path: Path) -> None:
    timeline = panel("node-loss", "Loss of the largest node")
    words = {mapping.text: mapping.value for mapping in node_loss.SURVIVAL}
    series = [
        *lose(CHAT, "n1", 3, 0.4),
        write_series("model_node:llm_serving_lost_replicas:ratio", "0.4x20", **CHAT, node="n1"),
    ]
    largest, sufficient = "model:llm_serving_largest_node_replicas:max", "model:llm_serving_n1_sufficient:bool"
    for model, ready, of_node, survives in (
        (CHAT, None, 1, 1),
        (CODE, 4, 2, 0),
        (ALONE, 1, 1, None),
        (NEW, 4, None, None),
    ):
        series.append(write_series("model:llm_serving_targets:count", "4x20", **model))
        if ready is not None:
            series.append(write_series(READY, f"{ready}x20", **model))
        if of_node is not None:
            series.append(write_series(largest, f"{of_node}x20", **model))
        if survives is not None:
            series.append(write_series(sufficient, f"{survives}x20", **model))
    fine = {"model_name": "fine", "role": "unified"}
    series += [
        write_series("model:llm_serving_targets:count", "4x20", **fine),
        write_series(sufficient, "1x20", **fine),
    ]
    rows: tuple[dict[str, str], ...] = (
        {"chat": "node lost"},
        {"code": "overloaded"},
        {"alone": "no redundancy"},
        {"new": "unknown", "fine": "survives"},
    )
    found = {
        asked(timeline, number): {text(model_name=name, role="unified"): words[said] for name, said in row.items()}
        for number, row in enumerate(rows)
    }
    assert len(timeline.queries) == len(rows)
    ask_promtool(tmp_path, series, found)


def test_the_check_says_no_redundancy_and_no_page_of_another_models_node(tmp_path: Path) -> None:
    check = panel("node-loss", "Check")
    (alone,) = (mapping.value for mapping in check.look.mappings if mapping.text == "no redundancy")
    build = write_series("llm_serving_exporter_build_info", "1x20", version="1")
    one = [
        write_series(READY, "1x20", **ALONE),
        write_series("model:llm_serving_largest_node_replicas:max", "1x20", **ALONE),
        build,
    ]
    ask_promtool(tmp_path, one, {asked(check, 0): {"{}": alone}})
    ask_promtool(tmp_path, [build], {asked(check, 0): {"{}": UNKNOWN}})
    ask_promtool(tmp_path, [], {asked(check, 0): {"{}": DEAD}})
    rest = write_series("fleet:llm_serving_check:verdict", "2x20", check="node_loss")
    record = write_series("model:llm_serving_check:verdict", "0x20", check="node_loss", **CHAT)
    chosen = f"({filled(check.queries[0].expr.replace('$model_name', 'chat'))}) * 1"
    for lost, shown in ((CODE, 0.0), (CHAT, 2.0)):
        ask_promtool(
            tmp_path, [rest, record, build, write_series(LOST, "1x20", **lost, node="n1")], {chosen: {"{}": shown}}
        )


@pytest.mark.parametrize(
    ("capacities", "named"),
    [
        pytest.param((2.0, *(1.0,) * 12), (0,), id="one that carries more"),
        pytest.param((1.0,) * 12, (), id="all as much"),
        pytest.param((1.0,) * 4, (0, 1, 2, 3), id="few"),
    ],
)
def test_nodes_that_carry_as_much_are_all_named_or_none(
    tmp_path: Path, capacities: tuple[float, ...], named: tuple[int, ...]
) -> None:
    shares = panel("node-loss", "Capacity share of each node")
    series = [write_series("model:llm_serving_capacity:sum", f"{sum(capacities)}x20", resource="kv", **CHAT)]
    for number, capacity in enumerate(capacities):
        of = {"resource": "kv", "node": f"n{number}", **CHAT}
        series.append(write_series("model_node:llm_serving_capacity:sum", f"{capacity}x20", **of))
    rows = {text(model_name="chat", node=f"n{number}"): 100 * capacities[number] / sum(capacities) for number in named}
    found = f"round(100 * {asked(shares, 0)}, 0.001)"
    ask_promtool(tmp_path, series, {found: {labels: round(share, 3) for labels, share in rows.items()}})


# --- one replica -------------------------------------------------------------------------------------------------------


def replica(target: str, *unlike: str, state: str = "ready") -> Series:
    """A replica of chat; `unlike`: what it is slow or odd in."""
    yield write_series(STATE, "1x20", target=target, state=state)
    yield write_series("target:llm_serving_down:min", f"{int(state == 'down')}x20", target=target, **CHAT)
    yield write_series("llm_serving_target_info", "1x20", target=target, **CHAT)
    for of in unlike:
        yield write_series("target:llm_serving_outlier:own", "0.2x20", target=target, of=of, **CHAT)


@pytest.mark.parametrize(
    ("series", "shown"),
    [
        pytest.param([*replica("a")], "ready", id="ready"),
        pytest.param([*replica("a", "decode")], "ready, slow", id="slow"),
        pytest.param([*replica("a", "ttft", "queue")], "ready, slow", id="slow and odd"),
        pytest.param([*replica("a", "errors")], "ready, unlike its peers", id="errors"),
        pytest.param([*replica("a", "decode", state="down")], "down", id="down"),
        pytest.param([], "no exporter", id="nobody looks"),
    ],
)
def test_a_slow_replica_is_no_plain_ready_one(tmp_path: Path, series: list[dict[str, str]], shown: str) -> None:
    state = panel("replica", "State")
    code, colour = next((one.value, one.colour) for one in state.look.mappings if one.text == shown)
    ask_promtool(tmp_path, series, {asked(state, 0): {"{}": code}})
    assert (colour == Colour.FINE) == (shown == "ready")
    assert (colour == Colour.WARNING) == shown.startswith("ready, ")


def test_the_replica_that_is_shown_at_first_is_the_worst(tmp_path: Path) -> None:
    made = default_boards()["llm-serving-replica"]
    (query,) = (query for name, query in made.board.choices if name == "target")
    series = [one for name in ("calm", "slow", "odd", "ticket", "page") for one in replica(name)]
    series.append(write_series("target:llm_serving_outlier:own", "0.2x20", target="odd", of="ttft", **CHAT))
    against = "target:llm_serving_pace_against_peers:ratio"
    series += [
        write_series(against, f"{pace}x20", target=name, of="decode", gpu_name="H100", **CHAT)
        for name, pace in (("calm", 0.9), ("slow", 1.7))
    ]
    series += [
        *alert("ReplicaOutlier", target="ticket", **CHAT),
        *alert("TargetDown", "critical", target="page", **CHAT),
    ]
    # of another model
    series += [*alert("TargetDown", "critical", target="gone", **CODE)]
    weights = {"page": 1_000_000.0, "ticket": 10_000.0, "odd": 100.0, "slow": 1.7, "calm": 0.9}
    ask_promtool(tmp_path, series, {filled(query): {text(target=name): weight for name, weight in weights.items()}})
    assert query.startswith("sort_desc(")
    (variable,) = (one for one in made.document["templating"]["list"] if one["name"] == "target")
    # Grafana takes the first where none is chosen
    assert (variable["sort"], variable["multi"], variable["current"]) == (0, False, {})


def test_what_fires_for_a_replica_is_its_own_or_of_its_card_or_node(tmp_path: Path) -> None:
    fires = panel("replica", FIRING_PANEL)
    card = {"gpu": "GPU-1", "gpu_name": "H100", "node": "n1"}
    series = [
        *replica("a"),
        *alert("ReplicaOutlier", target="a", **CHAT),
        *alert("ReplicaOutlier", target="b", **CHAT),
        *alert("GPUFailed", "critical", **card),
        *alert("GPUFailed", "critical", **card | {"gpu": "GPU-2"}),
        *alert("NodeLost", "critical", node="n1"),
        *alert("NodeLost", "critical", node="n2"),
        *alert("Watchdog", "none"),
        write_series("llm_serving_gpu_target_info", "1x20", gpu="GPU-1", target="a"),
        write_series("target:llm_serving_node:info", "1x20", node="n1", target="a", **CHAT),
    ]
    (query,) = fires.queries
    (hidden,) = (one.queries.hidden for one in default_boards().values() if fires in one.board.panels)
    told = f"max by (alertname, severity, part) ({answered(query.expr.replace('$target', 'a'), hidden)})"
    rows = {
        # its condition has to hold for five minutes, as that of a lost node
        text(alertname="LLMServingReplicaOutlier", severity="warning", part="a"): 600_000.0,
        text(alertname="LLMServingGPUFailed", severity="critical", part="card GPU-1 on node n1"): 300_000.0,
        text(alertname="LLMServingNodeLost", severity="critical", part=" on node n1"): 600_000.0,
    }
    ask_promtool(tmp_path, series, {told: rows})


def test_the_pace_of_a_replica_stands_beside_its_peers(tmp_path: Path) -> None:
    pace = panel("replica", "Is it slower than its peers?")
    series = [*replica("a", "decode")]
    for record, ttft, decode in (("compared:own", 0.5, 0.04), ("compared:peers", 0.4, 0.02)):
        for of, seconds in (("ttft", ttft), ("decode", decode), ("errors", 0.1)):
            series.append(write_series(f"target:llm_serving_{record}", f"{seconds}x20", target="a", of=of, **CHAT))
    for of, times in (("ttft", 1.25), ("decode", 2.0)):
        kind = {"gpu_name": "H100", "runtime": "vllm"}
        series.append(
            write_series(
                "target:llm_serving_pace_against_peers:ratio", f"{times}x20", target="a", of=of, **CHAT, **kind
            )
        )
    ttft, decode = text(of="ttft"), text(of="decode")
    ask_promtool(
        tmp_path,
        series,
        {
            column(pace, "times as long"): {ttft: 1.25, decode: 2.0},
            column(pace, "its own"): {ttft: 0.5, decode: 0.04},
            column(pace, "its peers'"): {ttft: 0.4, decode: 0.02},
            column(pace, "slow"): {ttft: 0.0, decode: 1.0},
        },
    )


# --- GPUs --------------------------------------------------------------------------------------------------------------


def card(number: int, up: str | None = "1x20", known: bool = True) -> Series:
    of = {"gpu": f"GPU-{number}", "gpu_name": "H100", "node": f"n{number}"}
    if known:
        yield write_series("gpu:llm_serving_gpu:last1h", "1x20", **of)
    if up is not None:
        yield write_series("gpu:llm_serving_gpu:info", "1x20", **of)
        yield write_series("llm_serving_gpu_up", up, **of, instance="a")


def of_card(number: int, **more: str) -> str:
    return text(**more, gpu=f"GPU-{number}", gpu_name="H100", node=f"n{number}")


def test_gpus_that_answer_are_counted_among_those_that_are_known(tmp_path: Path) -> None:
    answer = panel("gpu", "GPUs that answer")
    series = [*card(0), *card(1), *card(2, "1x9 0x10"), *card(3, None)]
    ask_promtool(tmp_path, series, {asked(answer, 0): {text(said="2 of 4", part="2", whole="4"): 2.0}})
    ask_promtool(tmp_path, [*card(0, "0x20")], {asked(answer, 0): {text(said="0 of 1", part="0", whole="1"): 1.0}})
    ask_promtool(tmp_path, [*card(0)], {asked(answer, 0): {text(said="1 of 1", part="1", whole="1"): 0.0}})
    ask_promtool(tmp_path, [], {asked(answer, 0): {}})
    assert [(str(step.colour), step.from_value) for step in answer.look.thresholds] == [("text", None), ("red", 1)]
    document = next(
        one for one in default_boards()["llm-serving-gpu"].document["panels"] if one["title"] == answer.title
    )
    assert document["options"]["textMode"] == "name"


def test_gpus_that_are_missing_or_at_fault_stand_by_name_the_worst_first(tmp_path: Path) -> None:
    faults = panel("gpu", "GPUs that are missing or at fault")
    about = [{"gpu": f"GPU-{number}", "gpu_name": "H100", "node": f"n{number}", "check": "gpu"} for number in range(6)]
    series = [
        *card(0),
        # fell silent after the minute 9
        *card(1, "1x9 0x10"),
        # gone from its exporter's page, and it pages
        *card(2, None),
        *alert("GPUFailed", "critical", **about[2]),
        # gone with its exporter
        *card(3, None),
        *card(4),
        *alert("GPUFailed", "critical", **about[4]),
        *card(5),
        *alert("GPUSlowdown", **about[5]),
    ]
    silent, failed, slow = "does not answer", "failed: an XID that pages", "clocks held down"
    ask_promtool(
        tmp_path,
        series,
        {
            asked(faults, 0): {
                of_card(1, fault=silent): 4.0,
                of_card(2, fault=silent): 4.0,
                of_card(4, fault=failed): 3.0,
                of_card(5, fault=slow): 2.0,
                of_card(3, fault="no exporter reports it"): 1.0,
            },
            column(faults, "since"): {
                of_card(1, fault=silent): 540_000.0,
                of_card(2, fault=silent): 300_000.0,
                of_card(4, fault=failed): 300_000.0,
                of_card(5, fault=slow): 300_000.0,
                of_card(3, fault="no exporter reports it"): 1000.0 * BEFORE_RANGE,
            },
        },
    )
    assert faults.look.sorted_by == 0
    assert {mapping.text for mapping in faults.columns[3].mappings} >= {silent, failed, slow}


def test_errors_of_memory_are_listed_where_there_are_new_ones(tmp_path: Path) -> None:
    errors = panel("gpu", "ECC memory errors")
    series = [*card(0), *card(1)]
    for number, values in enumerate(("5x90", "5x80 9x10")):
        series.append(write_series("llm_serving_gpu_ecc_errors_total", values, gpu=f"GPU-{number}", kind="corrected"))
    series = [one | {"values": one["values"].replace("x20", "x95")} for one in series]
    ask_promtool(tmp_path, series, {asked(errors, 0): {of_card(1, kind="corrected"): 4.0}}, at="85m")


# --- the exporter, the limiter -------------------------------------------------------------------------------------------


def test_targets_that_are_not_ready_have_rows_and_those_that_are_down_the_first(tmp_path: Path) -> None:
    ready, timeline = panel("exporter", "Ready targets"), panel("exporter", "Target states")
    series = [
        *(write_series("llm_serving_target_info", "1x20", target=name, **CHAT) for name in ("fine", "down", "back")),
        write_series(STATE, "1x20", target="fine", state="ready"),
        write_series(STATE, "1x20", target="down", state="down"),
        write_series(STATE, "1x5", target="back", state="loading"),
        write_series(STATE, "_x5 1x20", target="back", state="ready"),
    ]
    codes = {state: float(code) for code, (state, _) in enumerate(exporter.STATES)}
    ask_promtool(
        tmp_path,
        series,
        {
            asked(ready, 0): {text(said="2 of 3", part="2", whole="3"): 1.0},
            asked(timeline, 0): {text(target="down"): codes["down"]},
            asked(timeline, 1): {text(target="back"): codes["ready"]},
        },
    )
    assert timeline.may_be_empty


def test_models_whose_limiter_can_be_repaired_come_first(tmp_path: Path) -> None:
    timeline = panel("phases", "Limiter")
    codes = {state: float(code) for code, (state, _) in enumerate(shared_panels.LIMITERS)}
    record = "model:llm_serving_limiter:count"
    series = [
        write_series(record, "3x20", **CHAT, state="bandwidth"),
        write_series(record, "2x20", **CHAT, state="kv_capacity"),
        write_series(record, "3x20", **CODE, state="kv_capacity"),
        # as many of both: the first in the order of the states
        write_series(record, "2x20", **ALONE, state="compute"),
        write_series(record, "2x20", **ALONE, state="stalled"),
    ]
    first, rest = (asked(timeline, number) for number in range(2))
    ask_promtool(
        tmp_path,
        series,
        {
            first: {text(**CODE): codes["kv_capacity"]},
            rest: {text(**CHAT): codes["bandwidth"], text(**ALONE): codes["compute"]},
        },
    )


# --- cost --------------------------------------------------------------------------------------------------------------


def spend(*dollars: float) -> Series:
    """Replicas by what they cost an hour, half of it idle."""
    for number, spent in enumerate(dollars):
        for phase in ("decode", "idle"):
            of = {"target": f"t{number}", "phase": phase, **CHAT}
            yield write_series("target:llm_serving_cost_usd:increase1h", f"{spent / 2}x20", **of)


@pytest.mark.parametrize(
    ("dollars", "named"),
    [
        pytest.param((4.0,) * 12, (), id="all cost the same"),
        pytest.param((4.0,) * 3, (0, 1, 2), id="few, all named"),
        # an hour's increase varies a little
        pytest.param((4.0, 4.001, 4.002) * 4, (), id="as good as the same"),
        pytest.param((8.0, 8.0, *(4.0,) * 12), (0, 1), id="two that cost more"),
        pytest.param((*(8.0,) * 11, *(4.0,) * 12), (), id="eleven that cost more are too many"),
    ],
)
def test_replicas_that_cost_the_same_are_all_named_or_none(
    tmp_path: Path, dollars: tuple[float, ...], named: tuple[int, ...]
) -> None:
    replicas = panel("cost", "The most expensive replicas")
    median = sorted(dollars)[len(dollars) // 2]
    times = f"round({column(replicas, 'of the median')}, 0.1)"
    rows = {text(target=f"t{number}", model_name="chat"): dollars[number] for number in named}
    ask_promtool(
        tmp_path,
        spend(*dollars),
        {column(replicas, "USD per hour"): rows, times: {labels: spent / median for labels, spent in rows.items()}},
    )


def test_a_budget_that_is_passed_twice_over_is_red() -> None:
    share = panel("cost", "Share of the budget")
    assert [(str(step.colour), step.from_value) for step in share.look.thresholds] == [
        ("text", None),
        ("orange", 1),
        ("red", 2),
    ]


def test_only_what_is_wrong_has_a_loud_colour() -> None:
    """Of the words that stand on a colour, and of the colours of values."""
    for uid, made in default_boards().items():
        for one in made.board.panels:
            words = (*one.look.mappings, *(mapping for each in one.columns for mapping in each.mappings))
            steps = (
                *one.look.thresholds,
                *one.look.limits,
                *(step for each in one.columns for step in each.thresholds),
            )
            if uid != "llm-serving-home":
                assert Colour.GOOD not in {mapping.colour for mapping in words}, (uid, one.title)
            assert Colour.GOOD not in {step.colour for step in steps}, (uid, one.title)
