"""PromQL in pieces: names checked against the catalogue, ranges, groupings with the user's identity labels."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import Kind
from llm_serving_exporter.clients.stored_labels import take_exported
from llm_serving_exporter.settings.kinds import format_duration

# levels: the labels that a recorded series keeps beside the user's identity labels
ENGINE = ("target", "model_name", "engine", "role")
TARGET = ("target", "model_name", "role")
MODEL = ("model_name", "role")
REPLICA = ("model_name", "role", "replica_name")
MODEL_GPU = ("model_name", "role", "gpu_name")
# what lasts while pods come and go
WORKLOAD = ("model_name", "role", "runtime", "workload")
FLEET: tuple[str, ...] = ()

# records with the identity of what series are about, by the names that those carry: see records/identity.py
TARGETS = "target:llm_serving_identity:info"
SCRAPES = "scrape:llm_serving_replaced_labels:info"
OWNERS = "target:llm_serving_owner:info"
NODES = "target:llm_serving_node:info"
GPUS = "gpu:llm_serving_gpu:info"
# before the name of a label that a scrape has put its own in the place of
REPLACED = "replaced_"
_SET_OPERATOR = re.compile(r"\s(and|or|unless)\s")
# whose result depends on how many moments there are
_OF_EACH_MOMENT = ("sum_over_time", "count_over_time", "avg_over_time")

# seconds of what ranges are made of
MINUTE, HOUR, DAY = 60.0, 3600.0, 86_400.0
WEEK = 7 * DAY


def series(name: str, matchers: str = "", **equal: str) -> str:
    """A selector of one of our series: `series("requests_running", role="decode")`.

    `name` as in the catalogue; `matchers` as PromQL has them, beside equal ones.

    Raises KeyError where the catalogue has no such metric, ValueError where it is a histogram, which has no series of that name.
    """
    metric = BY_NAME[name]
    if metric.kind is Kind.HISTOGRAM:
        raise ValueError(f"{name} is a histogram: ask for its buckets")
    return _select(
        metric.full_name,
        ",".join([*(f'{label}="{value}"' for label, value in equal.items()), *([matchers] if matchers else [])]),
    )


def one_of(label: str, values: Iterable[str], *, negated: bool = False) -> str:
    """A matcher for any of several values, or for none of them."""
    return f'{label}{"!~" if negated else "=~"}"{"|".join(values)}"'


def buckets(name: str, matchers: str = "") -> str:
    """A selector of a histogram's cumulative buckets. The bucket `+Inf` is its count, also of engines whose histogram has no `_count`."""
    metric = BY_NAME[name]
    if metric.kind is not Kind.HISTOGRAM:
        raise ValueError(f"{name} is no histogram")
    return _select(f"{metric.full_name}_bucket", matchers)


def sums(name: str) -> str:
    """A selector of a histogram's sum."""
    metric = BY_NAME[name]
    if metric.kind is not Kind.HISTOGRAM:
        raise ValueError(f"{name} is no histogram")
    return f"{metric.full_name}_sum"


def clauses(*parts: tuple[str, str]) -> str:
    """An expression clause by clause, each a word of why and its PromQL, from the second on with the operator that it begins with:
    `clauses(("full", "usage > 0.95"), ("and requests wait", "and on (target) waiting > 0"))`.

    The words become comments above their clauses; they reach rule files, runbooks and docs/alerts.md. Clauses may stand within clauses.
    """
    return "\n".join(f"# {' '.join(why.split())}\n{promql}" for why, promql in parts)


def _select(name: str, matchers: str) -> str:
    return f"{name}{{{matchers}}}" if matchers else name


@lru_cache(maxsize=1024)
def seconds_text(seconds: float) -> str:
    """A duration as PromQL takes it and settings write it: "5m", "1h30m", "28d", "500ms". Below a millisecond there is none: it is rounded
    up to one."""
    milliseconds = max(1, round(seconds * 1000))
    # PromQL knows no fraction ("1.5s"), which format_duration writes
    whole, fraction = divmod(milliseconds, 1000)
    # records are named by it: a period of 28d shall not be called 4w
    days, rest = divmod(whole, round(DAY))
    parts = (
        f"{days}d" if days else "",
        format_duration(float(rest)) if rest else "",
        f"{fraction}ms" if fraction else "",
    )
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class Dialect:
    """How expressions are written."""

    # identity labels on every series of a scrape or a Prometheus (cluster): with them a target's name is one of its kind
    external: tuple[str, ...] = ()
    own: tuple[str, ...] = ()  # identity labels that targets have of their own (namespace, team), one value each
    # divides ranges and rates, so that a fleet simulated this much faster than time yields its own numbers
    time_scale: float = 1.0
    # whether the first moment of a range is left out, as since Prometheus 3; False: written so that it does not matter
    ranges_are_left_open: bool = False
    owners: str = (
        OWNERS  # the record that targets' own labels are taken from; narrowed by those who ask for some of them
    )

    @property
    def identity(self) -> tuple[str, ...]:
        """Labels that tell fleets apart, on every record and alert about a target or a model."""
        return (*self.external, *self.own)

    def identity_of(self, level: Iterable[str]) -> tuple[str, ...]:
        """The user's labels on records and alerts of a level: a GPU, an exporter and the whole fleet belong to no namespace or team."""
        about = {*level}
        return self.identity if about & {"target", "model_name"} else self.external

    def labels(self, *level: str) -> str:
        """The labels of a record's level, behind those of the user: for by (…) and on (…)."""
        return ", ".join(dict.fromkeys((*self.identity_of(level), *level)))

    def key(self, *level: str) -> str:
        """The same of scraped series, on which a target's own labels may be renamed or missing: its name says which it is."""
        return ", ".join((*self.external, *level))

    def with_own(self, expression: str) -> str:
        """Series by target with the identity labels that the target has of its own, whatever the scrape has made of them."""
        if not self.own:
            return expression
        operand = f"({expression})" if _SET_OPERATOR.search(expression) else expression
        return f"({operand} * on ({self.key('target')}) group_left ({', '.join(self.own)}) {self.owners})"

    def duration(self, seconds: float) -> str:
        """A range, offset or subquery step."""
        return seconds_text(seconds / self.time_scale)

    def length(self, seconds: float) -> str:
        """Seconds as a number, for comparisons with differences of times."""
        return f"{seconds / self.time_scale:g}"

    def one(self, expression: str, *level: str) -> str:
        """One value per identity: what duplicate scrapes and pairs of servers repeat counts once."""
        if "target" in level:
            return self.with_own(self.bare(expression, *level))
        return f"max by ({self.labels(*level)}) ({expression})"

    def bare(self, expression: str, *level: str) -> str:
        """The same without what the target has of its own: enough where it is matched by the target's name."""
        return f"max by ({self.key(*level)}) ({expression})"

    def by_gpu(self, expression: str, *extra: str, gpus: str = "") -> str:
        """One value per GPU with its name and node. `gpus`: the record that has them, by default of those that are there."""
        joined = f"on ({self.key('gpu')}) group_left (gpu_name, node) {gpus or GPUS}"
        return f"{self.bare(expression, 'gpu', *extra)} * {joined}"

    def written(self, expression: str, *labels: str) -> str:
        """The series with these labels as the exporter wrote them. Where a scrape puts its own in their place, ours is the renamed one, and
        there is none where we wrote none."""
        who = self.key("job", "instance")
        replaced = ", ".join(f"{REPLACED}{name}" for name in labels)
        ours = f"({expression} * on ({who}) group_left ({replaced}) {SCRAPES} or on ({who}) {expression})"
        for name in labels:
            ours = f'label_replace({ours}, "{name}", "", "{REPLACED}{name}", "1")'
        return take_exported(ours, *labels)

    def stated(self, expression: str) -> str:
        """Series about a model that carry its identity labels themselves (expected replicas, drills), with those as they were written."""
        return self.written(expression, *self.own) if self.own else expression

    def rate(self, selector: str, seconds: float) -> str:
        """Increase per (simulated) second."""
        rate = f"rate({selector}[{self.duration(seconds)}])"
        return rate if self.time_scale == 1 else f"({rate} / {self.time_scale:g})"

    def increase(self, selector: str, seconds: float) -> str:
        """Increase over a range."""
        return f"increase({selector}[{self.duration(seconds)}])"

    def apply_over_time(self, function: str, expression: str, seconds: float, step_seconds: float | None = None) -> str:
        """`max_over_time(x[1h])` and its like; with a step over a subquery, which an expression that is no selector needs.

        A subquery looks at whole multiples of its step. Prometheus 2 takes the moment with which a range begins too, 3 and VictoriaMetrics
        do not: at a full hour a day's sum had 25 hours. A millisecond less, the finest that there is, makes the same moments of both.
        """
        span = self.duration(seconds)
        if step_seconds is None:
            return f"{function}({expression}[{span}])"
        if function in _OF_EACH_MOMENT and not self.ranges_are_left_open:
            span = seconds_text(seconds / self.time_scale - 0.001)
        return f"{function}({expression}[{span}:{self.duration(step_seconds)}])"

    def half(self, condition: str, seconds: float) -> str:
        """Where a condition (1 or 0 a series) held in half of the moments of twice so many seconds: as long as an alert's `for` where it
        holds all the time, and found too where it comes and goes. It ends so many seconds after the last of it, or sooner.

        A moment without the series counts as one without the condition: of what vanishes in between, a mean would know only when it held.
        """
        moments = max(1, int(2 * seconds // MINUTE))
        held = self.apply_over_time("sum_over_time", condition, moments * MINUTE, MINUTE)
        return f"{held} >= {moments / 2:g}"

    def offset(self, selector: str, seconds: float) -> str:
        """The selector as it was so long ago."""
        return f"{selector} offset {self.duration(seconds)}"

    def age(self, expression: str) -> str:
        """Seconds of real time since a timestamp; compare with `length`."""
        return f"(time() - {expression})"
