"""The matrix of the home dashboard: a row a model, a column a check, the worst first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import ModuleType

from llm_serving_alerts.alerting.verdicts import GOOD, PAGE, REST, TICKET, VERDICT
from llm_serving_alerts.promql import MODEL
from llm_serving_alerts.records.targets import DOWN, WANTED_NOW
from llm_serving_alerts.render import RECORDS, rule_groups
from llm_serving_alerts.rules import Check, Record
from llm_serving_dashboards import cost, exporter, gpu, kv, latency, node_loss, phases
from llm_serving_dashboards.limiter import LIMITER_WORDS, find_limiter
from llm_serving_dashboards.panels import Board, Column, Link, Panel, Query, Unit, Visualization
from llm_serving_dashboards.queries import QueryBuilder
from llm_serving_dashboards.shared_panels import ABSENT, DEAD, UNKNOWN, VERDICTS, warn_above

# of a check: its heading, its dashboard, and the panel there that shows why
CHECKS: Mapping[Check, tuple[str, ModuleType, str]] = {
    Check.PHASES: ("phases", phases, "Work per replica with a queue, against the baseline"),
    Check.TTFT: ("TTFT", latency, "ttft burn rate"),
    Check.KV: ("KV", kv, "KV cache usage"),
    Check.TAIL: ("tail", kv, "Long requests that fit"),
    Check.NODE_LOSS: ("node loss", node_loss, "Load without the largest node, by resource"),
    Check.SLO: ("SLOs", latency, "errors burn rate"),
    Check.GPU: ("GPUs", gpu, "GPUs"),
    Check.COST: ("cost", cost, "Cost against the baseline"),
    Check.EXPORTER: ("exporter", exporter, "Target states"),
}
# what Grafana takes for every value of a variable; PromQL reads the first dollar as one that is meant
ALL = "$$__all"
CHOSEN = "chosen_"
OF_NO_MODEL = "no model"
# weights of a row: one page outweighs any number of tickets, one ticket any number of unknown checks
_TICKET_WEIGHT, _PAGE_WEIGHT = 100, 10_000
# what is fine is darker than elsewhere, so that what is not stands out of it
_WORDS = (*(replace(one, colour="dark-green") if one.value == GOOD else one for one in VERDICTS), ABSENT)
_NAME, _REPLICAS = "name", "replicas"


def make_matrix(queries: QueryBuilder, height: int) -> Panel:
    """A row a model and role, and one of what belongs to no model while something of that is wrong."""
    boards = _Boards(queries)
    judged = list_judged(queries)
    shown: list[tuple[str, Column]] = []
    for check in judged:
        title, module, panel = CHECKS[check]
        link = boards.link(module, panel)
        shown.append((_judge(queries, check), Column(0, title, mappings=_WORDS, link=link, width=80)))
    shown += _describe(queries, boards)
    asked = [_weigh(queries, len(judged)), *(_fill(queries, expression) for expression, _ in shown)]
    numbered = [_number(column, number) for number, (_, column) in enumerate(shown, 1)]
    return Panel(
        "Models and checks",
        "A row a model, the worst first, and a column a check: the worst that its alerts say, a page, a ticket, or fine. Unknown: the series that the check "
        "needs are absent, or its alerts are not evaluated. A click leads to the panel that shows why. A dash: there is no such figure. The row "
        f'"{OF_NO_MODEL}" is there while something is wrong that belongs to no model.',
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
    return tuple(check for check in CHECKS if check.value in found)


def find_rows(queries: QueryBuilder) -> str:
    """PromQL of every model and role that is known, or that an alert is about."""
    return " or ".join(queries.aggregate("max", queries.select(record), *MODEL) for record in (VERDICT, DOWN))


class _Boards:
    """Links to panels of the other dashboards, with the model of the row."""

    def __init__(self, queries: QueryBuilder) -> None:
        self._queries = queries
        self._made: dict[ModuleType, Board] = {}

    def link(self, module: ModuleType, panel: str | None) -> Link:
        if module not in self._made:
            self._made[module] = module.build_board(self._queries.for_board(module.VARIABLES))
        board = self._made[module]
        fields = {name: f"{CHOSEN}{name}" for name in self._queries.settings.identity_labels}
        fields |= {name: name for name in MODEL if name in board.variables}
        chosen = tuple((name, f"${{__data.fields.{field}:percentencode}}") for name, field in fields.items())
        return Link(board.uid, chosen, None if panel is None else board.find_number(panel))


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
    """A check's verdict of each row; where none is recorded it is unknown, or no exporter is running."""
    on, by_all = queries.match_on(*MODEL), queries.dialect.labels()
    said = queries.aggregate("max", queries.select(VERDICT, check=check.value), *MODEL)
    else_ = f"scalar(max({UNKNOWN:g} * {queries.select('exporter_build_info')}) or vector({DEAD:g}))"
    wrong = f"{queries.select(REST)} > 0"
    rest = f"max by ({by_all}) ({queries.select(REST, check=check.value)}) and on ({by_all}) {wrong}"
    return f"{said} or {on} (({find_rows(queries)}) * 0 + {else_}) or {_name_rest(rest)}"


def _fill(queries: QueryBuilder, expression: str) -> str:
    """An expression with a row for every model, so that a model keeps its row where the figure is absent."""
    return f"{expression} or {queries.match_on(*MODEL)} ({find_rows(queries)}) * NaN"


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
        (f"{of} or {alone}", Column(_REPLICAS, "ready", link=boards.link(node_loss, "Replicas: desired, ready, required"), width=84)),
    ]  # fmt: skip
