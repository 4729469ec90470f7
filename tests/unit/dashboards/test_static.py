"""What can be said of the dashboards without a Grafana: their JSON, by linters' rules and Grafana's own model, the command, every query."""

from __future__ import annotations

import copy
import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.declare import CHOICES, FIRING_PANEL
from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import AlertRule, Record
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_dashboards import exporter
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.first_screen import TITLES
from llm_serving_dashboards.grafana.document import SCHEMA_VERSION, TAG
from llm_serving_dashboards.queries import list_record_labels
from llm_serving_dashboards.shared_panels import LIMITERS
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PREFIX, Kind
from llm_serving_exporter.cli import main
from llm_serving_exporter.model.derived import Limiter
from llm_serving_exporter.model.reading import State
from tests.support.builders.alertexamples import settings_of
from tests.support.builders.askedpanels import default_boards, default_documents, panels_of
from tests.support.builders.panelqueries import filled
from tests.support.paths import ROOT
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.yaml_text import load_yaml

UIDS = check_rows("uid", default_boards)
# Grafana's own variables: https://grafana.com/docs/grafana/latest/dashboards/variables/add-template-variables/#global-variables
GLOBAL = re.compile(r"\$(?:\{)?__\w+")
VARIABLE = re.compile(r"\$\{?([a-z]\w*)")
# a record or an exported series
NAMES = re.compile(r"(?<![\w:])(?:\w+:)?llm_serving_\w+(?::\w+)?")
# Prometheus' own, which the rules' alerts leave behind
OTHER = {"ALERTS"}


@cache
def list_recorded() -> Collection[str]:
    return list_record_labels(default_settings())


def panels(uid: str) -> Iterator[dict[str, Any]]:
    """Those that ask for something: a heading does not, nor does a text."""
    return (panel for panel in panels_of(default_documents()[uid]) if panel["type"] not in ("row", "text"))


def targets(uid: str) -> Iterator[dict[str, Any]]:
    return (target for panel in panels(uid) for target in panel["targets"])


def texts(value: Any) -> Iterator[str]:
    """Every text in a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)


def test_uids_are_short_and_their_own() -> None:
    assert len(default_boards()) == len(build_dashboards(default_settings())) == 12
    assert all(len(uid) <= 40 and uid.startswith("llm-serving-") for uid in default_boards())
    titles = [document["title"] for document in default_documents().values()]
    assert len(set(titles)) == len(titles)


@UIDS
def test_it_is_of_the_current_schema_and_provisioned(uid: str) -> None:
    document = default_documents()[uid]
    assert document["schemaVersion"] == SCHEMA_VERSION
    assert document["uid"] == uid
    assert document["tags"] == [TAG]
    assert document["editable"] is False
    assert not {"__inputs", "id", "version"} & set(document)
    assert document["description"]


@UIDS
def test_panels_stand_beside_one_another(uid: str) -> None:
    every = default_documents()[uid]["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    for panel in every:
        place = panel["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in every], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)


@UIDS
def test_every_panel_says_what_it_is(uid: str) -> None:
    seen = set()
    for panel in panels(uid):
        assert panel["title"] not in seen
        seen.add(panel["title"])
        assert len(panel["description"]) > 10, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["targets"], panel["title"]


@UIDS
def test_a_ratio_is_bounded_by_one_only_where_it_cannot_be_more(uid: str) -> None:
    for panel in panels(uid):
        defaults = panel["fieldConfig"]["defaults"]
        if defaults.get("max") == 1:
            assert defaults["unit"] == "percentunit", panel["title"]
            # these say that an input is wrong, or that the demand does not fit
            assert not re.search(r"ceiling_ratio|n1_load|_load:", " ".join(t["expr"] for t in panel["targets"]))


@UIDS
def test_a_value_is_the_last_one(uid: str) -> None:
    for panel in panels(uid):
        reduced = panel["options"].get("reduceOptions")
        assert reduced is None or reduced["calcs"] == ["lastNotNull"], panel["title"]


@UIDS
def test_the_data_source_is_the_viewers_choice(uid: str) -> None:
    document = default_documents()[uid]
    assert document["templating"]["list"][0]["type"] == "datasource"
    sources = [
        *(one["datasource"] for one in (*panels(uid), *targets(uid), *document["annotations"]["list"])),
        *(one["datasource"] for one in document["templating"]["list"][1:]),
    ]
    assert all(source == {"type": "prometheus", "uid": "${datasource}"} for source in sources)


@UIDS
def test_every_variable_is_defined_and_used(uid: str) -> None:
    document = default_documents()[uid]
    defined = {variable["name"] for variable in document["templating"]["list"]}
    asking = [
        document["panels"],
        document["annotations"],
        [variable["query"] for variable in document["templating"]["list"]],
    ]
    used = {name for text in texts(asking) for name in VARIABLE.findall(GLOBAL.sub("", text))}
    assert used == defined


@UIDS
def test_every_series_is_exported_or_recorded(uid: str) -> None:
    """With its suffix where it is a histogram."""
    for expression in expressions(uid):
        for name in re.findall(r"(?<![\w:$])([a-zA-Z_][\w:]*)(?=\{|\[|\))", re.sub(r'"[^"]*"', '""', expression)):
            if ":" in name:
                assert name in list_recorded(), name
            elif name.startswith(PREFIX):
                metric = (
                    BY_NAME.get(name.removeprefix(PREFIX)) or BY_NAME[name.removeprefix(PREFIX).removesuffix("_bucket")]
                )
                assert name.endswith("_bucket") == (metric.kind is Kind.HISTOGRAM)
    assert not re.search(r"\b(vllm|sglang|DCGM)[:_]", " ".join(expressions(uid)))


@UIDS
def test_rates_are_over_what_a_point_covers(uid: str) -> None:
    for expression in expressions(uid):
        for span in re.findall(r"\b(?:rate|increase|irate|delta)\([^\[]*\[([^\]]*)\]", expression):
            assert span == "$__rate_interval", expression


def test_tables_and_timelines_say_why_they_are_empty() -> None:
    """All but the sentence of home, which always has a row."""
    silent = {
        (uid, panel["title"])
        for uid in default_boards()
        for panel in panels(uid)
        if panel["type"] in ("table", "state-timeline") and not panel["fieldConfig"]["defaults"].get("noValue")
    }
    assert silent == {("llm-serving-home", "")}


def test_no_word_is_cut_where_states_are_short() -> None:
    """Beside other panels only the legend has words; a timeline with a row a query has no pages."""
    found = {
        panel["title"]: (panel["options"]["showValue"], panel["options"]["perPage"])
        for uid in default_boards()
        for panel in panels(uid)
        if panel["type"] == "state-timeline"
    }
    assert found == {
        "Limiter": ("never", 7),
        "Target states": ("never", 7),
        "Loss of the largest node": ("never", 7),
        "State and limiter over time": ("auto", 0),
    }


def test_a_graph_has_no_more_points_than_its_records() -> None:
    """Minutely ones a point a minute; what a ruler evaluates at its own interval, or nobody records, as many as Grafana chooses."""
    found = {
        (panel["title"], target.get("interval"))
        for uid in default_boards()
        for panel in panels(uid)
        for target in panel["targets"]
    }
    assert {("TTFT: distribution", "1m"), ("Idle share of the cost", "2m")} <= found
    assert {("KV cache usage of the fullest engine", None), ("PCIe traffic", None), ("Check", None)} <= found
    # the trail of a day has an hour of its own
    assert {step for title, step in found if title == "Roofline"} == {"1h", None}


@UIDS
def test_links_lead_to_dashboards(uid: str) -> None:
    for panel in panels(uid):
        for link in panel["fieldConfig"]["defaults"].get("links", ()):
            assert link["url"].removeprefix("/d/").partition("?")[0] in default_boards()
            # the time and the choice of here
            assert "${__url_time_range}" in link["url"]
            assert "${__all_variables}" in link["url"]
    (menu,) = default_documents()[uid]["links"]
    assert menu["keepTime"]
    assert menu["includeVars"]
    assert menu["tags"] == [TAG]


def find_links(panel: dict[str, Any]) -> dict[str, str]:
    """The URLs of a table's cells, by the title of their column."""
    return {
        one["matcher"]["options"]: found["value"][0]["url"]
        for one in panel["fieldConfig"]["overrides"]
        for found in one["properties"]
        if found["id"] == "links"
    }


def list_hidden(panel: dict[str, Any]) -> set[str]:
    """Columns that only links read."""
    return {
        one["matcher"]["options"]
        for one in panel["fieldConfig"]["overrides"]
        for found in one["properties"]
        if found["id"] == "custom.hidden"
    }


def test_every_cell_of_the_matrix_leads_to_the_dashboard_of_the_alert_that_fires() -> None:
    """The whole of it, with the model of the row and what the alert is about; all of that are fields of the row."""
    (matrix,) = (panel for panel in panels("llm-serving-home") if panel["title"] == "Models and checks")
    links = find_links(matrix)
    assert len(links) == 1 + 9 + 5
    for check, title in TITLES.items():
        assert links[title].startswith(f"/d/${{__data.fields.{check}_board:percentencode}}?${{__url_time_range}}")
        assert "&var-model_name=${__data.fields.model_name:percentencode}" in links[title]
        assert "viewPanel" not in links[title]
        read = set(re.findall(r"\$\{__data\.fields\.(\w+)", links[title]))
        assert read <= list_hidden(matrix)
        chosen = {name for one in ALERTS if one.check is check for name in one.choices}
        assert {*re.findall(r"var-(\w+)=", links[title])} == {"datasource", "model_name", "role"} | chosen


def test_a_sentence_leads_to_its_dashboard_and_its_alert_to_the_runbook() -> None:
    (sentence, *_) = panels("llm-serving-home")
    links = find_links(sentence)
    assert set(links) == {"what", "runbook"}
    assert links["what"].startswith("/d/${__data.fields.board}?")
    assert {*re.findall(r"\$\{__data\.fields\.(\w+)", "".join(links.values()))} <= list_hidden(sentence)


@UIDS
def test_the_name_of_an_alert_leads_to_its_runbook(uid: str) -> None:
    """On every dashboard that an alert leads to, and on the first one: a number of the panel that has that alert's runbook."""
    if uid != "llm-serving-home" and uid not in {one.shown.uid for one in ALERTS}:
        return
    first = next(panels(uid))
    assert find_links(first)["runbook"].startswith("/d/llm-serving-runbooks?")
    assert find_links(first)["runbook"].endswith("&viewPanel=panel-${__data.fields.alertname}")
    (mapped,) = (
        found["value"][0]["options"]
        for one in first["fieldConfig"]["overrides"]
        if one["matcher"]["options"] == "alertname"
        for found in one["properties"]
        if found["id"] == "mappings"
    )
    runbooks = {panel["title"]: panel for panel in default_documents()["llm-serving-runbooks"]["panels"]}
    assert set(mapped) == set(runbooks)
    for name, shown in mapped.items():
        assert runbooks[name]["id"] == int(shown["text"])
        # its last section is what somebody does
        assert "## " in runbooks[name]["options"]["content"]
        for other, number in re.findall(
            r"\[(\w+)\]\(d/llm-serving-runbooks\?viewPanel=panel-(\d+)\)", runbooks[name]["options"]["content"]
        ):
            assert runbooks[f"LLMServing{other.removeprefix('LLMServing')}"]["id"] == int(number)


def test_runbooks_are_where_the_settings_have_them(tmp_path: Path) -> None:
    settings = settings_of("runbook_url: https://wiki.example.com/{alert}\n", tmp_path)
    for made in build_dashboards(settings):
        for panel in made.board.panels:
            for column in panel.columns:
                if column.title == "runbook":
                    assert column.link.url == "https://wiki.example.com/${__data.fields.alertname:percentencode}"


def test_the_first_screen_is_the_sentence_and_the_matrix() -> None:
    """1080 pixels hold 25 rows of 38 pixels below Grafana's bars and variables; the matrix has a heading and seventeen rows of 36."""
    first, second, *others = default_documents()["llm-serving-home"]["panels"]
    assert [first["title"], second["title"]] == ["", "Models and checks"]
    assert (first["type"], second["type"]) == ("table", "table")
    end = second["gridPos"]["y"] + second["gridPos"]["h"]
    assert end <= 25
    assert second["gridPos"]["h"] * 38 - 8 >= 40 + 36 + 17 * 36
    assert all(panel["gridPos"]["y"] >= end for panel in others)


def test_the_worst_row_is_the_first_and_how_grave_it_is_is_not_shown() -> None:
    (matrix,) = (panel for panel in panels("llm-serving-home") if panel["title"] == "Models and checks")
    merge, grouped, names, alphabet, gravest, organize = matrix["transformations"][1:]
    assert [merge["id"], grouped["id"]] == ["merge", "groupBy"]
    weight = "Value #A (lastNotNull)"
    assert weight in names["options"]["include"]["names"]
    assert alphabet["options"]["sort"] == [{"field": "name", "desc": False}]
    assert gravest["options"]["sort"] == [{"field": weight, "desc": True}]
    assert organize["options"]["excludeByName"] == {weight: True}


def test_a_folded_row_holds_its_panels_and_the_next_one_follows_its_heading() -> None:
    """Grafana moves what stands below when the row is opened: https://grafana.com/docs/grafana/latest/dashboards/build-dashboards/view-dashboard-json-model/"""
    folded = 0
    for made in default_boards().values():
        for heading in made.document["panels"]:
            if heading["type"] != "row":
                continue
            (row,) = (row for row in made.board.rows if row.title == heading["title"])
            assert heading["collapsed"] is row.folded
            assert [one["title"] for one in heading["panels"]] == [panel.title for panel in row.panels if row.folded]
            if row.folded:
                folded += 1
                top = heading["gridPos"]["y"]
                assert heading["panels"][0]["gridPos"]["y"] == top + 1
                below = [one["gridPos"]["y"] for one in made.document["panels"] if one["gridPos"]["y"] > top]
                assert min(below, default=top + 1) == top + 1
        numbers = {one["id"]: one["title"] for one in panels_of(made.document)}
        assert len(numbers) == len(panels_of(made.document))
        for panel in made.board.panels:
            assert numbers[made.board.find_number(panel.title)] == (panel.title if panel.look.titled else "")
    assert folded


@UIDS
def test_a_table_without_an_answer_says_so(uid: str) -> None:
    """Of several queries Grafana would show headings without rows."""
    for panel in panels(uid):
        # what is wrong always has an answer
        if panel["type"] != "table" or len(panel["targets"]) == 1 or not panel["title"]:
            continue
        (grouped,) = (one["options"]["fields"] for one in panel["transformations"] if one["id"] == "groupBy")
        values = {f"Value #{target['refId']}" for target in panel["targets"]}
        assert {name for name, how in grouped.items() if how["operation"] == "aggregate"} == values
        (kept,) = (one for one in panel["transformations"] if one["id"] == "filterFieldsByName")
        shown = {name.removesuffix(" (lastNotNull)") for name in kept["options"]["include"]["names"]}
        assert shown <= grouped.keys()
        assert panel["fieldConfig"]["defaults"]["noValue"], panel["title"]


@check_rows("uid", [f"llm-serving-{name}" for name in ("node-loss", "replica", "gpu", "cost", "embedding")])
def test_no_panel_says_no_data(uid: str) -> None:
    """A model of one replica, a replica that is gone, a fleet without prices or such servers: each says why there is nothing."""
    for panel in default_boards()[uid].board.panels:
        assert panel.may_be_empty or any(" or vector(" in query.expr for query in panel.queries), panel.title


def test_peers_and_cards_of_a_replica_are_read_by_hidden_variables() -> None:
    document = default_documents()["llm-serving-replica"]
    hidden = {one["name"]: one for one in document["templating"]["list"] if one["name"].startswith("its_")}
    assert {name: one["hide"] for name, one in hidden.items()} == {"its_model": 2, "its_gpus": 2}
    for name, label in (("its_model", "model_name"), ("its_gpus", "gpu")):
        assert hidden[name]["definition"].endswith(f", {label})")
        assert 'target=~"$target"' in hidden[name]["definition"]
        asking = [target["expr"] for target in targets("llm-serving-replica") if f"${name}" in target["expr"]]
        assert len(asking) >= 5
        assert all(f'{label}=~"${name}"' in one for one in asking)


def test_every_alert_leads_to_the_panel_that_shows_it() -> None:
    """On the dashboard that its link opens, a panel goes by a series or record by which its expression goes, too; where no figure says
    more, the panel asks for the alert itself."""
    settings = default_settings()
    groups = rule_groups(settings)
    made_of = {rule.record: set(NAMES.findall(rule.expr)) for rule in every_rule(groups) if isinstance(rule, Record)}
    by_name = {f"LLMServing{one.name}": one for one in ALERTS}
    for rule in every_rule(groups):
        if not isinstance(rule, AlertRule):
            continue
        declared = by_name[rule.alert]
        path, _, query = rule.annotations["dashboard"].partition("?")
        board = default_boards()[path.rpartition("/")[2]].board
        assert board.uid == declared.shown.uid
        assert tuple(re.findall(r"var-(\w+)=", query)) == declared.choices
        assert {*declared.choices} <= {*board.variables}
        (panel,) = (one for one in board.panels if one.title == declared.shown.panel)
        asked = " ".join(query.expr for query in panel.queries)
        if panel.title == FIRING_PANEL:
            assert rule.alert in asked or rule.labels["severity"] in ("info", "none"), rule.alert
            continue
        own, there = (trace(text, made_of) for text in (rule.expr, asked))
        assert own & there, (rule.alert, panel.title)


def trace(expression: str, made_of: Mapping[str, set[str]]) -> set[str]:
    """The series and records of an expression, and all that these are made of; without those that only say what something is."""
    found: set[str] = set()
    left = set(NAMES.findall(expression))
    while left:
        found |= left
        left = {name for record in left for name in made_of.get(record, ())} - found
    return {name for name in found if not name.endswith(("_info", ":info"))}


@UIDS
def test_what_can_be_chosen_is_what_the_rules_go_by(uid: str) -> None:
    if uid in CHOICES:
        assert default_boards()[uid].board.variables == CHOICES[uid]


def test_states_are_those_that_there_are() -> None:
    assert {state for state, _ in LIMITERS} == {state.value for state in Limiter}
    assert {state for state, _ in exporter.STATES} == {state.value for state in State}


def expressions(uid: str) -> list[str]:
    """Every query of a dashboard."""
    document = default_documents()[uid]
    return [*(target["expr"] for target in targets(uid)), *(one["expr"] for one in document["annotations"]["list"])]


# --- the dashboards through Grafana's own model of them ---


register_default_plugins()


def lost(ours: Any, theirs: Any, where: str = "") -> Iterator[str]:
    """What the model does not give back as it was."""
    if isinstance(ours, dict):
        for name, value in ours.items():
            if not isinstance(theirs, dict) or name not in theirs:
                yield f"{where}.{name}"
            else:
                yield from lost(value, theirs[name], f"{where}.{name}")
    elif isinstance(ours, list):
        if not isinstance(theirs, list) or len(ours) != len(theirs):
            yield where
        else:
            for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from lost(one, other, f"{where}[{number}]")
    elif ours != theirs:
        yield where


def round_trip(document: dict[str, Any]) -> list[str]:
    decoded = Dashboard.from_json(copy.deepcopy(document))
    return list(lost(document, json.loads(JSONEncoder(sort_keys=True).encode(decoded))))


@check_rows("uid", default_documents)
def test_grafanas_model_knows_every_key(uid: str) -> None:
    assert round_trip(default_documents()[uid]) == []


@check_rows("kind", ["timeseries", "stat", "state-timeline", "table", "heatmap", "xychart"])
def test_a_key_that_it_does_not_know_is_seen(kind: str) -> None:
    """Of each kind of panel, so that none is passed through unread."""
    for document in copy.deepcopy(default_documents()).values():
        for number, panel in enumerate(document["panels"]):
            if panel["type"] == kind:
                panel["options"]["nonsense"] = 1
                panel["fieldConfig"]["defaults"]["nonsense"] = 1
                assert set(round_trip(document)) == {
                    f".panels[{number}].options.nonsense",
                    f".panels[{number}].fieldConfig.defaults.nonsense",
                }
                return
    pytest.fail(f"no dashboard has a {kind}")


# --- `llm-serving-exporter dashboards`: what it writes, and how it ends ---


RENDERED = ROOT / "dashboards" / "rendered"
# what `kubectl apply` takes: it keeps the whole object in an annotation, and all annotations are 256 KiB (TotalAnnotationSizeLimitB of
# kubernetes/apimachinery); a ConfigMap's data could be 1 MiB
MOST_BYTES = 256 << 10


def test_a_folder_gets_the_committed_files_and_their_names_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dashboards", "--output-dir", str(tmp_path / "made")]) == 0
    made = {path.name: path.read_text() for path in (tmp_path / "made").iterdir()}
    assert made == {path.name: path.read_text() for path in RENDERED.iterdir()}
    assert sorted(capsys.readouterr().out.split()) == sorted(str(tmp_path / "made" / name) for name in made)


def test_the_users_settings_are_in_them(tmp_path: Path) -> None:
    settings = tmp_path / "my-rules.yml"
    settings.write_text("identity_labels: [cluster]\nslo: {ttft: {threshold: 750ms}}\n")
    assert main(["dashboards", "--config.file", str(settings), "--output-dir", str(tmp_path)]) == 0
    home = json.loads((tmp_path / "llm-serving-home.json").read_text())
    assert [one["name"] for one in home["templating"]["list"]][:2] == ["datasource", "cluster"]
    (p99,) = (one for one in home["panels"] if one["title"] == "p99 time to first token")
    assert [step["value"] for step in p99["fieldConfig"]["defaults"]["thresholds"]["steps"]] == [None, 0.75]


def test_a_configmap_a_dashboard_that_the_sidecar_finds(tmp_path: Path) -> None:
    words = ["--format", "configmap", "--namespace", "monitoring", "--label", "team=llm", "--output-dir", str(tmp_path)]
    assert main(["dashboards", *words]) == 0
    found = sorted(tmp_path.iterdir())
    assert len(found) == len(list(RENDERED.iterdir()))
    for path in found:
        assert path.stat().st_size < MOST_BYTES
        made = load_yaml(path.read_text())
        assert made["kind"] == "ConfigMap"
        assert made["metadata"] == {
            "name": path.stem, "namespace": "monitoring", "labels": {"grafana_dashboard": "1", "team": "llm"}
        }  # fmt: skip
        ((name, text),) = made["data"].items()
        assert text == (RENDERED / name).read_text()


def test_a_data_source_for_a_grafana_that_has_none(tmp_path: Path) -> None:
    settings = tmp_path / "my-rules.yml"
    settings.write_text("scrape_interval: 30s\n")
    words = ["--format", "configmap", "--datasource-url", "http://p:9090", "--output-dir", str(tmp_path)]
    assert main(["dashboards", "--config.file", str(settings), *words]) == 0
    made = load_yaml((tmp_path / "llm-serving-datasource.yml").read_text())
    assert made["metadata"]["labels"] == {"grafana_datasource": "1"}
    (found,) = load_yaml(made["data"]["llm-serving-datasource.yml"])["datasources"]
    assert (found["url"], found["jsonData"]["timeInterval"]) == ("http://p:9090", "30s")


@check_rows(
    ("words", "said"),
    [
        ([], "--output-dir"),
        (["--output-dir", "d", "--namespace", "x"], "add --format configmap"),
        (["--output-dir", "d", "--format", "configmap", "--label", "x"], "'x' is not NAME=VALUE"),
        (["--output-dir", "d", "--format", "configmap", "--datasource-url", "prometheus:9090"], "is not a URL"),
    ],
)
def test_bad_usage_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["dashboards", *words])
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_bad_settings_write_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "my-rules.yml"
    settings.write_text("slo: {ttft: {threshold: -1s}}\n")
    assert main(["dashboards", "--config.file", str(settings), "--output-dir", str(tmp_path / "made")]) == 2
    assert "slo" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_a_folder_that_cannot_be_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["dashboards", "--output-dir", str(tmp_path / "file" / "below")]) == 1
    assert "choose another --output-dir" in capsys.readouterr().err


def test_without_grafanalib_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [name for name in sys.modules if name.startswith(("llm_serving_dashboards", "grafanalib"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grafanalib", None)
    assert main(["dashboards", "--output-dir", "d"]) == 1
    said = capsys.readouterr().err
    assert "Run pip install 'llm-serving-exporter[dashboards]', or pip install '.[dashboards]' in a clone." in said


def test_readme_installs_the_extra_before_it_uses_it() -> None:
    readme = (ROOT / "README.md").read_text()
    assert readme.index("pip install '.[dashboards]'") < readme.index("llm-serving-exporter dashboards ")


# --- every query of every dashboard, asked of a real Prometheus ---


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    with PrometheusServer(tmp_path_factory.mktemp("prometheus"), "global: {}\n") as server:
        yield server


IDENTITY = "identity_labels: [cluster, namespace]\nslo: {itl: {threshold: 100ms}, e2e: {threshold: 40s}}\n"


@pytest.mark.process
@pytest.mark.seam("Prometheus")
@pytest.mark.parametrize(
    "settings", keep_quick(["", IDENTITY], lambda text: text == IDENTITY), ids=["defaults", "more"]
)
def test_prometheus_takes_every_query(prometheus: PrometheusServer, tmp_path: Path, settings: str) -> None:
    path = tmp_path / "settings.yml"
    path.write_text(settings)
    found = read_settings(str(path))[0] if settings else default_settings()
    asked = 0
    for made in build_dashboards(found):
        document = made.document
        queries = [target["expr"] for one in panels_of(document) for target in one.get("targets", ())]
        for expression in (*queries, *(one["expr"] for one in document["annotations"]["list"])):
            answer = prometheus.get("/api/v1/query", query=filled(expression))
            assert answer.json()["status"] == "success", (made.board.uid, filled(expression), answer.text)
            asked += 1
    assert asked > 200
