"""Every query of every dashboard, asked of a real Prometheus over every scenario, an embedding server and one that speculates."""

import re

import pytest

from llm_serving_alerts.declare import FIRING_PANEL
from llm_serving_dashboards.boards import Dashboard, build_dashboards
from llm_serving_dashboards.panels import Column, Draw, Panel, Visualization
from tests.e2e.week import Week
from tests.simweek.build import week_settings
from tests.support.builders.panelqueries import answered, filled

# what nothing in these hours does; a simulated card counts neither, and none of them fails
NEVER = {"Versions"}
EMPTY = {
    ("llm-serving-gpu", FIRING_PANEL),
    ("llm-serving-cost", FIRING_PANEL),
    ("llm-serving-exporter", FIRING_PANEL),
    ("llm-serving-gpu", "GPUs with lowered clocks, by reason"),
    ("llm-serving-gpu", "XID events"),
    ("llm-serving-gpu", "PCIe traffic"),
    ("llm-serving-gpu", "NVLink traffic"),
    ("llm-serving-exporter", "Suspect signals"),
    ("llm-serving-replica", "Suspect signals"),
    ("llm-serving-cost", "Targets without a price"),
    # they all cost the same
    ("llm-serving-cost", "The most expensive replicas"),
    # nobody here counts by tenant; tests/unit/dashboards/test_roof.py asks it
    ("llm-serving-cost", "Tokens by tenant, the top ten"),
    ("llm-serving-gpu", "GPUs that are missing or at fault"),
    ("llm-serving-gpu", "ECC memory errors"),
    ("llm-serving-gpu", "Remapped rows and pending remaps"),
}
# their values are not asked for: Grafana's own lists
LABEL_VALUES = re.compile(r"label_values\((?P<series>.*), (?P<label>\w+)\)")
QUERY_RESULT = re.compile(r"query_result\((?P<query>.*)\)")
# a replica with peers
_RATIO = "llm_serving_bandwidth_ceiling_ratio"
REPLICA_WITH_PEERS = f"topk(1, target:{_RATIO}:best and on (model_name, role) model:{_RATIO}:quantile_of_targets)"


MADE = build_dashboards(week_settings())
PANELS = [
    pytest.param(made, panel, id=f"{made.board.uid}: {panel.title}") for made in MADE for panel in made.board.panels
]


pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(("made", "panel"), PANELS)
def test_every_query_returns_data_with_the_labels_that_are_shown(week: Week, made: Dashboard, panel: Panel) -> None:
    if panel.look.one_value or panel.visualization is Visualization.STATE_TIMELINE:
        # one sentence is said, and the others are not: tests/pack/test_home.py asks each; a row is of one query, the worst of the first
        assert any((week.now if query.instant else week.range)(filled(query.expr)) for query in panel.queries)
        return
    every: set[str] = set()
    for query in panel.queries:
        # with all that hidden variables hide
        asked = query.expr
        if query.draw is Draw.BEHIND:
            (one,) = week.now(REPLICA_WITH_PEERS)
            asked = asked.replace("$target", one["metric"]["target"])
        empty = (made.board.uid, panel.title) in EMPTY
        written = answered(asked, made.queries.hidden) if empty else filled(asked)
        found = (week.now if query.instant else week.range)(written)
        if empty:
            # a list of what is not there goes out of date
            assert (found, bool(panel.may_be_empty)) == ([], True)
            continue
        if not found and query.instant and panel.may_be_empty:
            # what is wrong at some moment, and not at the last one
            found = week.range(filled(asked))
        # also where another user may have nothing: a query that is wrong has nothing for anybody
        assert found, (made.board.uid, panel.title, query.expr)
        labels = {name for one in found for name in one["metric"]}
        # the horizontal value of a chart's points
        assert "x" in labels or not panel.marks
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) <= labels, query.legend
        every |= labels
    # a card without MIG has no profile, an alert about a model no part of it; where nothing is, there are no labels
    wanted = {column.source for column in panel.columns if isinstance(column.source, str)}
    assert not every or wanted - {"mig_profile", "part"} <= every
    assert _values(panel.columns) <= set(range(len(panel.queries)))


def _values(columns: tuple[Column, ...]) -> set[int]:
    return {column.source for column in columns if isinstance(column.source, int)}


@pytest.mark.parametrize("made", MADE, ids=[made.board.uid for made in MADE])
def test_variables_and_annotations_have_values(week: Week, made: Dashboard) -> None:
    document = made.document
    for variable in document["templating"]["list"]:
        if variable["type"] != "query":
            continue
        query = filled(variable["definition"])
        if found := LABEL_VALUES.fullmatch(query):
            chosen = {one["metric"].get(found["label"]) for one in week.now(found["series"])}
        else:
            whole = QUERY_RESULT.fullmatch(query)
            assert whole, query
            # a legend's variable is not called as the label that has its text
            label = variable["regex"].strip("/").partition("=")[0]
            chosen = {one["metric"].get(label) for one in week.now(whole["query"])}
        if variable["hide"] and variable["multi"]:
            # of what nothing does in these hours
            reads = f'"${variable["name"]}"'
            panels = [one for one in made.board.panels if any(reads in query.expr for query in one.queries)]
            assert chosen - {None, ""} or all(one.may_be_empty for one in panels), variable["definition"]
            continue
        assert chosen - {None, ""}, variable["name"]
    for annotation in document["annotations"]["list"]:
        if annotation["name"] not in NEVER:
            assert week.range(filled(annotation["expr"])), annotation["name"]
            # of so many models and nodes there are no marks
            assert week.range(answered(annotation["expr"], made.queries.hidden)) == []


def test_the_edge_above_p99_is_an_edge_and_above_it(week: Week) -> None:
    (panel,) = (one for made in MADE for one in made.board.panels if one.title == "TTFT: quantiles")
    quantiles, edges = (
        {one["metric"]["model_name"]: dict(one["values"]) for one in week.range(filled(query.expr))}
        for query in (panel.queries[0], panel.queries[3])
    )
    known = week.now("count by (le) (model:llm_serving_time_to_first_token_seconds_bucket:rate5m)")
    steps = {float(one["metric"]["le"]) for one in known}
    compared = 0
    for model, values in edges.items():
        for at, edge in values.items():
            if edge == "NaN":
                continue
            assert float(edge) in steps
            assert float(quantiles[model][at]) <= float(edge) * (1 + 1e-9)
            # no edge lies between the two
            assert not [step for step in steps if float(quantiles[model][at]) * (1 + 1e-9) < step < float(edge)]
            compared += 1
    assert compared > 1000


def test_only_servers_that_generate_nothing_are_on_their_page(week: Week) -> None:
    (made,) = (one for one in MADE if one.board.uid == "llm-serving-embedding")
    found = week.now(filled(dict(made.board.choices)["model_name"]))
    assert [one["metric"] for one in found] == [{"model_name": "embedder"}]
