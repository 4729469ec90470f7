"""Bands in place of a line for each replica, and the replica's own board: what is recorded and what is drawn, asked of promtool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from llm_serving_alerts.records.bands import FIGURES
from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.panels import Draw, Panel
from llm_serving_dashboards.queries import HiddenVariable
from tests.support.builders.askedpanels import ask_promtool, default_boards, panels_of, write_series
from tests.support.builders.panelqueries import answered


@cache
def list_panels() -> dict[tuple[str, str], Panel]:
    """By the board's name and the panel's title."""
    return {
        (uid.removeprefix("llm-serving-"), panel.title): panel
        for uid, made in default_boards().items()
        for panel in made.board.panels
    }


def find_waiting() -> Panel:
    return list_panels()["phases", "Waiting requests by replica"]


def queues(*waiting: int, model: str = "chat") -> Iterator[dict[str, str]]:
    """A replica for each number of waiting requests, as an exporter says it, all of them up."""
    for number, count in enumerate(waiting):
        target = {"target": f"{model}-{number}", "model_name": model, "role": "unified"}
        yield write_series("llm_serving_requests_waiting", f"{count}x20", engine="0", **target)
        yield write_series("llm_serving_target_info", "1x20", runtime="vllm", version="1", group="", **target)
        for state in ("ready", "down"):
            yield write_series(
                "llm_serving_target_state", f"{int(state == 'ready')}x20", target=target["target"], state=state
            )


@cache
def hidden() -> dict[str, HiddenVariable]:
    """Those of all boards: of the same name they ask the same where nothing is chosen."""
    return {name: one for made in default_boards().values() for name, one in made.queries.hidden.items()}


def drawn(panel: Panel, draw: Draw, legend: str = "") -> str:
    """The query of a panel whose series are drawn so, without the names of the records that it reads. `legend`: a word of it."""
    (found,) = (query.expr for query in panel.queries if query.draw is draw and legend in query.legend)
    return f"({answered(found, hidden())}) * 1"


def of_model(model: str, **more: str) -> str:
    labels = {"model_name": model, "role": "unified", **more}
    return "{" + ", ".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def of_target(number: int, model: str = "chat") -> str:
    return of_model(model, target=f"{model}-{number}")


@pytest.mark.process
def test_of_many_replicas_there_are_the_median_the_band_and_the_worst_five(tmp_path: Path) -> None:
    # of 0 to 10 the quantile q is 10 q
    asked = {
        drawn(find_waiting(), Draw.TOP_EDGE, "model_name"): {of_model("chat", rank="p90"): 9.0},
        drawn(find_waiting(), Draw.BOTTOM_EDGE, "model_name"): {of_model("chat", rank="p10"): 1.0},
        drawn(find_waiting(), Draw.MAIN): {of_model("chat"): 5.0},
        drawn(find_waiting(), Draw.LINE): {of_target(number): float(number) for number in range(6, 11)},
        drawn(find_waiting(), Draw.TOP_EDGE, "medians"): {},
    }
    ask_promtool(tmp_path, queues(*range(11)), asked, settings=default_settings())


@pytest.mark.process
@pytest.mark.parametrize("replicas", [1, 3])
def test_of_few_replicas_there_are_only_their_own_lines(tmp_path: Path, replicas: int) -> None:
    asked: dict[str, dict[str, float]] = {
        drawn(find_waiting(), draw, "model_name"): {} for draw in (Draw.TOP_EDGE, Draw.BOTTOM_EDGE, Draw.MAIN)
    }
    asked[drawn(find_waiting(), Draw.LINE)] = {of_target(number): 2.0 for number in range(replicas)}
    ask_promtool(tmp_path, queues(*[2] * replicas), asked, settings=default_settings())


@pytest.mark.process
def test_of_more_than_three_models_there_are_the_band_of_their_medians_and_the_worst_five_replicas(
    tmp_path: Path,
) -> None:
    # medians 1 to 4; the worst mean is of the last replicas of each
    series = [one for number in range(4) for one in queues(*[number + 1] * 4, number + 6, model=f"m{number}")]
    worst = {of_target(4, f"m{number}"): number + 6.0 for number in range(4)}
    asked = {
        drawn(find_waiting(), Draw.TOP_EDGE, "model_name"): {},
        drawn(find_waiting(), Draw.BOTTOM_EDGE, "model_name"): {},
        drawn(find_waiting(), Draw.MAIN): {},
        f"round({drawn(find_waiting(), Draw.TOP_EDGE, 'medians')}, 0.1)": {"{}": 3.7},
        f"round({drawn(find_waiting(), Draw.BOTTOM_EDGE, 'medians')}, 0.1)": {"{}": 1.3},
        f"{drawn(find_waiting(), Draw.LINE)} > 4": worst,
        f"count({drawn(find_waiting(), Draw.LINE)})": {"{}": 5.0},
    }
    ask_promtool(tmp_path, series, asked, settings=default_settings())


@pytest.mark.process
@pytest.mark.parametrize("models", [3, 4, 9])
def test_of_more_than_three_models_there_are_their_band_and_the_worst_five(tmp_path: Path, models: int) -> None:
    panel = list_panels()["phases", "Waiting requests"]
    record = "model:llm_serving_requests_waiting:sum"
    series = [write_series(record, f"{number}x20", model_name=f"m{number}", role="unified") for number in range(models)]
    series += [write_series("target:llm_serving_down:min", "0x20", **labels(number)) for number in range(models)]
    each, worst = (f"({answered(query.expr, hidden())}) * 1" for query in panel.queries if query.draw is Draw.LINE)
    many = models > 3
    asked = {
        each: {} if many else {of_model(f"m{number}"): float(number) for number in range(models)},
        worst: {of_model(f"m{number}"): float(number) for number in range(max(0, models - 5), models)} if many else {},
        f"round({drawn(panel, Draw.TOP_EDGE)}, 0.1)": {"{}": round(0.9 * (models - 1), 1)} if many else {},
        f"round({drawn(panel, Draw.BOTTOM_EDGE)}, 0.1)": {"{}": round(0.1 * (models - 1), 1)} if many else {},
    }
    ask_promtool(tmp_path, series, asked)


def labels(number: int) -> dict[str, str]:
    return {"model_name": f"m{number}", "role": "unified", "target": f"m{number}-0"}


def test_a_band_is_filled_between_the_names_that_its_edges_have() -> None:
    seen = 0
    for made in default_boards().values():
        for panel in panels_of(made.document):
            targets = {target["refId"]: target["legendFormat"] for target in panel.get("targets", ())}
            for override in panel.get("fieldConfig", {}).get("overrides", ()):
                properties = {one["id"]: one["value"] for one in override["properties"]}
                if "custom.fillBelowTo" not in properties:
                    continue
                upper = override["matcher"]["options"]
                lower = targets[chr(ord(upper) + 1)]
                for variable in ("$legend_model_name", "$legend_role", "$legend_gpu_name"):
                    lower = lower.replace(variable, "")
                assert properties["custom.fillBelowTo"] == lower
                assert lower.startswith("p10")
                seen += 1
    assert seen > 20


def test_every_figure_is_drawn_on_a_board_and_behind_a_replica() -> None:
    asked = {
        uid: " ".join(q.expr for (board, _), p in list_panels().items() for q in p.queries if board == uid)
        for uid, _ in list_panels()
    }
    for figure in FIGURES:
        assert figure.each in asked["replica"]
        assert any(figure.median in text for uid, text in asked.items() if uid != "replica"), figure.name


def chosen(panel: Panel, draw: Draw, target: str) -> str:
    (found,) = (query.expr for query in panel.queries if query.draw is draw)
    asked = {name: replace(one, query=one.query.replace("$target", target)) for name, one in hidden().items()}
    return f"({answered(found.replace('$target', target), asked)}) * 1"


@pytest.mark.process
def test_a_replica_stands_before_its_peers_and_no_others(tmp_path: Path) -> None:
    panel = list_panels()["replica", "Waiting requests"]
    series = [*queues(0, 1, 2, 3, 4, model="chat"), *queues(7, 7, 7, 7, 7, model="code")]
    asked = {
        chosen(panel, Draw.OWN, "chat-4"): {of_target(4): 4.0},
        chosen(panel, Draw.BEHIND, "chat-4"): {of_target(number): float(number) for number in range(4)},
        f"round({chosen(panel, Draw.TOP_EDGE, 'chat-4')}, 0.1)": {of_model("chat", rank="p90"): 3.6},
    }
    ask_promtool(tmp_path, series, asked, settings=default_settings())


@pytest.mark.process
def test_more_than_fifty_peers_are_a_band_only(tmp_path: Path) -> None:
    panel = list_panels()["replica", "Waiting requests"]
    asked = {
        chosen(panel, Draw.OWN, "chat-4"): {of_target(4): 4.0},
        chosen(panel, Draw.BEHIND, "chat-4"): {},
        chosen(panel, Draw.BOTTOM_EDGE, "chat-4"): {of_model("chat", rank="p10"): 5.0},
    }
    ask_promtool(tmp_path, queues(*range(51)), asked, settings=default_settings())


def test_a_replica_is_chosen_alone() -> None:
    made = default_boards()["llm-serving-replica"]
    several = {one["name"]: one["multi"] for one in made.document["templating"]["list"] if one["hide"] == 0}
    assert several == {"datasource": False, "model_name": True, "target": False}


def test_names_of_replicas_lead_to_their_board() -> None:
    tables = links = 0
    for (board, title), panel in list_panels().items():
        if board == "replica":
            continue
        tables += any(column.source == "target" for column in panel.columns)
        links += any(query.replica_uid for query in panel.queries)
        by_replica = [query for query in panel.queries if "{{target}}" in query.legend and board != "exporter"]
        assert all(query.replica_uid for query in by_replica), (board, title)
    assert tables > 2
    assert links > 10
    uids = default_boards().keys()
    for made in default_boards().values():
        for panel in panels_of(made.document):
            for override in panel.get("fieldConfig", {}).get("overrides", ()):
                for one in override["properties"]:
                    if one["id"] == "links":
                        (link,) = one["value"]
                        uid = link["url"].removeprefix("/d/").partition("?")[0]
                        # a row of the home dashboard says itself where it leads
                        assert uid in uids or re.fullmatch(r"\$\{__data\.fields\.(\w+_)?board(:percentencode)?\}", uid)
                        assert "${__url_time_range}" in link["url"]


def cards(*watts: int) -> Iterator[dict[str, str]]:
    """A GPU for each power draw, each on a node of its own."""
    for number, power in enumerate(watts):
        of = {"gpu": f"GPU-{number}", "gpu_name": "H100", "node": f"n{number}"}
        yield write_series("llm_serving_gpu_up", "1x20", **of)
        yield write_series("llm_serving_gpu_info", "1x20", index="0", driver_version="1", mig_profile="", **of)
        yield write_series("llm_serving_gpu_power_watts", f"{power}x20", **of)


def of_card(number: int) -> str:
    return f'{{gpu="GPU-{number}", gpu_name="H100", node="n{number}"}}'


@pytest.mark.process
def test_gpus_have_a_line_each_up_to_eight_and_above_only_the_worst_three(tmp_path: Path) -> None:
    panel = list_panels()["gpu", "Power"]
    each, three = (
        f"({answered(query.expr, hidden())}) * 1"
        for query in panel.queries
        if query.draw is Draw.LINE and "{{gpu}}" in query.legend
    )
    kind = '{gpu_name="H100", rank="p90"}'
    few = {each: {of_card(number): 100.0 * number for number in range(8)}, three: {}}
    ask_promtool(tmp_path, cards(*range(0, 800, 100)), few, settings=default_settings())
    many = {
        each: {},
        three: {of_card(number): 100.0 * number for number in (8, 9, 10)},
        drawn(panel, Draw.TOP_EDGE): {kind: 900.0},
        drawn(panel, Draw.MAIN): {'{gpu_name="H100"}': 500.0},
    }
    ask_promtool(tmp_path, cards(*range(0, 1100, 100)), many, settings=default_settings())
