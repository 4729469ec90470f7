"""What is not shown is not read, and what "All" is does not grow with the fleet: asked of promtool where series decide."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_serving_dashboards.panels import Visualization
from llm_serving_dashboards.queries import ANYBODY, NOBODY, NOTHING
from tests.support.builders.askedpanels import ask_promtool, default_boards, default_documents, write_series
from tests.support.builders.panelqueries import filled


def test_all_is_one_pattern_and_no_list() -> None:
    seen = 0
    for uid, document in default_documents().items():
        for variable in document["templating"]["list"]:
            if variable["type"] == "query" and variable["hide"] == 0 and variable["includeAll"]:
                # the models of the board of embedding servers are all that there is of a list
                assert variable.get("allValue") == ANYBODY or uid == "llm-serving-embedding", (uid, variable["name"])
                seen += 1
    assert seen > 20


def signals() -> Iterator[dict[str, str]]:
    """A signal that the targets of two models lack; its series say of which target, and of no model."""
    for model, targets in (("chat", 2), ("code", 3)):
        for number in range(targets):
            target = f"{model}-{number}"
            named = {"target": target, "model_name": model, "role": "unified"}
            yield write_series("llm_serving_target_info", "1x20", runtime="vllm", version="1", group="", **named)
            yield write_series(
                "llm_serving_signal_available", "0x20", target=target, signal="slo_itl", reason="not_configured"
            )


@pytest.mark.process
def test_with_any_target_chosen_a_table_of_targets_is_still_of_the_chosen_models(tmp_path: Path) -> None:
    (panel,) = (one for one in default_boards()["llm-serving-exporter"].board.panels if one.title == "Missing signals")
    (query,) = panel.queries
    labels = '{reason="not_configured", signal="slo_itl"}'
    asked = {filled(query.expr): {labels: 5.0}, filled(query.expr.replace("$model_name", "code")): {labels: 3.0}}
    ask_promtool(tmp_path, signals(), asked)


@pytest.mark.process
def test_of_what_is_hidden_no_series_is_read_and_of_what_is_shown_each(tmp_path: Path) -> None:
    one = write_series("llm_serving_nvml_up", "1x20", instance="a")
    asked: dict[str, dict[str, float]] = {
        f'llm_serving_nvml_up{{{NOTHING}=~"{NOBODY}"}}': {},
        f'llm_serving_nvml_up{{{NOTHING}=~"{ANYBODY}"}}': {'llm_serving_nvml_up{instance="a"}': 1.0},
    }
    ask_promtool(tmp_path, [one], asked)


def test_no_query_asks_for_what_a_comparison_throws_away() -> None:
    hidden = 0
    for uid, document in default_documents().items():
        if uid == "llm-serving-replica":
            # one replica beside those of its model
            continue
        asked = [target["expr"] for panel in document["panels"] for target in panel.get("targets", ())]
        asked += [one["expr"] for one in document["annotations"]["list"]]
        for expression in asked:
            assert not re.search(r"unless on \(\) count\(", expression), (uid, expression)
            # at every step of a graph it would be evaluated, or counted
            assert not re.search(r"\b(topk|bottomk)\(\d+, avg_over_time", expression), (uid, expression)
            hidden += f"{NOTHING}=~" in expression
    assert hidden > 200


def test_a_single_value_is_asked_for_once() -> None:
    for document in default_documents().values():
        for panel in document["panels"]:
            if panel["type"] == Visualization.STAT:
                assert all(target["instant"] and not target["range"] for target in panel["targets"]), panel["title"]


def test_no_legend_takes_more_than_a_third_and_each_is_sorted_by_the_last_value() -> None:
    for document in default_documents().values():
        for panel in document["panels"]:
            if panel["type"] != Visualization.TIME_SERIES:
                continue
            legend = panel["options"]["legend"]
            assert (legend["displayMode"], legend["calcs"]) == ("table", ["lastNotNull"])
            assert (legend["sortBy"], legend["sortDesc"]) == ("Last *", True)
            columns = panel["gridPos"]["w"]
            # of 1920 pixels with Grafana's margins; below a graph Grafana itself keeps it small
            assert legend["placement"] == "bottom" or 3 * legend["width"] <= columns * 1872 / 24, panel["title"]
