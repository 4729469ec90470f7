"""Legends leave out what is the same everywhere, and annotations are those of few models: asked of promtool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from llm_serving_dashboards.boards import Dashboard
from llm_serving_dashboards.grafana.fields import NOTHING, PREFIX, blank_varying, write_legend
from tests.support.builders.askedpanels import ask_promtool, default_boards, panels_of, write_series
from tests.support.builders.panelqueries import answered, filled
from tests.support.rows import check_rows

PHASES = "llm-serving-phases"


@check_rows(
    ("legend", "identity", "wanted"),
    [
        # a model is all that the legend says: it stays
        ("{{model_name}} {{role}}", (), "{{model_name}} $legend_role"),
        ("p99 {{model_name}} {{role}}", (), "p99 $legend_model_name $legend_role"),
        ("{{model_name}} {{target}} engine {{engine}}", (), "$legend_model_name {{target}} $legend_engine"),
        ("{{node}} {{gpu}}", (), "$legend_node {{gpu}}"),
        ("{{node}} {{model_name}}", (), "{{node}} $legend_model_name"),
        ("{{target}}", ("cluster",), "{{target}} $legend_cluster"),
        # of the whole selection, which may be of several clusters
        ("{{reason}}", ("cluster",), "{{reason}}"),
        ("", (), "__auto"),
    ],
)
def test_what_may_be_the_same_everywhere_is_a_variable(legend: str, identity: tuple[str, ...], wanted: str) -> None:
    assert write_legend(legend, identity) == wanted


def test_no_legend_is_empty_where_nothing_varies() -> None:
    legends = [
        target["legendFormat"]
        for made in default_boards().values()
        for panel in panels_of(made.document)
        for target in panel.get("targets", ())
    ]
    assert len(legends) > 150
    assert all(blank_varying(legend).strip() for legend in legends)
    assert blank_varying("p10 $legend_model_name $legend_role") == "p10  "


def asked_variables(made: Dashboard) -> dict[str, str]:
    """PromQL of each variable of a legend, by the label that it is about."""
    found = {}
    for variable in made.document["templating"]["list"]:
        if variable["name"].startswith(PREFIX):
            whole = re.fullmatch(r"query_result\((.*)\)", variable["definition"])
            assert whole
            found[variable["name"].removeprefix(PREFIX)] = filled(whole[1])
    return found


def fleet(models: int, roles: tuple[str, ...], engines: int = 1) -> Iterator[dict[str, str]]:
    """Two targets a model and role."""
    for model in range(models):
        for role in roles:
            for target in ("a", "b"):
                labels = {"model_name": f"m{model}", "role": role, "target": f"m{model}-{role}-{target}"}
                yield write_series("target:llm_serving_down:min", "0x20", **labels)
                for engine in range(engines):
                    yield write_series("engine:llm_serving_requests_running:max", "1x20", engine=str(engine), **labels)


@pytest.mark.process
@pytest.mark.parametrize(
    ("series", "wanted"),
    [
        (fleet(1, ("unified",)), {"model_name": NOTHING, "role": NOTHING, "engine": NOTHING}),
        (fleet(2, ("unified",)), {"model_name": "{{model_name}}", "role": NOTHING, "engine": NOTHING}),
        (fleet(1, ("prefill", "decode"), 2), {"model_name": NOTHING, "role": "{{role}}", "engine": "engine {{engine}}"}),
        # nothing is there yet
        ((), {"model_name": NOTHING, "role": NOTHING, "engine": NOTHING}),
    ],
)  # fmt: skip
def test_a_label_is_written_where_it_varies(
    tmp_path: Path, series: Iterator[dict[str, str]], wanted: dict[str, str]
) -> None:
    # engines are named on the page of a replica only
    asked = asked_variables(default_boards()[PHASES]) | asked_variables(default_boards()["llm-serving-replica"])
    assert set(asked) == set(wanted)
    # the value of a comparison is of no interest, only its label
    found = {f"({asked[label]}) * 0": {f'{{legend="{text}"}}': 0.0} for label, text in wanted.items()}
    ask_promtool(tmp_path, series, found)


def firing(models: int) -> Iterator[dict[str, str]]:
    """A page of each model that began a minute ago, a ticket, and what notifies nobody."""
    for model in range(models):
        for name, severity in (("Page", "critical"), ("Ticket", "warning"), ("Note", "info"), ("Watchdog", "none")):
            labels = {
                "alertname": name,
                "severity": severity,
                "model_name": f"m{model}",
                "role": "unified",
                "check": "kv",
            }
            yield write_series("ALERTS", "_x15 1x6", alertstate="firing", **labels)


def annotation(made: Dashboard, name: str, **chosen: str) -> str:
    """Its query where everything is chosen but for this."""
    (found,) = (one["expr"] for one in made.document["annotations"]["list"] if one["name"] == name)
    hidden = made.queries.hidden
    for variable, value in chosen.items():
        found = found.replace(f"${variable}", value)
        hidden = {name: replace(one, query=one.query.replace(f"${variable}", value)) for name, one in hidden.items()}
    return answered(found, hidden)


@pytest.mark.process
@pytest.mark.parametrize("models", [1, 3, 4, 16])
def test_alerts_of_up_to_three_models_are_marked_and_only_those_that_notify(tmp_path: Path, models: int) -> None:
    shown = {
        f'{{alertname="{name}", model_name="m{model}", severity="{severity}", told="{name.lower()}"}}': 1.0
        for model in range(models if models <= 3 else 0)
        for name, severity in (("Page", "critical"), ("Ticket", "warning"))
    }
    series = [*fleet(models, ("unified",)), *firing(models)]
    ask_promtool(tmp_path, series, {annotation(default_boards()[PHASES], "Alerts"): shown})


@pytest.mark.process
def test_alerts_are_marked_where_no_exporter_says_which_models_there_are(tmp_path: Path) -> None:
    lost = write_series(
        "ALERTS", "_x15 1x6", alertstate="firing", alertname="Absent", severity="critical", check="exporter"
    )
    found = {'{alertname="Absent", severity="critical", told="page"}': 1.0}
    marks = {annotation(default_boards()["llm-serving-exporter"], "Alerts"): found}
    # it is about no model
    marks |= {annotation(default_boards()[PHASES], "Alerts"): {}}
    ask_promtool(tmp_path, [lost], marks)


@pytest.mark.process
def test_a_lost_node_and_a_failed_card_are_marked_only_on_their_models_graphs(tmp_path: Path) -> None:
    series = [
        *fleet(2, ("unified",)),
        write_series("ALERTS", "_x15 1x6", alertstate="firing", alertname="Node", severity="critical", node="n0"),
        write_series(
            "ALERTS", "_x15 1x6", alertstate="firing", alertname="Card", severity="critical", node="n1", gpu="g"
        ),
        write_series("llm_serving_gpu_target_info", "1x20", gpu="g", target="m1-unified-a"),
        write_series("llm_serving_target_info", "1x20", target="m1-unified-a", model_name="m1", role="unified"),
        write_series(
            "target:llm_serving_node:info", "1x20", node="n0", target="m0-unified-a", model_name="m0", role="unified"
        ),
    ]
    told = 'severity="critical", told="page"'
    marks = {
        annotation(default_boards()[PHASES], "Alerts", model_name=model): {
            f'{{alertname="{name}", {labels}, {told}}}': 1.0
        }
        for model, name, labels in (("m0", "Node", 'node="n0"'), ("m1", "Card", 'gpu="g", node="n1"'))
    }
    ask_promtool(tmp_path, series, marks)


@pytest.mark.process
def test_a_ticket_that_becomes_a_page_is_marked_again(tmp_path: Path) -> None:
    about = {"alertstate": "firing", "alertname": "Burn", "model_name": "m0", "role": "unified"}
    series = [
        *fleet(1, ("unified",)),
        write_series("ALERTS", "1x20", severity="warning", **about),
        write_series("ALERTS", "_x15 1x6", severity="critical", **about),
    ]
    found = {'{alertname="Burn", model_name="m0", severity="critical", told="page"}': 1.0}
    ask_promtool(tmp_path, series, {annotation(default_boards()[PHASES], "Alerts"): found})


@pytest.mark.process
def test_on_the_page_of_gpus_only_their_alerts_are_marked_and_nodes_are_counted(tmp_path: Path) -> None:
    asked = annotation(default_boards()["llm-serving-gpu"], "Alerts")
    failed = [
        write_series("ALERTS", "_x15 1x6", alertstate="firing", alertname=name, severity="critical", **about)
        for name, about in (("Card", {"gpu": "GPU-1", "node": "n1"}), ("Page", {"model_name": "m0", "role": "unified"}))
    ]

    def cards(nodes: int) -> Iterator[dict[str, str]]:
        for node in range(nodes):
            yield write_series("gpu:llm_serving_gpu:info", "1x20", gpu=f"GPU-{node}", gpu_name="H100", node=f"n{node}")

    ask_promtool(
        tmp_path,
        [*failed, *cards(3)],
        {asked: {'{alertname="Card", gpu="GPU-1", node="n1", severity="critical", told="page"}': 1.0}},
    )
    ask_promtool(tmp_path, [*failed, *cards(4)], {asked: {}})


def test_only_alerts_are_marked_until_a_viewer_switches_on_more() -> None:
    for made in default_boards().values():
        every = made.document["annotations"]["list"]
        assert {one["name"] for one in every if one["enable"]} == {"Alerts"}
        assert not any(one["hide"] for one in every)


@pytest.mark.process
def test_with_one_replica_chosen_only_alerts_of_its_model_are_marked(tmp_path: Path) -> None:
    asked = annotation(default_boards()["llm-serving-replica"], "Alerts", target="m1-unified-a")
    found = {
        f'{{alertname="{name}", model_name="m1", severity="{severity}", told="{name.lower()}"}}': 1.0
        for name, severity in (("Page", "critical"), ("Ticket", "warning"))
    }
    ask_promtool(tmp_path, [*fleet(16, ("unified",)), *firing(16)], {asked: found})
