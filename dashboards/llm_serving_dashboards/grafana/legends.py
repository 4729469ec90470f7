"""Legends without what is the same everywhere: a label is written only while the chosen series differ in it.

Grafana's legend templates know no condition. So a hidden variable has the text for a label, `{{role}}`, or one that writes nothing, and Grafana
asks again which one whenever the choice or the time range changes. It needs one small query a dashboard instead of one more join a panel.
"""

from __future__ import annotations

import re

from llm_serving_dashboards.grafana.fields import Json
from llm_serving_dashboards.panels import Board
from llm_serving_dashboards.queries import HiddenVariable, QueryBuilder

PREFIX = "legend_"
# a label that no series has: Grafana writes nothing in its place
NOTHING = "{{nothing}}"
_SAID = re.compile(r"\{\{(\w+)\}\}")
# a legend that names one of these names a model, a replica or a node, of which there may be one in each place
_NAMING = {"model_name", "target", "node"}
# in whose text a word stands before the value
_WORDS = {"engine": "engine {{engine}}"}
# never all that a legend says, since other words are left where they are dropped
_MINOR = ("role", "engine")


def list_varying(legend: str, identity: tuple[str, ...]) -> tuple[str, ...]:
    """Labels of a legend that are written only where they vary. `identity`: the user's labels, which are added to legends that name something."""
    said = _SAID.findall(legend)
    added = identity if _NAMING & {*said} else ()
    minor = tuple(label for label in _MINOR if label in said)
    # a model is all that its legend says, a node is not: its GPU follows
    rest = _SAID.sub(lambda found: "" if found[1] in (*_MINOR, "model_name") else found[0], legend).replace(
        "engine", ""
    )
    model = ("model_name",) if "model_name" in said and rest.strip() else ()
    node = ("node",) if {"node", "gpu"} <= {*said} else ()
    # of a model's GPUs the kinds are not counted
    kind = ("gpu_name",) if "gpu_name" in said and "model_name" not in said and rest.strip() != "{{gpu_name}}" else ()
    return (*model, *node, *kind, *minor, *added)


def write_legend(legend: str, identity: tuple[str, ...]) -> str:
    """Grafana's template, with a variable in place of each label that may be the same everywhere. "": Grafana names the series."""
    for label in list_varying(legend, identity):
        text, variable = _WORDS.get(label, f"{{{{{label}}}}}"), f"${PREFIX}{label}"
        legend = legend.replace(text, variable) if text in legend else f"{legend} {variable}"
    return legend.strip() or "__auto"


def blank_varying(legend: str) -> str:
    """The name of a series, written by `write_legend`, where no label varies: Grafana keeps the spaces between them."""
    return re.sub(rf"\${PREFIX}\w+", "", legend)


def write_legend_variables(board: Board, queries: QueryBuilder) -> list[Json]:
    """A hidden variable for each label that some legend of the dashboard writes only where it varies."""
    identity = queries.settings.identity_labels
    labels = dict.fromkeys(
        label for panel in board.panels for query in panel.queries for label in list_varying(query.legend, identity)
    )
    return [write_hidden_variable(_choose_text(label, queries)) for label in labels]


def _choose_text(label: str, queries: QueryBuilder) -> HiddenVariable:
    text = _WORDS.get(label, f"{{{{{label}}}}}")
    query = (
        f'label_replace({queries.count_chosen(label)} > 1, "legend", "{text}", "", "")'
        f' or on () label_replace(vector(0), "legend", "{NOTHING}", "", "")'
    )
    return HiddenVariable(f"{PREFIX}{label}", query, "legend")


def write_hidden_variable(variable: HiddenVariable) -> Json:
    """A variable that takes its values out of the text of a query's result."""
    query, several = f"query_result({variable.query})", variable.several
    return {
        "name": variable.name, "type": "query", "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "query": {"query": query, "refId": variable.name}, "definition": query, "regex": f'/{variable.label}="([^"]*)"/',
        # 2: not at the top of the dashboard; and, for `refresh`, whenever the time range changes
        "hide": 2, "refresh": 2, "sort": 0, "includeAll": several, "multi": several, "options": [],
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]} if several else {},
        # another dashboard has its own
        "skipUrlSync": True,
    }  # fmt: skip
