"""What a recording rule and an alert are, their groups, and who evaluates them. Frozen; nothing here knows YAML or a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_alerts.promql_tree import strip_comments
from llm_serving_exporter.catalogue.spec import Formerly

# --- What a recording rule and an alert are, and the groups that they stand in. Frozen; nothing here knows YAML or a file.

ALERT_PREFIX = "LLMServing"
GROUP_PREFIX = "llm-serving."
# level:metric:operations (prometheus.io/docs/practices/rules)
_RECORD = re.compile(
    r"(scrape|gpu|engine|target|replica|model|model_gpu|model_node|node|job|workload|kube|exporter|fleet):llm_serving_[a-z0-9_]+:[a-z0-9_]+\Z"
)


class Severity(StrEnum):
    """Who is notified: critical pages, warning is a ticket, info is context and notifies nobody, none is for the watchdog."""

    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"
    NONE = "none"


# from the quietest on
LOUDNESS = (Severity.NONE, Severity.INFO, Severity.WARNING, Severity.CRITICAL)


class Check(StrEnum):
    """What an alert belongs to: the five operational checks, the other objectives, and what all of them rest on."""

    PHASES = "phases"
    TTFT = "ttft"
    KV = "kv"
    TAIL = "tail"
    NODE_LOSS = "node_loss"
    SLO = "slo"
    COST = "cost"
    GPU = "gpu"
    EXPORTER = "exporter"

    @property
    def dashboard(self) -> str:
        """The uid of the dashboard that shows it."""
        shown_with = {Check.TTFT: "latency", Check.SLO: "latency", Check.TAIL: "kv"}
        return f"llm-serving-{shown_with.get(self, self.value).replace('_', '-')}"


@dataclass(frozen=True, slots=True)
class Record:
    """A recording rule. Raises ValueError for a name that is not level:llm_serving_metric:operations."""

    record: str  # its name, level:metric:operations
    expr: str  # PromQL on one line; what is given may have comments
    about: str = ""  # what it is, for the reference
    labels: Mapping[str, str] = field(default_factory=dict)  # set on its results
    formerly: Formerly | None = None  # its name before a rename, under which it is recorded too for one minor version
    explained: str = field(init=False, compare=False)  # the expression as it was given, with its comments

    def __post_init__(self) -> None:
        _keep_words_apart(self)
        if not _RECORD.match(self.record):
            raise ValueError(f"{self.record!r} is not level:llm_serving_metric:operations")


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alert as it is rendered."""

    alert: str  # with the prefix
    expr: str  # PromQL on one line; what is given may have comments
    for_seconds: float  # how long the expression must hold
    labels: Mapping[str, str]  # severity, check and the user's
    annotations: Mapping[str, str]  # summary, description, action, where to read on
    explained: str = field(init=False, compare=False)  # the expression as it was given, with its comments

    def __post_init__(self) -> None:
        _keep_words_apart(self)


_WRITTEN = re.compile(r"([a-z_]+:\w+:\w+)(?:\{(.*?)\})?\s*=\s")


def write_records(text: str) -> tuple[Record, ...]:
    """Records out of a text, in which each is `## what it is` and below it `name{its="labels"} = PromQL`, over as many lines as it needs.

    Raises ValueError for a record that is not written like that.
    """
    records = []
    for part in text.split("## ")[1:]:
        about, _, rule = part.partition("\n")
        written = _WRITTEN.match(rule.strip())
        if written is None:
            raise ValueError(f"no record below {about!r}")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', written[2] or ""))
        records.append(Record(written[1], rule.strip()[written.end() :], about, labels))
    return tuple(records)


def _keep_words_apart(rule: Record | AlertRule) -> None:
    object.__setattr__(rule, "explained", rule.expr)
    if "#" in rule.expr or "\n" in rule.expr:
        object.__setattr__(rule, "expr", strip_comments(rule.expr))


# of groups that panels, estimates and slow alerts read: their histograms and joins are most of what an evaluation costs, and they change
# little from one scrape to the next
MINUTELY_SECONDS = 60.0
# Mimir's default limit of a group (ruler_max_rules_per_rule_group)
MOST_RULES = 20


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that are evaluated together and in order. Raises ValueError for more rules than every ruler takes."""

    name: str  # llm-serving.something
    rules: tuple[
        Record | AlertRule, ...
    ]  # in order of evaluation; records that were renamed get their former names here
    interval_seconds: float | None = None  # between two evaluations, in the fleet's time; None: the server's own
    keys: Mapping[str, str] = field(default_factory=dict)  # further ones, that not every ruler knows

    def __post_init__(self) -> None:
        object.__setattr__(self, "rules", tuple(_with_former_names(self.rules)))
        if len(self.rules) > MOST_RULES:
            raise ValueError(f"group {self.name} has {len(self.rules)} rules, more than {MOST_RULES}")


def _with_former_names(rules: Iterable[Record | AlertRule]) -> Iterator[Record | AlertRule]:
    """Behind each record that was renamed one under the former name, which is evaluated after it and so has the same samples."""
    given = tuple(rules)
    names = {rule.record for rule in given if isinstance(rule, Record)}
    for rule in given:
        yield rule
        if isinstance(rule, Record) and rule.formerly is not None and rule.formerly.name not in names:
            yield Record(rule.formerly.name, rule.record, f"{rule.formerly.describe(rule.record)} {rule.about}")


# --- Who evaluates the rules, and what each may be given: a row each. What is rendered fires equally on all of them.


@dataclass(frozen=True, slots=True)
class Ruler:
    """What a program that evaluates rules takes beyond what all of them take."""

    name: str  # of the option --dialect
    about: str  # programs and versions, for --help and docs/rules.md
    # the group's key by which queries look at a moment that has passed; None = selectors get an offset each
    delay_key: str | None = None
    # whether a range leaves out the moment that it begins with, on every version that is meant
    ranges_are_left_open: bool = False


# accepted by promtool 2.42 and 3.15 and by vmalert 1.79, and tested on all three
PORTABLE = Ruler("portable", "Prometheus 2.42 and newer, its operator, Mimir, Thanos Ruler, vmalert 1.79 and newer")
RULERS = (
    PORTABLE,
    Ruler("prometheus-3", "Prometheus 3, and its operator with that", "query_offset", ranges_are_left_open=True),
    # it took the key from Prometheus in June 2024 (grafana/mimir#8295); its engine became Prometheus 3's later on
    Ruler("mimir", "Mimir 2.14 and newer", "query_offset"),
    # its rule files have a reader of their own, and a query may go to Prometheus of any version
    Ruler("thanos", "Thanos Ruler"),
    # it refuses groups with keys that came later, eval_delay among them
    Ruler("vmalert-1.79", "vmalert 1.79 and newer with VictoriaMetrics"),
)
BY_NAME = {ruler.name: ruler for ruler in RULERS}
