"""What the home dashboard says first: what is wrong, with which part, how grave it is, since when, and who is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llm_serving_alerts.alerting import ALERTS as DECLARED
from llm_serving_alerts.alerting.verdicts import VERDICT
from llm_serving_alerts.external import FIRING
from llm_serving_alerts.promql import MODEL, one_of
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.routes import INHIBITIONS, WATCHDOG, Inhibition, compared
from llm_serving_alerts.rules import ALERT_PREFIX, Check, Severity
from llm_serving_dashboards.firing import (
    GRAVE,
    NO_TIME,
    SINCE,
    find_begun,
    list_rules,
    make_runbook_columns,
    name_parts,
)
from llm_serving_dashboards.home_matrix import CHOSEN, choose_by, find_rows, list_judged
from llm_serving_dashboards.panels import Colour, Column, Link, Panel, Query, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder

SHOWN = 3
# what a sentence is about, beside the user's identity labels: of several replicas, cards or objectives the one that began first is named
_ABOUT = ("model_name", "node", "check", "alertname")
# what else an alert says of its part, and what the dashboard that shows it can be narrowed to
_PART = ("role", "target", "gpu", "slo", "signal")
_CHOICES = ("model_name", "role", "target", "node", "gpu")
_MORE, _FINE, _UNKNOWN, _DEAD = "more", "fine", "unknown", "blind"
_WORDS = (
    *(ValueMapping(word, word, colour) for _, word, colour in GRAVE),
    ValueMapping(_MORE, _MORE, Colour.WARNING),
    ValueMapping(_FINE, _FINE, "dark-green"),
    ValueMapping(_UNKNOWN, _UNKNOWN, Colour.UNKNOWN),
    ValueMapping(_DEAD, _DEAD, Colour.DEAD),
)


def make_sentence(queries: QueryBuilder, height: int) -> Panel:
    """The worst few of what is wrong, a row each; else one sentence that says that nothing is, or why that is not known."""
    alerts = _Alerts(queries)
    asked = [alerts.find_worst(severity) for severity, _, _ in alerts.grave]
    asked += [_say(queries, _MORE, "and {} more", f"{alerts.count} - {SHOWN} > 0", "llm-serving-home")]
    asked += _list_rest(queries, alerts)
    identity = queries.settings.identity_labels
    chosen = tuple((name, f"${{__data.fields.{CHOSEN}{name}:percentencode}}") for name in (*identity, *_CHOICES))
    return Panel(
        "What is wrong",
        "The worst alerts that fire: pages first, and of each severity those that began first. A click on the sentence opens the dashboard that shows the alert, a click "
        "on the alert's name its runbook. The receivers are those of the rules' settings. Silences of Alertmanager are not seen here; what a page inhibits is left "
        "out. \"Nothing is wrong\" is said only while the Watchdog fires and every check has a verdict.",
        Visualization.TABLE,
        tuple(Query(one, instant=True, table=True) for one in asked),
        Unit.NONE,
        24,
        height,
        columns=(
            Column("order", "order", hidden=True),
            Column("grave", "severity", mappings=_WORDS, width=90, colours_row=True),
            Column("what", "what", link=Link("${__data.fields.board}", chosen), least_width=500),
            SINCE,
            Column("to", "to", width=300),
            *make_runbook_columns(queries.settings),
            *(Column(name, name, hidden=True) for name in ("board", *(f"{CHOSEN}{name}" for name in (*identity, *_CHOICES)))),
        ),
        one_value=True,
        headings=False,
        titled=False,
    )  # fmt: skip


class _Alerts:
    """PromQL of the alerts of these rules that page or open tickets."""

    def __init__(self, queries: QueryBuilder) -> None:
        self._queries = queries
        self.rules = list_rules(queries.settings)
        # with a lower cap nobody is paged
        self.grave = [one for one in GRAVE if any(rule.labels["severity"] == one[0] for rule in self.rules)]
        counted = (f"count({self._group(self._fire(severity))}) or vector(0)" for severity, _, _ in self.grave)
        # how many sentences there would be
        self.count = f"({' + '.join(f'({one})' for one in counted)})"
        receivers = queries.settings.receivers
        self._told = {Severity.CRITICAL: receivers.critical, Severity.WARNING: receivers.warning}

    def find_worst(self, severity: Severity) -> str:
        """When each of the worst alerts began to fire, in milliseconds, with what is said of it; negative where it was before the time range."""
        fires = self._fire(severity)
        by = ", ".join((*self._queries.settings.identity_labels, *_ABOUT))
        whole = ", ".join((*self._queries.settings.identity_labels, *_ABOUT, *_PART))
        rules = [rule for rule in self.rules if rule.labels["severity"] == severity]
        every = self._select(severity, [rule.alert for rule in rules])
        first = f"bottomk by ({by}) (1, min by ({whole}) ({find_begun(self._queries, fires, every, rules)}))"
        most = f"{SHOWN}"
        if severity is not self.grave[0][0]:
            pages = f"count({self._group(self._fire(Severity.CRITICAL))}) or vector(0)"
            most = f"scalar(clamp_min({SHOWN} - ({pages}), 0))"
        # as many parts as there are beside the one that is named
        others = f'count_values by ({by}) ("others", count by ({by}) ({every}) - 1)'
        return self._describe(f"1000 * bottomk({most}, {first}) * on ({by}) group_left (others) {others}", severity)

    def _describe(self, alerts: str, severity: Severity) -> str:
        """With the words of the row, and the labels that its link reads."""
        number = [one for one, _, _ in GRAVE].index(severity)
        told = name_parts(alerts)
        told = f'label_replace({told}, "subject", "the fleet: ", "", "")'
        told = f'label_replace({told}, "subject", "node $1: ", "node", "(.+)")'
        told = f'label_replace({told}, "subject", "$1: ", "model_name", "(.+)")'
        told = f'label_replace({told}, "others", "", "others", "0")'
        told = f'label_replace({told}, "others", " and $1 more", "others", "(.+)")'
        # of no model the node is the subject
        told = f'label_replace({told}, "place", "", "model_name", "")'
        told = f'label_replace({told}, "part", " $1", "part", "(.+)")'
        told = f'label_join({told}, "what", "", "subject", "alert", "part", "place", "others")'
        for label, text in (
            ("order", str(number)),
            ("grave", GRAVE[number][1]),
            ("to", f"to {self._told[severity]} unless silenced"),
        ):
            told = f'label_replace({told}, "{label}", "{text}", "", "")'
        for board in dict.fromkeys(one.shown.uid for one in DECLARED):
            names = "|".join(f"{ALERT_PREFIX}{one.name}" for one in DECLARED if one.shown.uid == board)
            told = f'label_replace({told}, "board", "{board}", "alertname", "{names}")'
        return choose_by(told, (*self._queries.settings.identity_labels, *_CHOICES))

    def _fire(self, severity: Severity) -> str:
        """Alerts of a severity that fire, without those that a page inhibits."""
        names = [rule.alert for rule in self.rules if rule.labels["severity"] == severity]
        fire = self._select(severity, names)
        quiet = [
            self._inhibit(one, severity, names)
            for one in INHIBITIONS
            if one.of_pages or severity is not Severity.CRITICAL
        ]
        return " unless ".join([fire, *(f"({one})" for one in quiet if one)])

    def _inhibit(self, one: Inhibition, severity: Severity, names: Iterable[str]) -> str:
        effects = [name for name in names if name.removeprefix(ALERT_PREFIX) in one.effects]
        if not effects:
            return ""
        equal = compared(one, self._queries.settings)
        carried = ",".join(f'{name}!=""' for name in equal)
        cause = self._select(Severity.CRITICAL, [f"{ALERT_PREFIX}{one.cause}"], carried)
        return f"{self._select(severity, effects)} and on ({', '.join(equal)}) {cause}"

    def _select(self, severity: Severity, alerts: Iterable[str], *more: str) -> str:
        named = one_of("alertname", dict.fromkeys(alerts))
        matchers = ['alertstate="firing"', named, f'severity="{severity}"', *filter(None, more)]
        return f"{FIRING.name}{{{choose(self._queries, *matchers)}}}"

    def _group(self, alerts: str) -> str:
        names = ", ".join((*self._queries.settings.identity_labels, *_ABOUT))
        return f"group by ({names}) ({alerts})"


def choose(queries: QueryBuilder, *matchers: str) -> str:
    """Matchers of alerts about what the viewer chose, and of those that lack the label that was chosen by."""
    labels = (*queries.settings.identity_labels, *MODEL)
    return ",".join([*matchers, *(f'{label}=~"${label}|"' for label in labels)])


def _list_rest(queries: QueryBuilder, alerts: _Alerts) -> Iterator[str]:
    """What is said where no alert fires."""
    settings = queries.settings
    said = queries.select(VERDICT)
    models = f"(count({find_rows(queries)}) or vector(0))"
    unknown = f"({len(list_judged(queries))} * {models} - (count({said}) or vector(0)))"
    recorded = f"(count({queries.select(DOWN)}) or count({said}))"
    # what a page inhibits is not alone: the page fires
    grave = one_of("severity", [severity for severity, _, _ in alerts.grave])
    ours = choose(queries, 'alertstate="firing"', f'alertname=~"{ALERT_PREFIX}.+"', grave)
    calm = f"((count({FIRING.name}{{{ours}}}) or vector(0)) == 0)"
    watched = any(rule.alert == WATCHDOG for rule in alerts.rules)
    # in a Prometheus of one cluster it has no label of the cluster
    matchers = [f'alertname="{WATCHDOG}"', *(f'{name}=~"${name}|"' for name in settings.external_labels)]
    evaluated = f'count({FIRING.name}{{alertstate="firing",{",".join(matchers)}}})' if watched else "vector(1)"
    sentences = [
        (
            f"{models} > 0 and {unknown} == 0 and {calm} and {evaluated}",
            _FINE,
            "Nothing is wrong, every check is known. Models: {}",
        ),
        (
            f"{unknown} > 0 and {calm} and {evaluated}",
            _UNKNOWN,
            "Nothing fires, but not every check is known. Unknown: {}",
        ),
        (f"vector(0) and {models} == 0 and {calm} and {evaluated}", _DEAD, "No exporter reports a model"),
        (
            f"vector(0) unless {recorded}" + (f" unless {evaluated}" if watched else ""),
            _DEAD,
            "The rules are not loaded, nothing is known",
        ),
    ]
    if watched:
        words = "Alerts are not evaluated, nobody would be told: the Watchdog does not fire"
        sentences.append((f"{recorded} * 0 unless {evaluated}", _DEAD, words))
    for expression, grave, words in sentences:
        yield _say(queries, grave, words, expression, Check.EXPORTER.dashboard)


def _say(queries: QueryBuilder, grave: str, words: str, expression: str, uid: str) -> str:
    """A row that is there where an expression has a value, which stands in its words; it leads to a dashboard with everything chosen."""
    said = f'count_values("what", {expression})'
    for label, text in (("what", words.replace("{}", "$1")), ("grave", grave), ("order", "9"), ("board", uid)):
        of = '"what", "(.*)"' if label == "what" else '"", ""'
        said = f'label_replace({said}, "{label}", "{text}", {of})'
    return choose_by(f"{said} * {NO_TIME}", (*queries.settings.identity_labels, *_CHOICES))
