"""The matrix of the home dashboard: a row a model, a column a check, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.alerting.verdicts import GOOD, PAGE, REST, TICKET, VERDICT
from llm_serving_alerts.external import FIRING
from llm_serving_alerts.promql import MODEL
from llm_serving_alerts.records.history import ALIVE
from llm_serving_alerts.records.presence import LOST_REPLICAS
from llm_serving_alerts.records.targets import DOWN, WANTED_NOW
from llm_serving_alerts.render import RECORDS, rule_groups
from llm_serving_alerts.rules import ALERT_PREFIX, Check, Record, Severity
from llm_serving_dashboards import cost, latency, node_loss, phases
from llm_serving_dashboards.limiter import LIMITER_WORDS, find_limiter
from llm_serving_dashboards.panels import Board, Column, Link, Panel, Query, Unit, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import ABSENT, DEAD, UNKNOWN, VERDICTS, warn_above

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


def make_matrix(queries: QueryBuilder, height: int) -> Panel:
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
        tuple(Query(expression, instant=True, table=True) for expression in asked),
        Unit.NONE,
        24,
        height,
        columns=(
            *(Column(name, name, width=90) for name in queries.settings.identity_labels),
            Column(_NAME, "model", link=boards.link(phases, None), least_width=200),
            *numbered,
            *(Column(name, name, hidden=True) for name in (*MODEL, *(f"{CHOSEN}{name}" for name in queries.settings.identity_labels))),
            *(Column(name, name, hidden=True) for check in judged for name in (f"{check}_board", *(f"{check}_{one}" for one in list_choices(check)))),
        ),
        mappings=(replace(ABSENT, colour="text"),),
        sorted_by=0,
        may_be_empty="no model is known: the rules are not loaded, or no exporter is scraped",
    )  # fmt: skip


def list_judged(queries: QueryBuilder) -> tuple[Check, ...]:
    """The checks that have a verdict: those whose alerts are not all off."""
    groups = rule_groups(queries.settings)[RECORDS]
    found = {
        rule.labels["check"]
        for group in groups
        for rule in group.rules
        if isinstance(rule, Record) and rule.record == VERDICT
    }
    return tuple(check for check in TITLES if check.value in found)


def list_choices(check: Check) -> tuple[str, ...]:
    """What the dashboards that show this check's alerts can be narrowed to beside a model and role."""
    choices = (name for one in ALERTS if one.check is check for name in one.choices)
    return tuple(dict.fromkeys(name for name in choices if name not in MODEL))


def find_rows(queries: QueryBuilder) -> str:
    """PromQL of every model and role that is known, or that an alert is about."""
    return " or ".join(queries.aggregate("max", queries.select(record), *MODEL) for record in (VERDICT, ALIVE))


class _Boards:
    """Links to panels of the other dashboards, with the model of the row."""

    def __init__(self, queries: QueryBuilder) -> None:
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


def _weigh(queries: QueryBuilder, checks: int) -> str:
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


def _judge(queries: QueryBuilder, check: Check) -> str:
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
    found = f'label_replace({led}, "{check}_board", "{check.dashboard}", "", "")'
    boards = {one.shown.uid for one in ALERTS if one.check is check} - {check.dashboard}
    for board in sorted(boards):
        names = "|".join(f"{ALERT_PREFIX}{one.name}" for one in ALERTS if one.check is check and one.shown.uid == board)
        found = f'label_replace({found}, "{check}_board", "{board}", "alertname", "{names}")'
    for name in list_choices(check):
        found = f'label_replace({found}, "{check}_{name}", "{ALL}", "", "")'
        found = f'label_replace({found}, "{check}_{name}", "$1", "{name}", "(.+)")'
    kept_labels = (f"{check}_board", *(f"{check}_{name}" for name in list_choices(check)))
    return queries.aggregate("max", found, *MODEL, *kept_labels)


def _list_parts(check: Check) -> set[str]:
    """What a check's alerts are about that say no model: a target or a card, of which others say whose it is."""
    return {name for one in ALERTS if one.check is check and "role" not in one.identity for name in one.identity}


def _select_alerts(queries: QueryBuilder, check: Check, *matchers: str) -> str:
    """Alerts of a check that fire, with how grave each is."""
    chosen = (f'{label}=~"${label}|"' for label in queries.settings.identity_labels)
    of_check = ",".join(('alertstate="firing"', f'check="{check}"', *matchers, *chosen))
    page, ticket = (f'{FIRING.name}{{{of_check},severity="{one}"}}' for one in (Severity.CRITICAL, Severity.WARNING))
    return f"({PAGE} * {page} or {ticket})"


def _list_alerts(queries: QueryBuilder, check: Check) -> Iterator[str]:
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


def _list_rest(queries: QueryBuilder, check: Check) -> Iterator[str]:
    """Alerts that belong to no model."""
    about, of_none = _list_parts(check), _select_alerts(queries, check, NO_ROLE, NO_TARGET)
    yield f"({of_none} unless on ({queries.dialect.key('gpu')}) {_find_claims(queries)})" if "gpu" in about else of_none
    if "target" in about:
        of_target = _select_alerts(queries, check, NO_ROLE, OF_TARGET)
        yield f"({of_target} unless on ({queries.dialect.key('target')}) {queries.select(DOWN)})"


def _find_claims(queries: QueryBuilder) -> str:
    return queries.dialect.bare(queries.select("gpu_target_info"), "gpu", "target")


def _fill(queries: QueryBuilder, expression: str) -> str:
    """An expression with a row for every model, so that a model keeps its row where the figure is absent."""
    return f"{expression} or {queries.match_on(*MODEL)} ({find_rows(queries)}) * NaN"


def _find_lost(queries: QueryBuilder, replicas: str) -> str:
    """Replicas of each row, and behind them the lost nodes that had some of them."""
    lost, on = f"({queries.select(LOST_REPLICAS)} > 0)", queries.match_on(*MODEL)
    by = queries.dialect.labels(*MODEL)
    first = f'label_replace(topk by ({by}) (1, {lost}), "{_LOST}", "lost: $1", "node", "(.+)")'
    several = (
        f'label_replace({first} and {on} count by ({by}) ({lost}) > 1, "{_LOST}", "$1 and others", "{_LOST}", "(.+)")'
    )
    joined = f"({replicas}) * {on} group_left ({_LOST}) (({several} or {on} {first}) * 0 + 1)"
    return f'label_join({joined}, "{_REPLICAS}", ", ", "{_REPLICAS}", "{_LOST}") or {on} ({replicas})'


def _describe(queries: QueryBuilder, boards: _Boards) -> list[tuple[str, Column]]:
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
        (find_limiter(queries), Column(0, "limited by", mappings=(*LIMITER_WORDS, ABSENT), link=boards.link(phases, "Limiter"), width=140, coloured=False)),
        *(
            (queries.aggregate("max", queries.select(record, **of_it), *MODEL), Column(0, title, unit, steps, None, (), boards.link(*where), width=88))
            for record, of_it, title, unit, steps, where in figures
        ),
        (_find_lost(queries, f"{of} or {alone}"), Column(_REPLICAS, "ready", link=boards.link(node_loss, None), width=230)),
    ]  # fmt: skip
