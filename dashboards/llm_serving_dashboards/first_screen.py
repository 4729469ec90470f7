"""The first screen of the home dashboard: a sentence that says what is wrong, and the matrix of models and checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.alerting import ALERTS as DECLARED
from llm_serving_alerts.alerting.verdicts import GOOD, PAGE, REST, TICKET, VERDICT
from llm_serving_alerts.external import FIRING
from llm_serving_alerts.promql import MODEL, one_of
from llm_serving_alerts.records.history import ALIVE
from llm_serving_alerts.records.presence import LOST_REPLICAS
from llm_serving_alerts.records.targets import DOWN, WANTED_NOW
from llm_serving_alerts.render import RECORDS, rule_groups
from llm_serving_alerts.routes import INHIBITIONS, WATCHDOG, Inhibition, compared
from llm_serving_alerts.rules import ALERT_PREFIX, Check, Record, Severity
from llm_serving_dashboards import cost, latency, node_loss, phases
from llm_serving_dashboards.firing import (
    GRAVE,
    NO_TIME,
    SINCE,
    find_begun,
    list_rules,
    make_runbook_columns,
    name_parts,
)
from llm_serving_dashboards.panels import (
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
from llm_serving_dashboards.shared_panels import (
    ABSENT,
    DEAD,
    LIMITER_WORDS,
    UNKNOWN,
    VERDICTS,
    BoardBuilder,
    warn_above,
)

# --- The matrix of the home dashboard: a row a model, a column a check, the worst first.

# of a check: its heading
TITLES: Mapping[Check, str] = {
    Check.PHASES: "phases",
    Check.TTFT: "TTFT",
    Check.KV: "KV",
    Check.TAIL: "tail",
    Check.NODE_LOSS: "node loss",
    Check.SLO: "SLOs",
    Check.GPU: "GPUs",
    Check.COST: "cost",
    Check.EXPORTER: "exporter",
}
# what Grafana takes for every value of a variable; PromQL reads the first dollar as one that is meant
ALL = "$$__all"
CHOSEN = "chosen_"
NO_ROLE, NO_TARGET, OF_TARGET, OF_GPU = 'role=""', 'target=""', 'target!=""', 'gpu!=""'
OF_NO_MODEL = "no model"
# weights of a row: one page outweighs any number of tickets, one ticket any number of unknown checks
_TICKET_WEIGHT, _PAGE_WEIGHT = 100, 10_000
# what is fine has no colour, so that what is not stands out of it
_WORDS = (*(replace(one, colour="transparent") if one.value == GOOD else one for one in VERDICTS), ABSENT)
_NAME, _REPLICAS, _LOST = "name", "replicas", "lost"


def make_matrix(queries: BoardBuilder, height: int) -> Panel:
    """A row a model and role, and one of what belongs to no model while something of that is wrong."""
    boards = _Boards(queries)
    judged = list_judged(queries)
    shown: list[tuple[str, Column]] = []
    for check in judged:
        link = Link(_read(f"{check}_board"), boards.choose({name: f"{check}_{name}" for name in list_choices(check)}))
        shown.append((_judge(queries, check), Column(0, TITLES[check], mappings=_WORDS, link=link, width=80)))
    shown += _describe(queries, boards)
    asked = [_weigh(queries, len(judged)), *(_fill(queries, expression) for expression, _ in shown)]
    numbered = [_number(column, number) for number, (_, column) in enumerate(shown, 1)]
    return Panel(
        "Models and checks",
        "One row per model, the worst first, and one column per check with its worst alert: a page, a ticket, or fine. Unknown: the series that the check "
        "needs are absent, or its alerts are not evaluated. A click opens the dashboard that shows the alert, with its replica, node or card chosen. A dash: there is no such figure. The row "
        f'"{OF_NO_MODEL}" appears while something is wrong that belongs to no model.',
        Visualization.TABLE,
        Look(width=24, height=height, mappings=(replace(ABSENT, colour="text"),), sorted_by=0),
        tuple(Query(expression, instant=True, table=True) for expression in asked),
        (
            *(Column(name, name, width=90) for name in queries.settings.identity_labels),
            Column(_NAME, "model", link=boards.link(phases, None), least_width=200),
            *numbered,
            *(Column(name, name, hidden=True) for name in (*MODEL, *(f"{CHOSEN}{name}" for name in queries.settings.identity_labels))),
            *(Column(name, name, hidden=True) for check in judged for name in (f"{check}_board", *(f"{check}_{one}" for one in list_choices(check)))),
        ),
        may_be_empty="no model is known: the rules are not loaded, or no exporter is scraped",
    )  # fmt: skip


def list_judged(queries: BoardBuilder) -> tuple[Check, ...]:
    """The checks that have a verdict: those whose alerts are not all off."""
    groups = rule_groups(queries.settings)[RECORDS]
    judged = {
        rule.labels["check"]
        for group in groups
        for rule in group.rules
        if isinstance(rule, Record) and rule.record == VERDICT
    }
    return tuple(check for check in TITLES if check.value in judged)


def list_choices(check: Check) -> tuple[str, ...]:
    """What the dashboards that show this check's alerts can be narrowed to beside a model and role."""
    choices = (name for one in ALERTS if one.check is check for name in one.choices)
    return tuple(dict.fromkeys(name for name in choices if name not in MODEL))


def find_rows(queries: BoardBuilder) -> str:
    """PromQL of every model and role that is known, or that an alert is about."""
    return " or ".join(queries.aggregate("max", queries.select(record), *MODEL) for record in (VERDICT, ALIVE))


class _Boards:
    """Links to panels of the other dashboards, with the model of the row."""

    def __init__(self, queries: BoardBuilder) -> None:
        self._queries = queries
        self._made: dict[ModuleType, Board] = {}

    def link(self, module: ModuleType, panel: str | None) -> Link:
        if module not in self._made:
            self._made[module] = module.build_board(self._queries.for_board(module.VARIABLES))
        board = self._made[module]
        models = {name: name for name in MODEL if name in board.variables}
        return Link(board.uid, self.choose(models, of_row=False), None if panel is None else board.find_number(panel))

    def choose(self, fields: Mapping[str, str], *, of_row: bool = True) -> tuple[tuple[str, str], ...]:
        """What a link chooses: the identity of the row, its model and role, and by variable the fields of the row that name them."""
        found = {name: f"{CHOSEN}{name}" for name in self._queries.settings.identity_labels}
        found |= {name: name for name in MODEL if of_row} | {**fields}
        return tuple((name, _read(field)) for name, field in found.items())


def _read(field: str) -> str:
    """Grafana's template of a field of the same row."""
    return f"${{__data.fields.{field}:percentencode}}"


def _number(column: Column, number: int) -> Column:
    return replace(column, source=number) if isinstance(column.source, int) else column


def _weigh(queries: BoardBuilder, checks: int) -> str:
    """How grave the state of each row is, with the row's name."""
    on, by = queries.match_on(*MODEL), queries.dialect.labels(*MODEL)
    rows, said = find_rows(queries), queries.select(VERDICT)
    grave = f"sum by ({by}) ({_weight(said)})"
    unknown = f"({checks} - count by ({by}) ({said}))"
    weighed = f"({grave} + {on} {unknown} or {on} ({rows}) * 0 + {checks})"
    level = queries.dialect.labels("model_name")
    alone = f"{weighed} and on ({level}) count by ({level}) ({rows}) == 1"
    several = f"{weighed} and on ({level}) count by ({level}) ({rows}) > 1"
    rest = f"sum by ({queries.dialect.labels()}) ({_weight(queries.select(REST))}) > 0"
    named = (
        f'label_replace({alone}, "{_NAME}", "$1", "model_name", "(.+)") or label_join({several}, "{_NAME}", " ", "model_name", "role")'
        f' or label_replace({_name_rest(rest)}, "{_NAME}", "{OF_NO_MODEL}", "", "")'
    )
    return choose_by(named, queries.settings.identity_labels)


def choose_by(expression: str, labels: Iterable[str]) -> str:
    """An expression with a further label for each of these, which links read: its value, or what chooses everything where it has none."""
    for name in labels:
        expression = f'label_replace({expression}, "{CHOSEN}{name}", "{ALL}", "", "")'
        expression = f'label_replace({expression}, "{CHOSEN}{name}", "$1", "{name}", "(.+)")'
    return expression


def _weight(said: str) -> str:
    return f"{_PAGE_WEIGHT // PAGE} * ({said} == {PAGE}) or {_TICKET_WEIGHT // TICKET} * {said}"


def _name_rest(rest: str) -> str:
    """What belongs to no model, with labels of a model that choose everything on another dashboard."""
    for name in MODEL:
        rest = f'label_replace({rest}, "{name}", "{ALL}", "", "")'
    return rest


def _judge(queries: BoardBuilder, check: Check) -> str:
    """A check's verdict of each row with the alert that leads on; where none is recorded it is unknown, or no exporter is running."""
    on, by_all = queries.match_on(*MODEL), queries.dialect.labels()
    said = queries.aggregate("max", queries.select(VERDICT, check=check.value), *MODEL)
    else_ = f"scalar(max({UNKNOWN:g} * {queries.select('exporter_build_info')}) or vector({DEAD:g}))"
    rest = f"max by ({by_all}) ({queries.select(REST, check=check.value)}) and on ({by_all}) {queries.select(REST)} > 0"
    kept = ", ".join(("alertname", *list_choices(check)))
    known = [
        f"({said}) * {on} group_left ({kept}) (topk by ({queries.dialect.labels(*MODEL)}) (1, {' or '.join(_list_alerts(queries, check))}) * 0 + 1)",
        said,
        f"(({find_rows(queries)}) * 0 + {else_})",
        _name_rest(
            f"({rest}) * on ({by_all}) group_left ({kept}) (topk by ({by_all}) (1, {' or '.join(_list_rest(queries, check))}) * 0 + 1)"
        ),
        _name_rest(rest),
    ]
    led = f" or {on} ".join(known)
    verdict = f'label_replace({led}, "{check}_board", "{check.dashboard}", "", "")'
    boards = {one.shown.uid for one in ALERTS if one.check is check} - {check.dashboard}
    for board in sorted(boards):
        names = "|".join(f"{ALERT_PREFIX}{one.name}" for one in ALERTS if one.check is check and one.shown.uid == board)
        verdict = f'label_replace({verdict}, "{check}_board", "{board}", "alertname", "{names}")'
    for name in list_choices(check):
        verdict = f'label_replace({verdict}, "{check}_{name}", "{ALL}", "", "")'
        verdict = f'label_replace({verdict}, "{check}_{name}", "$1", "{name}", "(.+)")'
    kept_labels = (f"{check}_board", *(f"{check}_{name}" for name in list_choices(check)))
    return queries.aggregate("max", verdict, *MODEL, *kept_labels)


def _list_parts(check: Check) -> set[str]:
    """What a check's alerts are about that say no model: a target or a card, of which others say whose it is."""
    return {name for one in ALERTS if one.check is check and "role" not in one.identity for name in one.identity}


def _select_alerts(queries: BoardBuilder, check: Check, *matchers: str) -> str:
    """Alerts of a check that fire, with how grave each is."""
    chosen = (f'{label}=~"${label}|"' for label in queries.settings.identity_labels)
    of_check = ",".join(('alertstate="firing"', f'check="{check}"', *matchers, *chosen))
    page, ticket = (f'{FIRING}{{{of_check},severity="{one}"}}' for one in (Severity.CRITICAL, Severity.WARNING))
    return f"({PAGE} * {page} or {ticket})"


def _list_alerts(queries: BoardBuilder, check: Check) -> Iterator[str]:
    """Alerts about models, and about the targets and cards of models, each with its model and role."""
    dialect, kept = queries.dialect, ", ".join(("alertname", *list_choices(check)))
    about = _list_parts(check)
    yield queries.aggregate("max", _select_alerts(queries, check, 'role!=""'), *MODEL, *kept.split(", "))
    of_target, of_gpu = dialect.key("target"), dialect.key("gpu")
    others = ", ".join(name for name in ("alertname", *list_choices(check)) if name != "target")
    if "target" in about:
        loudest = f"topk by ({of_target}) (1, {_select_alerts(queries, check, NO_ROLE, OF_TARGET)})"
        yield f"({queries.select(DOWN)} * 0 + on ({of_target}) group_left ({others}) {loudest})"
    if "gpu" in about:
        loudest = f"topk by ({of_gpu}) (1, {_select_alerts(queries, check, NO_ROLE, NO_TARGET, OF_GPU)})"
        carried = ", ".join(name for name in others.split(", ") if name != "gpu")
        claims = f"{_find_claims(queries)} * 0 + on ({of_gpu}) group_left ({carried}) {loudest}"
        claimed = f"topk by ({of_target}) (1, {claims})"
        yield f"({queries.select(DOWN)} * 0 + on ({of_target}) group_left ({others}) {claimed})"


def _list_rest(queries: BoardBuilder, check: Check) -> Iterator[str]:
    """Alerts that belong to no model."""
    about, of_none = _list_parts(check), _select_alerts(queries, check, NO_ROLE, NO_TARGET)
    yield f"({of_none} unless on ({queries.dialect.key('gpu')}) {_find_claims(queries)})" if "gpu" in about else of_none
    if "target" in about:
        of_target = _select_alerts(queries, check, NO_ROLE, OF_TARGET)
        yield f"({of_target} unless on ({queries.dialect.key('target')}) {queries.select(DOWN)})"


def _find_claims(queries: BoardBuilder) -> str:
    return queries.dialect.bare(queries.select("gpu_target_info"), "gpu", "target")


def _fill(queries: BoardBuilder, expression: str) -> str:
    """An expression with a row for every model, so that a model keeps its row where the figure is absent."""
    return f"{expression} or {queries.match_on(*MODEL)} ({find_rows(queries)}) * NaN"


def _find_lost(queries: BoardBuilder, replicas: str) -> str:
    """Replicas of each row, and behind them the lost nodes that had some of them."""
    lost, on = f"({queries.select(LOST_REPLICAS)} > 0)", queries.match_on(*MODEL)
    by = queries.dialect.labels(*MODEL)
    first = f'label_replace(topk by ({by}) (1, {lost}), "{_LOST}", "lost: $1", "node", "(.+)")'
    several = (
        f'label_replace({first} and {on} count by ({by}) ({lost}) > 1, "{_LOST}", "$1 and others", "{_LOST}", "(.+)")'
    )
    joined = f"({replicas}) * {on} group_left ({_LOST}) (({several} or {on} {first}) * 0 + 1)"
    return f'label_join({joined}, "{_REPLICAS}", ", ", "{_REPLICAS}", "{_LOST}") or {on} ({replicas})'


def _describe(queries: BoardBuilder, boards: _Boards) -> list[tuple[str, Column]]:
    """What limits a model, and its figures."""
    objective = queries.settings.slo["ttft"].threshold_seconds
    ready, wanted = (
        queries.aggregate("max", queries.select(name), *MODEL)
        for name in ("model:llm_serving_ready_replicas:sum", WANTED_NOW)
    )
    by = queries.dialect.labels(*MODEL)
    counted = f'count_values by ({by}) ("ready", {ready})'
    stated = f'count_values by ({by}) ("wanted", {wanted})'
    of = f'label_join({counted} * {queries.match_on(*MODEL)} group_left (wanted) {stated}, "{_REPLICAS}", " of ", "ready", "wanted")'
    alone = f'label_replace({counted} unless {queries.match_on(*MODEL)} {wanted}, "{_REPLICAS}", "$1", "ready", "(.*)")'
    figures = (
        ("model:llm_serving_phase_tokens_per_gpu:rate5m", {"phase": "decode"}, "tok/s/GPU", Unit.COUNT, (), (phases, "Tokens/s per GPU")),
        ("model:llm_serving_time_to_first_token_seconds:quantile_rate5m", {"rank": "p99"}, "p99 TTFT", Unit.SECONDS,
         warn_above(objective) if objective is not None else (), (latency, "TTFT: quantiles")),
        (cost.PER_MILLION, {"basis": "allocated", "phase": "blended"}, "$/M", Unit.USD, (), (cost, "By phase, allocated")),
    )  # fmt: skip
    return [
        (queries.find_limiter(), Column(0, "limited by", mappings=(*LIMITER_WORDS, ABSENT), link=boards.link(phases, "Limiter"), width=140, coloured=False)),
        *(
            (queries.aggregate("max", queries.select(record, **of_it), *MODEL), Column(0, title, unit, steps, None, (), boards.link(*where), width=88))
            for record, of_it, title, unit, steps, where in figures
        ),
        (_find_lost(queries, f"{of} or {alone}"), Column(_REPLICAS, "ready", link=boards.link(node_loss, None), width=230)),
    ]  # fmt: skip


# --- What the home dashboard says first: what is wrong, with which part, how grave it is, since when, and who is told.

SHOWN = 3
# what a sentence is about, beside the user's identity labels: of several replicas, cards or objectives the one that began first is named
_ABOUT = ("model_name", "node", "check", "alertname")
# what else an alert says of its part, and what the dashboard that shows it can be narrowed to
_PART = ("role", "target", "gpu", "slo", "signal")
_CHOICES = ("model_name", "role", "target", "node", "gpu")
_MORE, _FINE, _UNKNOWN, _DEAD = "more", "fine", "unknown", "blind"
_SENTENCE_WORDS = (
    *(ValueMapping(word, word, colour) for _, word, colour in GRAVE),
    ValueMapping(_MORE, _MORE, Colour.WARNING),
    ValueMapping(_FINE, _FINE, "dark-green"),
    ValueMapping(_UNKNOWN, _UNKNOWN, Colour.UNKNOWN),
    ValueMapping(_DEAD, _DEAD, Colour.DEAD),
)


def make_sentence(queries: BoardBuilder, height: int) -> Panel:
    """The worst few of what is wrong, a row each; else one sentence that says that nothing is, or why that is not known."""
    alerts = _Alerts(queries)
    asked = [alerts.find_worst(severity) for severity, _, _ in alerts.grave]
    asked += [_say(queries, _MORE, "and {} more", f"{alerts.count} - {SHOWN} > 0", "llm-serving-home")]
    asked += _say_rest(queries, alerts)
    identity = queries.settings.identity_labels
    chosen = tuple((name, f"${{__data.fields.{CHOSEN}{name}:percentencode}}") for name in (*identity, *_CHOICES))
    return Panel(
        "What is wrong",
        "The worst alerts that fire: pages first, and of each severity those that began first. A click on the sentence opens the dashboard that shows the alert, a click "
        "on the alert's name its runbook. The receivers are those of the rules' settings. Silences of Alertmanager are not seen here; what a page inhibits is left "
        "out. \"Nothing is wrong\" is said only while the Watchdog fires and every check has a verdict.",
        Visualization.TABLE,
        Look(width=24, height=height, one_value=True, headings=False, titled=False),
        tuple(Query(one, instant=True, table=True) for one in asked),
        (
            Column("order", "order", hidden=True),
            Column("grave", "severity", mappings=_SENTENCE_WORDS, width=90, colours_row=True),
            Column("what", "what", link=Link("${__data.fields.board}", chosen), least_width=500),
            SINCE,
            Column("to", "to", width=300),
            *make_runbook_columns(queries.settings),
            *(Column(name, name, hidden=True) for name in ("board", *(f"{CHOSEN}{name}" for name in (*identity, *_CHOICES)))),
        ),
    )  # fmt: skip


class _Alerts:
    """PromQL of the alerts of these rules that page or open tickets."""

    def __init__(self, queries: BoardBuilder) -> None:
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
        return f"{FIRING}{{{choose(self._queries, *matchers)}}}"

    def _group(self, alerts: str) -> str:
        names = ", ".join((*self._queries.settings.identity_labels, *_ABOUT))
        return f"group by ({names}) ({alerts})"


def choose(queries: BoardBuilder, *matchers: str) -> str:
    """Matchers of alerts about what the viewer chose, and of those that lack the label that was chosen by."""
    labels = (*queries.settings.identity_labels, *MODEL)
    return ",".join([*matchers, *(f'{label}=~"${label}|"' for label in labels)])


def _say_rest(queries: BoardBuilder, alerts: _Alerts) -> Iterator[str]:
    """What is said where no alert fires."""
    settings = queries.settings
    said = queries.select(VERDICT)
    models = f"(count({find_rows(queries)}) or vector(0))"
    unknown = f"({len(list_judged(queries))} * {models} - (count({said}) or vector(0)))"
    recorded = f"(count({queries.select(DOWN)}) or count({said}))"
    # what a page inhibits is not alone: the page fires
    grave = one_of("severity", [severity for severity, _, _ in alerts.grave])
    ours = choose(queries, 'alertstate="firing"', f'alertname=~"{ALERT_PREFIX}.+"', grave)
    calm = f"((count({FIRING}{{{ours}}}) or vector(0)) == 0)"
    watched = any(rule.alert == WATCHDOG for rule in alerts.rules)
    # in a Prometheus of one cluster it has no label of the cluster
    matchers = [f'alertname="{WATCHDOG}"', *(f'{name}=~"${name}|"' for name in settings.external_labels)]
    evaluated = f'count({FIRING}{{alertstate="firing",{",".join(matchers)}}})' if watched else "vector(1)"
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


def _say(queries: BoardBuilder, grave: str, words: str, expression: str, uid: str) -> str:
    """A row that is there where an expression has a value, which stands in its words; it leads to a dashboard with everything chosen."""
    said = f'count_values("what", {expression})'
    for label, text in (("what", words.replace("{}", "$1")), ("grave", grave), ("order", "9"), ("board", uid)):
        of = '"what", "(.*)"' if label == "what" else '"", ""'
        said = f'label_replace({said}, "{label}", "{text}", {of})'
    return choose_by(f"{said} * {NO_TIME}", (*queries.settings.identity_labels, *_CHOICES))
