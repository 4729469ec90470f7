"""Alerts that fire about what a viewer chose: in PromQL, in a panel at the head of a dashboard, and as annotations on every graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from llm_serving_alerts.alerting import ALERTS as DECLARED
from llm_serving_alerts.declare import FIRING_PANEL
from llm_serving_alerts.external import FIRING
from llm_serving_alerts.promql import MODEL, NODES, one_of
from llm_serving_alerts.records.history import ALIVE, ON_NODE
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.render import ALERTS, rule_groups
from llm_serving_alerts.rules import ALERT_PREFIX, AlertRule, Severity
from llm_serving_alerts.settings import Settings
from llm_serving_dashboards.panels import (
    REPLICA_UID,
    Board,
    Colour,
    Column,
    Link,
    Look,
    Panel,
    Query,
    Unit,
    ValueMapping,
    Visualization,
)
from llm_serving_dashboards.queries import QueryBuilder

# --- Alerts that fire about what a viewer chose: in PromQL, in a panel at the head of a dashboard, and with the way to each one's runbook.

RUNBOOKS_UID = "llm-serving-runbooks"
# who is told, in a word, and its colour
GRAVE = ((Severity.CRITICAL, "page", Colour.BAD), (Severity.WARNING, "ticket", Colour.WARNING))
# in place of a time in seconds; VictoriaMetrics would drop a series that is NaN
BEFORE_RANGE = -1
# in place of milliseconds, of what began at no time
NO_TIME = -2
SINCE = Column(
    0,
    "since",
    Unit.MILLISECONDS_SINCE,
    mappings=(ValueMapping(1000 * BEFORE_RANGE, "before this range", "text"), ValueMapping(NO_TIME, "–", "text")),  # a dash, as in our documents
    coloured=False,
    width=150,
)  # fmt: skip
# what an alert is about beside its model and node: its words, and what of the label is said. Of a UUID the beginning tells cards apart
_PARTS = (
    ("slo", "objective $1", "(.+)"),
    ("signal", "signal $1", "(.+)"),
    ("target", "$1", "(.+)"),
    ("gpu", "card $1", r"((?:GPU|MIG)-\\w+(?:-\\w+)?|.+?)(?:-.*)?"),
)
_FOR_STATE = "ALERTS_FOR_STATE"
_STATE = 'alertstate="firing"'
_ABOUT = "model_name", "target", "gpu", "node"
_SHOWN, _HEIGHT = 20, 6
_NAMES = "alertname", *MODEL, "target", "node", "gpu", "slo", "signal", "severity"


def list_rules(settings: Settings) -> tuple[AlertRule, ...]:
    """Every alert as it is rendered."""
    return tuple(rule for group in rule_groups(settings)[ALERTS] for rule in group.rules if isinstance(rule, AlertRule))


def list_runbooks(settings: Settings) -> tuple[str, ...]:
    """Names of the alerts that somebody is told of, in the order of the checks; each has a runbook."""
    return tuple(dict.fromkeys(rule.alert for rule in list_rules(settings) if rule.labels["severity"] != Severity.NONE))


def make_runbook_columns(settings: Settings) -> tuple[Column, ...]:
    """The alert's name, which leads to its runbook: where the settings have it, else to its panel in Grafana."""
    if settings.runbook_url:
        address = settings.runbook_url.replace("{alert}", "${__data.fields.alertname:percentencode}")
        return (
            Column("alert", "runbook", link=Link(url=address), width=190),
            Column("alertname", "alertname", hidden=True),
        )
    # a panel has its number by its place: the name of an alert is mapped to it
    numbers = tuple(ValueMapping(name, str(number), "text") for number, name in enumerate(list_runbooks(settings), 1))
    return (
        Column("alert", "runbook", link=Link(RUNBOOKS_UID, panel="${__data.fields.alertname}"), width=190),
        Column("alertname", "alertname", mappings=numbers, hidden=True),
    )


def _list_starts(queries: QueryBuilder, rules: Iterable[AlertRule]) -> Iterator[str]:
    """PromQL of each alert's ALERTS_FOR_STATE, which is when its condition began to hold, and the time that it has to hold for."""
    chosen = "".join(f',{label}=~"${label}|"' for label in queries.settings.identity_labels)
    by_time: dict[float, set[str]] = {}
    for rule in rules:
        by_time.setdefault(rule.for_seconds, set()).add(rule.alert)
    for seconds, names in sorted(by_time.items()):
        yield f"{_FOR_STATE}{{{one_of('alertname', sorted(names))}{chosen}}} + {seconds:g}"


def find_begun(queries: QueryBuilder, fires: str, every: str, rules: Iterable[AlertRule]) -> str:
    """When each of these alerts began to fire, in seconds; negative where all that is known is that it was before the time range. `every`: a
    selector of alerts that has them all: what is dear is to find out which of them are meant, and that is asked once."""
    rules = tuple(rules)
    since = [" or ".join(_list_starts(queries, rules))]
    if at_once := sorted({rule.alert for rule in rules if not rule.for_seconds}):
        # of these vmalert writes no ALERTS_FOR_STATE (up to 1.79 at least): then they began when they were first seen
        fired = select_firing(queries, one_of("alertname", at_once))
        since.append(f"(min_over_time(timestamp({fired})[$__range:1m]) unless {fired} offset $__range)")
    known = " or ignoring (alertstate) ".join((*since, f"{every} * {BEFORE_RANGE}"))
    return f"({known}) and ignoring (alertstate) ({fires})"


def name_parts(expression: str) -> str:
    """Alerts with what they are about beside their model as `part`, their node as `place`, and their name without the prefix as `alert`."""
    for label, words, pattern in _PARTS:
        expression = f'label_replace({expression}, "part", "{words}", "{label}", "{pattern}")'
    expression = f'label_replace({expression}, "place", " on node $1", "node", "(.+)")'
    return f'label_replace({expression}, "alert", "$1", "alertname", "{ALERT_PREFIX}(.+)")'


def find_firing(queries: QueryBuilder, *matchers: str, rest: bool = False, single: bool = False) -> str:
    """Alerts that fire about what the viewer chose: about the models and replicas themselves, their nodes and their cards.

    `matchers`: more that they must match. `rest`: with those that are about none of these. `single`: one replica is chosen, never all.
    """
    return " or ".join(_list_firing(queries, matchers, rest=rest, single=single))


def _list_firing(queries: QueryBuilder, matchers: tuple[str, ...], *, rest: bool, single: bool) -> Iterator[str]:
    def select(*more: str) -> str:
        return select_firing(queries, *matchers, *more)

    variables, key = queries.variables, queries.dialect.key
    of_node, of_gpu = (_lack("model_name", "gpu", "target"), 'node!=""'), (_lack("model_name", "target"), 'gpu!=""')
    if "gpu" in variables:
        yield select('gpu!=""', *(f'{label}=~"${label}|"' for label in variables))
        yield select(*of_node, 'node=~"$node"')
        return
    of_models = [f'{label}=~"${label}|"' for label in MODEL if label in variables]
    own = queries.select(DOWN)
    if "target" not in variables:
        yield select('model_name!=""', *of_models)
    else:
        yield select('target=~"$target"', 'target!=""', *of_models)
        # those of a model have no target that they could be chosen by; of a model that is gone nobody knows its targets
        on, of_model = queries.match_on(*MODEL), select('model_name!=""', _lack("target"), *of_models)
        others = f"{queries.drop_choice('target').select(ALIVE)} unless {on} {own}"
        yield f"({of_model} and {on} {own})" if single else f"({of_model} unless {on} ({others}))"
    claims = queries.dialect.bare(queries.select("gpu_target_info"), "gpu", "target")
    yield f"({select(*of_gpu)} and on ({key('gpu')}) ({claims} and on ({key('target')}) {own}))"
    nodes = queries.select(NODES if "target" in variables else ON_NODE)
    yield f"({select(*of_node)} and on ({key('node')}) {nodes})"
    if rest:
        yield select(_lack(*_ABOUT))


def select_firing(queries: QueryBuilder, *matchers: str) -> str:
    """A selector of alerts that fire, of the chosen identities."""
    chosen = (f'{label}=~"${label}|"' for label in queries.settings.identity_labels)
    return f"{FIRING}{{{','.join((_STATE, *matchers, *chosen))}}}"


def _lack(*labels: str) -> str:
    return ",".join(f'{label}=""' for label in labels)


def shows_rest(uid: str) -> bool:
    """Whether a dashboard is about alerts, too, that are about no model, replica, node or card."""
    return any(one.shown.uid == uid and not {*_ABOUT} & {*one.identity} for one in DECLARED)


def make_firing(queries: QueryBuilder, uid: str) -> Panel:
    """What fires of all that this dashboard shows: a row an alert, pages first, each with the way to its runbook."""
    declared = {
        f"{ALERT_PREFIX}{one.name}" for one in DECLARED if uid in (REPLICA_UID, one.shown.uid, one.check.dashboard)
    }
    loud = {severity: word for severity, word, _ in GRAVE}
    rules = [
        rule for rule in list_rules(queries.settings) if rule.alert in declared and rule.labels["severity"] in loud
    ]
    names = sorted({rule.alert for rule in rules})
    named = one_of("alertname", names), one_of("severity", loud)
    fires = find_firing(queries, *named, rest=shows_rest(uid), single=uid == REPLICA_UID)
    begun = find_begun(queries, fires, select_firing(queries, *named), rules)
    begun = f"max by ({', '.join((*queries.settings.identity_labels, *_NAMES))}) ({begun})"
    return Panel(
        FIRING_PANEL,
        "Alerts that fire for what is chosen above, pages first, and since when. The name of an alert leads to its runbook. What Alertmanager silences "
        "or inhibits is shown too.",
        Visualization.TABLE,
        Look(width=24, height=_HEIGHT),
        (Query(f'label_join(topk({_SHOWN}, 1000 * {name_parts(begun)}), "part", "", "part", "place")', instant=True, table=True),),
        (
            Column("severity", "severity", mappings=tuple(ValueMapping(one.value, word, colour) for one, word, colour in GRAVE), width=80),
            *(Column(name, name, width=100) for name in queries.settings.identity_labels),
            Column("model_name", "model", least_width=160),
            Column("part", "replica, node, card or objective", least_width=240),
            SINCE,
            *make_runbook_columns(queries.settings),
        ),
        may_be_empty="no alert fires for this selection",
    )  # fmt: skip


# --- Annotations on every graph: alerts that notify somebody; at the click of a switch restarts, new versions, configuration loads and
# drills too.
#
# With more than three chosen models there are none: the alerts of sixteen are a curtain before every graph, and say nothing of the one
# that is looked at.

# an annotation marks what was not there a minute ago: Grafana evaluates its query each minute
_BEFORE_SECONDS = 60.0
# chosen models (nodes, where GPUs are chosen) of which events can still be seen one by one
MOST_CHOSEN = 3
# alerts of any other severity notify nobody who has to do something: docs/alertmanager.md
_NOTIFIES = 'severity=~"critical|warning"'


def build_annotations(board: Board, queries: QueryBuilder) -> tuple[dict[str, Any], ...]:
    """Grafana's annotation queries of one dashboard. Only alerts are there at first; each has a switch at its top."""
    about_gpus = "model_name" not in queries.variables
    # a ticket that becomes a page is a mark of its own
    level = "alertname", "severity", "model_name", "node", "gpu", *board.single
    chosen = "".join(f',{label}=~"${label}|"' for label in queries.settings.identity_labels)
    every = f'{FIRING}{{alertstate="firing",{_NOTIFIES}{chosen}}}'
    before = queries.aggregate("max", queries.dialect.offset(every, _BEFORE_SECONDS), *level)
    began = f"{queries.aggregate('max', find_firing(queries, _NOTIFIES, rest=shows_rest(board.uid), single=bool(board.single)), *level)} unless {before}"
    for severity, word, _ in GRAVE:
        began = f'label_replace({began}, "told", "{word}", "severity", "{severity}")'
    version = queries.select_one("target_info", "model_name", "version")
    known = queries.dialect.with_own(queries.dialect.offset(queries.select_scraped("target_info"), _BEFORE_SECONDS))

    def write(name: str, colour: Colour, expression: str, text: str, **more: bool) -> dict[str, Any]:
        counted = "node" if about_gpus else "model_name"
        return _write_annotation(name, colour, queries.hide_above(MOST_CHOSEN, counted, expression), text, **more)

    return (
        write("Alerts", Colour.BAD, began, "{{alertname}} ({{told}}) {{model_name}} {{node}}", enabled=True),
        write(
            "Restarts",
            Colour.WARNING,
            _to_milliseconds(queries.select_one("target_start_time_seconds", "target")),
            "{{target}} started",
            at_value=True,
        ),
        write(
            "Versions",
            Colour.PLAIN,
            # a new model is not a new version
            f"({version} unless {queries.match_on('model_name', 'version')} {known}) and {queries.match_on('model_name')} {known}",
            "{{model_name}}: version {{version}}",
        ),
        write(
            "Configuration",
            Colour.PLAIN,
            _to_milliseconds(queries.select("exporter_config_reload_success_timestamp_seconds")),
            "exporter's configuration loaded",
            at_value=True,
        ),
        write(
            "Drills",
            Colour.DEAD,
            _to_milliseconds(queries.select_one("drill_last_run_timestamp_seconds", "model_name", "role")),
            "drill of {{model_name}} {{role}}",
            at_value=True,
        ),
    )


def _to_milliseconds(expression: str) -> str:
    """Grafana reads the value as the annotation's time, in milliseconds."""
    return f"1000 * {expression}"


def _write_annotation(
    name: str, colour: str, expression: str, text: str, *, at_value: bool = False, enabled: bool = False
) -> dict[str, Any]:
    return {
        "name": name, "enable": enabled, "hide": False, "iconColor": str(colour), "expr": expression, "titleFormat": name, "textFormat": text,
        "step": "60s", "useValueForTime": at_value, "datasource": {"type": "prometheus", "uid": "${datasource}"},
    }  # fmt: skip
