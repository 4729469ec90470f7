"""PromQL for panels: series that the catalogue or the rules define, narrowed to what the viewer chose."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from llm_serving_alerts.promql import GPUS, OWNERS, Dialect, series
from llm_serving_alerts.promql_tree import Call, Leaf, Node, add_matcher, change_selectors, parse, write_flat
from llm_serving_alerts.records.history import ALIVE
from llm_serving_alerts.records.targets import DOWN
from llm_serving_alerts.reference import record_labels
from llm_serving_alerts.render import RECORDS, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings import Settings
from llm_serving_dashboards.panels import Worst
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import GPU_LABELS, PREFIX

# Grafana's own: at least four scrapes, and at least what a pixel covers
RATE = "$__rate_interval"
# a series for each engine that is read
_ENGINES = "engine:llm_serving_requests_running:max"
# levels of records that no target's own labels stand on
_WITHOUT_OWN = ("fleet", "gpu", "node")
# a label that no series has: any series matches `.*`, and none of them NOBODY, of which Prometheus reads not one
NOTHING = "nothing"
ANYBODY, NOBODY = ".*", "nobody"
_SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class HiddenVariable:
    """A variable of Grafana that nobody sees: queries or legends read it, and Grafana asks again whenever the choice or the time range changes."""

    name: str  # as queries and legends call it
    query: str  # PromQL
    label: str  # of its series, whose values are the variable's
    several: bool = False  # True: all of the values, as a pattern; False: the one that there is


def list_record_labels(settings: Settings) -> dict[str, tuple[str, ...]]:
    """The labels of every recorded series by its name, without the identity labels. The settings' windows decide which series there are."""
    identity = settings.identity_labels
    # a delay changes at which moment series are looked at, and not their labels
    labels = record_labels(rule_groups(replace(settings, evaluation_delay_seconds=0.0))[RECORDS])
    return {name: tuple(label for label in of_record if label not in identity) for name, of_record in labels.items()}


def list_record_seconds(settings: Settings) -> dict[str, float]:
    """How often each record is evaluated, in seconds; those that a ruler evaluates at its own interval are not there."""
    return {
        rule.record: group.interval_seconds
        for group in rule_groups(settings)[RECORDS]
        if group.interval_seconds is not None
        for rule in group.rules
        if isinstance(rule, Record)
    }


class QueryBuilder:
    """Builds the queries of one dashboard.

    `variables`: labels that its viewers choose by; a selector matches each of them that its series has under its own name.
    `records`: the result of `list_record_labels`.
    """

    def __init__(
        self,
        settings: Settings,
        variables: tuple[str, ...],
        records: Mapping[str, tuple[str, ...]],
        hidden: dict[str, HiddenVariable] | None = None,
    ) -> None:
        self.settings = settings
        self._records = records
        self.variables = variables
        # by their names, those that the queries read that were built so far
        self.hidden: dict[str, HiddenVariable] = {} if hidden is None else hidden
        external, own = settings.external_labels, settings.own_labels
        owners = f"{OWNERS}{{{_write_choices((*external, *own))}}}" if own else OWNERS
        self.dialect = Dialect(external, own, owners=owners)

    def drop_choice(self, variable: str) -> Self:
        """The same for everything that the viewer chose but for one variable."""
        left = tuple(label for label in self.variables if label != variable)
        return type(self)(self.settings, left, self._records, self.hidden)

    def select(self, name: str, matchers: str = "", **equal: str) -> str:
        """The series of a name. A recorded series has its whole name, an exported one its name in the catalogue.

        Raises KeyError for a series that neither the exporter nor the rules make.
        """
        scraped = self.select_scraped(name, matchers, **equal)
        labels = () if ":" in name else BY_NAME[name].labels
        if "target" in labels:
            return self.keep_models(name, self.dialect.with_own(scraped))
        return self._keep_chosen(scraped) if "model_name" in labels else self.keep_models(name, scraped)

    def keep_models(self, name: str, expression: str) -> str:
        """An expression over series of a name, of the targets of the chosen models and roles where these series do not say which those are."""
        labels = self._records[name] if ":" in name else BY_NAME[name].labels
        if not {"target", "model_name"} <= {*self.variables} or "target" not in labels:
            return expression
        unsaid = [label for label in ("model_name", "role") if label in self.variables and label not in labels]
        if not unsaid:
            return expression
        chosen = _write_choices((*self.settings.external_labels, *unsaid, "target"))
        return f"({expression} and on ({self.dialect.key('target')}) {series('target_info', chosen)})"

    def select_scraped(self, name: str, matchers: str = "", **equal: str) -> str:
        """A selector of the same as Prometheus has stored it, for ranges: without what targets have of their own."""
        narrowed = self._write_matchers(name, matchers)
        if ":" not in name:
            return series(name, narrowed, **equal)
        matched = ",".join(
            [*(f'{label}="{value}"' for label, value in equal.items()), *([narrowed] if narrowed else [])]
        )
        return f"{name}{{{matched}}}" if matched else name

    def select_one(self, name: str, *level: str, matchers: str = "", holds: str = "", **equal: str) -> str:
        """An exported series with one value for each set of these labels: a pair of exporters or a double scrape counts once. `holds`: a comparison;
        what it leaves out is not grouped."""
        scraped = " ".join(filter(None, (self.select_scraped(name, matchers, **equal), holds)))
        if set(GPU_LABELS) <= {*BY_NAME[name].labels}:
            extra = (label for label in level if label not in GPU_LABELS)
            return self.select_gpus(scraped, *extra)
        if "target" in level:
            return self.dialect.one(self.keep_models(name, scraped), *level)
        return self.dialect.one(" ".join(filter(None, (self.select(name, matchers, **equal), holds))), *level)

    def select_gpus(self, expression: str, *extra: str) -> str:
        """An expression over series of GPUs with one value for each of those that the viewer chose, with their names and nodes."""
        return self.dialect.by_gpu(expression, *extra, gpus=self.select(GPUS))

    def name_models(self, expression: str) -> str:
        """An expression by target with the target's model and role, of what the viewer chose."""
        one = f"topk by ({self.dialect.labels('target')}) (1, {self.select(DOWN)})"
        return f"({expression}) + {self.match_on('target')} group_left (model_name, role) {one} * 0"

    def aggregate(self, operator: str, expression: str, *level: str) -> str:
        """`operator by (…) (expression)` over these labels and the identity labels."""
        return f"{operator} by ({self.dialect.labels(*level)}) ({expression})"

    def match_on(self, *level: str) -> str:
        """`on (…)` with these labels and the identity labels."""
        return f"on ({self.dialect.labels(*level)})"

    def select_alerts(self, name: str, *matchers: str) -> str:
        """Series of alerts of the chosen scrapes, under `ALERTS` or `ALERTS_FOR_STATE`; one that lacks a label of the scrape is of all."""
        chosen = (f'{label}=~"${label}|"' for label in self.settings.external_labels)
        return f"{name}{{{','.join((*matchers, *chosen))}}}"

    def for_board(self, variables: tuple[str, ...]) -> Self:
        """The builder of another dashboard, whose viewers choose by these labels."""
        return type(self)(self.settings, variables, self._records)

    def count_chosen(self, label: str, *more: str) -> str:
        """How many values of a label, and of more beside it, there are in what the viewer chose."""
        record = GPUS if label in GPU_LABELS else _ENGINES if label == "engine" else DOWN
        if label == "model_name" and "target" not in self.variables:
            # a series a model, where no replica is chosen
            record = ALIVE
        return f"count(count by ({', '.join((*more, label))}) ({self.select(record)}))"

    def hide_above(self, most: int, label: str, expression: str) -> str:
        """An expression that reads no series while more than so many values of a label are chosen, those of each identity counted. It reads
        them where nothing is known."""
        return self.hide_while(f"up_to_{most}_{label}", f"{self._count_all(label)} > {most}", expression)

    def hide_below(self, least: int, label: str, expression: str) -> str:
        """An expression that reads series only while at least so many values of a label are chosen."""
        counted = f"{self._count_all(label)} >= {least}"
        return self._show(f"from_{least}_{label}", counted, ANYBODY, NOBODY, expression)

    def hide_while(self, name: str, condition: str, expression: str) -> str:
        """An expression that reads no series while a condition has one. `name`: of the condition on this dashboard."""
        return self._show(name, condition, NOBODY, ANYBODY, expression)

    def find_worst(self, expression: str, worst: Worst, most: int, label: str) -> str:
        """An expression of those few alone, by the label that names them, whose mean over the time range is the lowest or highest: one question at
        its end chooses the same ones for each point of a graph."""
        best_of, chosen = ("max", "topk") if worst is Worst.HIGHEST else ("min", "bottomk")
        query = f"{chosen}({most}, {best_of} by ({label}) ({_average(expression)}))"
        # two of the same name are the same question
        return self.narrow(f"worst_{zlib.crc32(query.encode()):08x}", query, label, expression)

    def narrow(self, name: str, query: str, label: str, expression: str) -> str:
        """An expression of those alone that another query names by a label, asked once at the end of the time range. `name`: of these on this
        dashboard."""
        self.hidden[name] = HiddenVariable(name, query, label, several=True)
        return add_matcher(expression, f'{label}=~"${name}"', lambda series: label in self._list_labels(series))

    def _list_labels(self, series: str) -> tuple[str, ...]:
        """Those of a series by its whole name, without identity labels."""
        if ":" in series:
            return self._records[series]
        exported = series.removeprefix(PREFIX)
        return (BY_NAME.get(exported) or BY_NAME[exported.removesuffix("_bucket")]).labels

    def _show(self, name: str, condition: str, while_: str, else_: str, expression: str) -> str:
        query = (
            f'label_replace({condition}, "{_SHOWN}", "{while_}", "", "")'
            f' or on () label_replace(vector(0), "{_SHOWN}", "{else_}", "", "")'
        )
        self.hidden[name] = HiddenVariable(name, query, _SHOWN)
        return add_matcher(expression, f'{NOTHING}=~"${name}"')

    def _count_all(self, label: str) -> str:
        return self.count_chosen(label, *self.dialect.identity_of((label,)))

    def list_choices(self, variable: str) -> str:
        """Grafana's query for a variable's values, narrowed by the variables before it. Its series stay when targets are down."""
        before = [*self.settings.identity_labels, *self.variables]
        about_gpus, own = variable in GPU_LABELS, self.settings.own_labels
        narrowing = _write_choices(
            label for label in before[: before.index(variable)] if not (about_gpus and label in own)
        )
        if about_gpus or (own and variable not in self.settings.external_labels):
            record = GPUS if about_gpus else DOWN
            return (
                f"label_values({record}{{{narrowing}}}, {variable})"
                if narrowing
                else f"label_values({record}, {variable})"
            )
        return f"label_values({series('target_info', narrowing)}, {variable})"

    def select_models_without_decode(self) -> str:
        """Models of the chosen identities that have finished requests and have never generated a token."""
        chosen = _write_choices(self.settings.external_labels)
        finished, decoded = (
            self.aggregate("sum", self.dialect.with_own(series(name, chosen)), "model_name")
            for name in ("requests_finished_total", "decode_tokens_total")
        )
        return f"{finished} > 0 unless {self.match_on('model_name')} {decoded} > 0"

    def _keep_chosen(self, scraped: str) -> str:
        """Series about a model, which state its identity themselves, of the chosen identities."""
        if not self.settings.own_labels:
            return scraped
        return f"({self.dialect.stated(scraped)} and on ({', '.join(self.dialect.identity)}) {self.dialect.owners})"

    def _write_matchers(self, name: str, matchers: str = "") -> str:
        if ":" in name:
            level = name.partition(":")[0]
            labels = self._records[name]
            identity = self.settings.external_labels if level in _WITHOUT_OWN else self.settings.identity_labels
        else:
            # by the names and nodes of GPUs the record of GPUs is narrowed
            labels = tuple(label for label in BY_NAME[name].labels if label not in ("node", "gpu_name"))
            identity = self.settings.external_labels
        chosen = _write_choices([*identity, *(label for label in self.variables if label in labels)])
        return ",".join(filter(None, (matchers, chosen)))


def _write_choices(labels: Iterable[str]) -> str:
    """Matchers for what the viewer chose."""
    return ",".join(f'{label}=~"${label}"' for label in labels)


def _average(expression: str) -> str:
    """An expression whose every operand is its mean over the time range, and each rate the whole range's."""

    def widen(leaf: Leaf) -> Node:
        if leaf.suffix.startswith("["):
            return Leaf(leaf.text, f"[$__range]{leaf.suffix.partition(']')[2]}", True)
        return Call("avg_over_time", (Leaf(leaf.text, f"[$__range]{leaf.suffix}", True),))

    return write_flat(change_selectors(parse(expression), widen))
