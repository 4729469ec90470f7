"""What the home dashboard says first: what is wrong, how grave it is, who is told, and since when."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llm_serving_alerts.alerting.verdicts import VERDICT
from llm_serving_alerts.external import FIRING
from llm_serving_alerts.promql import MODEL, one_of
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.render import ALERTS, rule_groups
from llm_serving_alerts.routes import INHIBITIONS, WATCHDOG, Inhibition, compared
from llm_serving_alerts.rules import ALERT_PREFIX, AlertRule, Check, Severity
from llm_serving_dashboards.home_matrix import CHOSEN, choose_by, find_rows, list_judged
from llm_serving_dashboards.panels import Colour, Link, Panel, Query, Unit, ValueMapping, Visualization
from llm_serving_dashboards.queries import QueryBuilder

SHOWN = 3
# in place of a time in seconds; VictoriaMetrics would drop a series that is NaN
_NOBODY_KNOWS = -1
_FOR_STATE = "ALERTS_FOR_STATE"
_WRONG = ((Severity.CRITICAL, "page", Colour.BAD), (Severity.WARNING, "ticket", Colour.WARNING))


def make_sentence(queries: QueryBuilder, height: int) -> Panel:
    """The worst few of what is wrong, a line each; else one sentence that says that nothing is, or why that is not known."""
    alerts = _Alerts(queries)
    identity = "".join(f"{{{{{name}}}}} " for name in queries.settings.identity_labels)
    told = {
        Severity.CRITICAL: queries.settings.receivers.critical,
        Severity.WARNING: queries.settings.receivers.warning,
    }
    lines = [
        Query(
            alerts.find_worst(severity),
            f"{identity}{{{{subject}}}}: {{{{alert}}}} ({grave}), to {told[severity]} unless silenced, since",
            instant=True,
            colour=colour,
            unit=Unit.MILLISECONDS_AT,
            mappings=(ValueMapping(1000 * _NOBODY_KNOWS, "an unknown time", colour),),
        )
        for severity, grave, colour in alerts.wrong
    ]
    lines += [
        Query(
            lead_to(queries, "llm-serving-home", f"{alerts.count} - {SHOWN} > 0"),
            "and so many more:",
            instant=True,
            colour=Colour.WARNING,
        ),
        *_list_rest(queries, alerts),
    ]
    names = (*queries.settings.identity_labels, "model_name")
    chosen = tuple((name, f"${{__field.labels.{CHOSEN}{name}:percentencode}}") for name in names)
    return Panel(
        "What is wrong",
        "The worst of the alerts that fire, pages first, and of each the one that began first. The receivers are those of the rules' settings; what "
        "Alertmanager silences or mutes is not seen here, what it inhibits is left out. Nothing is wrong only where the Watchdog fires and every check has a verdict.",
        Visualization.STAT,
        tuple(lines),
        Unit.COUNT,
        24,
        height,
        link=Link("${__field.labels.board}", chosen),
        sentences=True,
    )  # fmt: skip


class _Alerts:
    """PromQL of the alerts of these rules that page or open tickets."""

    def __init__(self, queries: QueryBuilder) -> None:
        self._queries = queries
        found = (rule for group in rule_groups(queries.settings)[ALERTS] for rule in group.rules)
        self.rules = [rule for rule in found if isinstance(rule, AlertRule)]
        # with a lower cap nobody is paged
        self.wrong = [one for one in _WRONG if any(rule.labels["severity"] == one[0] for rule in self.rules)]
        counted = (f"count({self._group(self._fire(severity))}) or vector(0)" for severity, _, _ in self.wrong)
        # how many sentences there would be
        self.count = f"({' + '.join(f'({one})' for one in counted)})"

    def find_worst(self, severity: Severity) -> str:
        """When each of the worst alerts began to fire, in milliseconds, by what it is about; negative where nobody wrote that down."""
        fires = self._fire(severity)
        since = " or ".join(self._list_starts(severity))
        begun = f"({since}) and ignoring (alertstate) ({fires}) or ignoring (alertstate) ({fires}) * {_NOBODY_KNOWS}"
        grouped = self._group(begun)
        if severity is self.wrong[0][0]:
            return self._name(f"1000 * bottomk({SHOWN}, {grouped})")
        pages = f"count({self._group(self._fire(Severity.CRITICAL))}) or vector(0)"
        return self._name(f"1000 * bottomk(scalar(clamp_min({SHOWN} - ({pages}), 0)), {grouped})")

    def _list_starts(self, severity: Severity) -> Iterator[str]:
        """Each alert's ALERTS_FOR_STATE, which is when its condition began to hold, and the time that it has to hold for."""
        by_time: dict[float, list[str]] = {}
        for rule in self.rules:
            if rule.labels["severity"] == severity:
                by_time.setdefault(rule.for_seconds, []).append(rule.alert)
        for seconds, names in sorted(by_time.items()):
            yield f"{self._select(_FOR_STATE, severity, names)} + {seconds:g}"

    def _fire(self, severity: Severity) -> str:
        """Alerts of a severity that fire, without those that a page inhibits."""
        names = [rule.alert for rule in self.rules if rule.labels["severity"] == severity]
        fire = self._select(FIRING.name, severity, names)
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
        cause = self._select(FIRING.name, Severity.CRITICAL, [f"{ALERT_PREFIX}{one.cause}"], carried)
        return f"{self._select(FIRING.name, severity, effects)} and on ({', '.join(equal)}) {cause}"

    def _select(self, name: str, severity: Severity, alerts: Iterable[str], *more: str) -> str:
        state = ['alertstate="firing"'] if name == FIRING.name else []
        matchers = [*state, one_of("alertname", dict.fromkeys(alerts)), f'severity="{severity}"', *filter(None, more)]
        return f"{name}{{{self._choose(*matchers)}}}"

    def _choose(self, *matchers: str) -> str:
        return choose(self._queries, *matchers)

    def _group(self, alerts: str) -> str:
        """The first of each alert by what it is about."""
        names = ", ".join((*self._queries.settings.identity_labels, "model_name", "node", "check", "alertname"))
        return f"min by ({names}) ({alerts})"

    def _name(self, grouped: str) -> str:
        """The same with labels that say what it is about, and that the link reads."""
        told = f'label_replace({grouped}, "subject", "the fleet", "", "")'
        told = f'label_replace({told}, "subject", "node $1", "node", "(.+)")'
        told = f'label_replace({told}, "subject", "$1", "model_name", "(.+)")'
        told = f'label_replace({told}, "alert", "$1", "alertname", "{ALERT_PREFIX}(.+)")'
        for board in dict.fromkeys(check.dashboard for check in Check):
            checks = "|".join(check.value for check in Check if check.dashboard == board)
            told = f'label_replace({told}, "board", "{board}", "check", "{checks}")'
        return choose_by(told, (*self._queries.settings.identity_labels, "model_name"))


def choose(queries: QueryBuilder, *matchers: str) -> str:
    """Matchers of alerts about what the viewer chose, and of those that lack the label that was chosen by."""
    labels = (*queries.settings.identity_labels, *MODEL)
    return ",".join([*matchers, *(f'{label}=~"${label}|"' for label in labels)])


def _list_rest(queries: QueryBuilder, alerts: _Alerts) -> Iterator[Query]:
    """What is said where no alert fires."""
    settings = queries.settings
    said = queries.select(VERDICT)
    models = f"(count({find_rows(queries)}) or vector(0))"
    unknown = f"({len(list_judged(queries))} * {models} - (count({said}) or vector(0)))"
    recorded = f"(count({queries.select(DOWN)}) or count({said}))"
    calm = f"({alerts.count} == 0)"
    watched = any(rule.alert == WATCHDOG for rule in alerts.rules)
    # in a Prometheus of one cluster it has no label of the cluster
    matchers = [f'alertname="{WATCHDOG}"', *(f'{name}=~"${name}|"' for name in settings.external_labels)]
    evaluated = f'count({FIRING.name}{{alertstate="firing",{",".join(matchers)}}})' if watched else "vector(1)"
    sentences = [
        (
            f"{models} > 0 and {unknown} == 0 and {calm} and {evaluated}",
            "Nothing is wrong, every check is known. Models:",
            Colour.GOOD,
        ),
        (f"{unknown} > 0 and {calm} and {evaluated}", "Nothing fires, but checks are not known:", Colour.UNKNOWN),
        (f"vector(0) and {models} == 0 and {calm} and {evaluated}", "No exporter tells of a model. Models:", Colour.DEAD),
        (
            f"vector(0) unless {recorded}" + (f" unless {evaluated}" if watched else ""),
            "The rules are not loaded, nothing is known. Rules:",
            Colour.DEAD,
        ),
    ]  # fmt: skip
    if watched:
        words = "Alerts are not evaluated, nobody would be told. Watchdogs that fire:"
        sentences.append((f"{recorded} * 0 unless {evaluated}", words, Colour.DEAD))
    for expression, words, colour in sentences:
        yield Query(lead_to(queries, Check.EXPORTER.dashboard, expression), words, instant=True, colour=colour)


def lead_to(queries: QueryBuilder, uid: str, expression: str) -> str:
    """An expression with the labels that the link reads: of a dashboard, with everything chosen."""
    found = f'label_replace({expression}, "board", "{uid}", "", "")'
    return choose_by(found, (*queries.settings.identity_labels, "model_name"))
