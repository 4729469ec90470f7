"""What can be said of the dashboards' JSON without a Grafana: the union of what linters ask for and what users of other packs trip over."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache
from itertools import combinations
from typing import Any

from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards import exporter
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.grafana.document import SCHEMA_VERSION, TAG
from llm_serving_dashboards.home_matrix import CHECKS
from llm_serving_dashboards.limiter import LIMITERS
from llm_serving_dashboards.queries import list_record_labels
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import PREFIX, Kind
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.roofline import Limiter
from tests.support.builders.default_boards import default_boards, default_documents, panels_of
from tests.support.rows import check_rows

UIDS = check_rows("uid", default_boards)
# Grafana's own variables: https://grafana.com/docs/grafana/latest/dashboards/variables/add-template-variables/#global-variables
GLOBAL = re.compile(r"\$(?:\{)?__\w+")
VARIABLE = re.compile(r"\$\{?([a-z]\w*)")
# Prometheus' own, which the rules' alerts leave behind
OTHER = {"ALERTS"}


@cache
def list_recorded() -> Collection[str]:
    return list_record_labels(default_settings())


def panels(uid: str) -> Iterator[dict[str, Any]]:
    return (panel for panel in panels_of(default_documents()[uid]) if panel["type"] != "row")


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
    assert len(default_boards()) == len(build_dashboards(default_settings())) == 11
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
    asking = [document["panels"], [variable["query"] for variable in document["templating"]["list"]]]
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


@UIDS
def test_links_lead_to_dashboards(uid: str) -> None:
    for panel in panels(uid):
        for link in panel["fieldConfig"]["defaults"].get("links", ()):
            board = link["url"].removeprefix("/d/").partition("?")[0]
            # a sentence says itself where it leads
            assert board in default_boards() or board == "${__field.labels.board}"
            # the time and the choice of here, or of the series
            assert "${__url_time_range}" in link["url"]
            assert "${__all_variables}" in link["url"] or "&var-model_name=${__field.labels." in link["url"]
    (menu,) = default_documents()[uid]["links"]
    assert menu["keepTime"]
    assert menu["includeVars"]
    assert menu["tags"] == [TAG]


def test_every_cell_of_the_matrix_leads_to_the_panel_that_shows_why() -> None:
    """With the model of its row: Grafana's number of a panel that this very document has under that title."""
    (matrix,) = (panel for panel in panels("llm-serving-home") if panel["title"] == "Models and checks")
    links = {
        one["matcher"]["options"]: url
        for one in matrix["fieldConfig"]["overrides"]
        for found in one["properties"]
        if found["id"] == "links"
        for url in [found["value"][0]["url"]]
    }
    assert len(links) == 1 + 9 + 5
    for check, (title, _, why) in CHECKS.items():
        path, _, query = links[title].partition("?")
        uid = path.removeprefix("/d/")
        assert uid == check.dashboard
        number = int(query.rpartition("viewPanel=panel-")[2])
        (there,) = (panel for panel in default_documents()[uid]["panels"] if panel["id"] == number)
        assert there["title"] == why
        assert "${__url_time_range}" in query
        by_model = "&var-model_name=${__data.fields.model_name:percentencode}" in query
        # of cards no model can be chosen
        assert by_model == ("model_name" in default_boards()[uid].board.variables)


def test_the_first_screen_is_the_sentence_and_the_matrix() -> None:
    """1080 pixels hold 25 rows of 38 pixels below the bars of Grafana and its variables."""
    first, second, *others = default_documents()["llm-serving-home"]["panels"]
    assert [first["title"], second["title"]] == ["What is wrong", "Models and checks"]
    assert (first["type"], second["type"]) == ("stat", "table")
    end = second["gridPos"]["y"] + second["gridPos"]["h"]
    assert end <= 25
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
        assert all(numbers[made.board.find_number(panel.title)] == panel.title for panel in made.board.panels)
    assert folded


@UIDS
def test_a_table_without_an_answer_says_so(uid: str) -> None:
    """Of several queries Grafana would show headings without rows."""
    for panel in panels(uid):
        if panel["type"] != "table" or len(panel["targets"]) == 1:
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


def test_alerts_lead_to_dashboards() -> None:
    from llm_serving_alerts.render import every_rule, rule_groups
    from llm_serving_alerts.rules import AlertRule

    settings = default_settings()
    for rule in every_rule(rule_groups(settings)):
        if isinstance(rule, AlertRule):
            path, _, query = rule.annotations["dashboard"].partition("?")
            board = default_boards()[path.rpartition("/")[2]].board
            asked = set(re.findall(r"var-(\w+)=", query))
            assert asked <= set(board.variables), (rule.alert, asked, board.uid)


def test_states_are_those_that_there_are() -> None:
    assert {state for state, _ in LIMITERS} == {state.value for state in Limiter}
    assert {state for state, _ in exporter.STATES} == {state.value for state in State}


def expressions(uid: str) -> list[str]:
    """Every query of a dashboard."""
    document = default_documents()[uid]
    return [*(target["expr"] for target in targets(uid)), *(one["expr"] for one in document["annotations"]["list"])]
