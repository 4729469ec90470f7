"""What a user may set, as the rules get it: frozen, checked, times in seconds.

A field with `key(…)` declares a key of the settings file. Its default and its explanation are in settings.yml, which users copy.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime

from llm_serving_alerts.rules import LOUDNESS, Severity
from llm_serving_exporter.catalogue.spec import LABELS, PLACE_LABELS
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.keys import elements, key, keys_of, list_reader, mapping, read_complete, value
from llm_serving_exporter.settings.kinds import Kind, parse_duration
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, shown

# --- Kinds of values in the settings file of the rules.

# what was there must have been whole for half an hour of it; few stores have more than two months
_SHORTEST_MEMORY_SECONDS, _LONGEST_MEMORY_SECONDS = 3600.0, 60 * 86_400.0
# the rest may hold templates of Prometheus, with anything in them
_HTTP = re.compile(r"https?://[^/\s]")
RATIO = kinds.decimal("a ratio above 0, up to 1", 0.0, 1.0)
# of a share that can be 1: an alert that asks for more never fires
_WHOLE = 1.0


def _exceeded(text: str) -> float:
    ratio = RATIO.parse(text)
    if ratio == _WHOLE:
        raise InvalidValueError(
            f"nothing is more than {shown(text)} of the whole: the alert could never fire", "Write less, such as 0.99."
        )
    return ratio


EXCEEDED_RATIO = Kind(RATIO.expects, _exceeded)
NUMBER = kinds.decimal("a number above 0", 0.0, 1e12)
# a time that is not the range of a rule, or longer than any scrape interval
SPAN = kinds.DURATION
RANGE = Kind("a duration of four scrapes or more", kinds.DURATION.parse)
FOR = Kind("a duration such as 5m, or 0", parse_duration)

# beyond that a page comes later than its alert's own time
_LONGEST_DELAY_SECONDS = 600.0


def _moment(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValueError(f"{shown(text)} is not a time", "Write it as in 2026-01-31T08:00:00Z.") from None
    if moment.tzinfo is None:
        raise InvalidValueError(f"{shown(text)} has no time zone", "Add Z for UTC, as in 2026-01-31T08:00:00Z.")
    return moment.astimezone(UTC).timestamp()


def _memory(text: str) -> float:
    seconds = kinds.DURATION.parse(text)
    if not _SHORTEST_MEMORY_SECONDS <= seconds <= _LONGEST_MEMORY_SECONDS:
        raise InvalidValueError(f"{shown(text)} is not within 1h and 60d", "Write a duration such as 7d.")
    return seconds


def _delay(text: str) -> float:
    seconds = kinds.THRESHOLD.parse(text) or 0.0
    if seconds > _LONGEST_DELAY_SECONDS:
        fix = "Write 10m or less; every alert comes that much later."
        raise InvalidValueError(f"{shown(text)} is more than 10m", fix)
    return seconds


EVALUATION_DELAY = Kind("a duration such as 30s, or off", _delay)
MEMORY = Kind("a duration such as 7d", _memory)
LABEL_NAME = kinds.matching("a label's name", r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", "Write letters, digits and underscores.")
LABEL_VALUE = kinds.text("label value")
# it stands in a legend of Grafana
RECEIVER = kinds.matching(
    "the name of a receiver",
    r"(?a:[A-Za-z](?:[\w ./-]{0,98}[\w./-])?)",
    "Begin it with a letter, and write letters, digits, spaces and any of . _ / -.",
)
MOMENT = Kind("a time such as 2026-01-31T08:00:00Z", _moment)
_LONG_TEXT = kinds.text("URL", 2000)
# {alert}, but none of Prometheus' own, which have two braces
_PLACE = re.compile(r"(?<!\{)\{(\w+)\}(?!\})")
_PLACES = frozenset({"alert", "uid", "queries"})


def _url_template(text: str) -> str:
    url = _LONG_TEXT.parse(text)
    if not _HTTP.match(url):
        raise InvalidValueError(
            f"{shown(text)} is no URL", "Begin it with https:// or http://; null leaves the link away."
        )
    if unknown := [name for name in _PLACE.findall(url) if name not in _PLACES]:
        raise InvalidValueError(
            f"nothing fills in {shown(f'{{{unknown[0]}}}')}",
            "Write {alert} for the alert's name, {uid} for the dashboard's, {queries} for the runbook's queries.",
        )
    return url


def _queries_url(text: str) -> str:
    url = _url_template(text)
    if "{queries}" not in url:
        fix = "Write it as in https://prometheus.example.com/graph?{queries}."
        raise InvalidValueError(f"{shown(text)} has no place for queries", fix)
    return url


URL_TEMPLATE = Kind("a URL", _url_template, is_text=True)
QUERIES_URL = Kind("a URL with {queries}", _queries_url, is_text=True)
RUNTIME = kinds.choice("runtime", sorted(RUNTIMES))
SEVERITY = kinds.member("severity", [severity for severity in Severity if severity is not Severity.NONE])


# --- Which labels may tell fleets apart, and where each of them stands: on every series of a scrape, or on the targets themselves.

# where nobody says otherwise: what a Prometheus or an agent that serves one cluster puts on all that it sends
EXTERNAL = ("cluster",)
# labels of targets that the exporter knows by itself and that all replicas of a workload share
_SHARED = ("cluster", "namespace", "workload", "region")
# what the settings of a workload in Kubernetes say of it
STATED_BY_WORKLOAD = {"namespace": "namespace", "workload": "name"}
# what differs from one replica of a workload to the next, or changes with every rollout
_OF_ONE_REPLICA = frozenset(
    {
        *PLACE_LABELS, "instance", "pod_name", "pod_uid", "pod_ip", "uid", "ip", "address", "host", "hostname", "node_name", "provider_id",
        "instance_type", "zone", "availability_zone", "endpoint", "job", "service", "replica", "prometheus", "prometheus_replica",
        "pod_template_hash", "controller_revision_hash",
    }
) - {*_SHARED}  # fmt: skip
# what the rules put on series and alerts
OF_RULES = frozenset(
    {
        "severity", "check", "alertname", "instance", "job", "integration", "le", "day", "of", "basis", "resource", "reserve", "label",
        "how", "shard", "reader",
    }
)  # fmt: skip
_INSTEAD = "List what all replicas of a workload share, such as cluster, namespace or team."


def refuse_identity(names: Iterable[str], place: Place) -> None:
    """Reports each label by which one model's replicas would come apart, or that the rules need for themselves."""
    for name in names:
        if name in _OF_ONE_REPLICA:
            what = f"{shown(name)} differs between the replicas of a workload: each would be a fleet of one, and none could stand in for it"
            place.refuse(what, f"{_INSTEAD} What is about one replica names its target.")
        elif name in OF_RULES or (name in LABELS and name not in _SHARED):
            place.refuse(f"{shown(name)} is a label of the rules themselves", _INSTEAD)
        elif name.startswith("exported_"):
            ours = name.removeprefix("exported_")
            place.refuse(f"{shown(name)} is what Prometheus calls a label that a scrape has renamed", f"Write {ours}.")


def choose_external(identity: Sequence[str], stated: Sequence[str] | None, place: Place) -> tuple[str, ...]:
    """Those of the identity labels that the scrape adds to every series. `stated`: by the user; None: the usual ones."""
    for name in stated or ():
        if name not in identity:
            place.refuse(f"{shown(name)} is not one of identity_labels", "Name it there too, or leave it out here.")
        elif name in PLACE_LABELS:
            what = f"{shown(name)} is written by the exporter itself, of each target its own"
            place.refuse(what, "Leave it out here; it may stay in identity_labels.")
    chosen = EXTERNAL if stated is None else stated
    return tuple(name for name in identity if name in chosen)


def parse_readable(text: str) -> str:
    """A label that the rules read under either name. Raises InvalidValueError."""
    if text in LABELS and text not in (*PLACE_LABELS, *_SHARED):
        raise InvalidValueError(
            f"the rules cannot do without {shown(text)} under its own name",
            "Set honor_labels, or give the label of the scrape another name.",
        )
    return text


RENAMED = list_reader(Kind("a label's name", parse_readable, is_text=True), "label names")


def read_label_values(node: Node, place: Place, context: object) -> dict[str, str]:
    """A mapping of labels to their values; what is not usable is reported and left out."""
    labels = mapping(node, place, node if isinstance(node, dict) else ())
    texts = {name: value(content, place.key(name), LABEL_VALUE) for name, content in labels.items()}
    return {name: text for name, text in texts.items() if text is not None}


# --- `retired:` in the settings: models that somebody took away on purpose, so that nobody is told of what they have lost.

_EXAMPLE = "Write {model_name: …, until: 2026-01-31T00:00:00Z}."


@dataclass(frozen=True, slots=True)
class Retired:
    """A model that may be gone, in whole or in part. What is not said is any."""

    model_name: str = key(kinds.text("model name"), required=True)  # as served
    # from this moment on (Unix seconds) a loss is told again
    until_unix_seconds: float = key(MOMENT, name="until", required=True)
    role: str | None = key(kinds.choice("role", [role.value for role in Role]))  # None = every one
    labels: Mapping[str, str] = key(read_label_values, unset={})  # identity labels


def read_retired(node: Node, place: Place, context: object) -> tuple[Retired, ...]:
    """A list of them; what is not usable is reported and left out."""
    entries = [
        read_complete(keys_of(Retired), element, at, _EXAMPLE)
        for element, at in elements(node, place, "mappings such as {model_name: …, until: 2026-01-31T00:00:00Z}")
    ]
    return tuple(Retired(**entry) for entry in entries if entry is not None)


def refuse_unknown_labels(retired: Iterable[Retired], identity: Collection[str], place: Place) -> None:
    """Reports labels that no record has."""
    for number, entry in enumerate(retired):
        for name in entry.labels:
            if name not in identity:
                at = place.item(number).key("labels").key(name)
                at.refuse(f"{name} is not one of identity_labels", "Name it there too, or leave it out here.")


# an objective's name in slo_events_total{slo}; errors has no threshold
LATENCY_SLOS = ("ttft", "itl", "e2e")
SLOS = (*LATENCY_SLOS, "errors")


@dataclass(frozen=True, slots=True)
class Objective:
    """A service level objective."""

    objective: float  # the share of events that has to be good
    threshold_seconds: float | None = None  # from how many seconds on an event is bad; None: no threshold, no alert

    @property
    def budget(self) -> float:
        """The share that may be bad."""
        return 1.0 - self.objective


@dataclass(frozen=True, slots=True)
class BurnWindow:
    """A pair of windows of a burn-rate alert, which fires where both spend the error budget too fast."""

    long_seconds: float = key(kinds.DURATION, name="long", required=True)  # shows that enough of the budget was spent
    # shows that it is still being spent, and ends the alert soon after
    short_seconds: float = key(kinds.DURATION, name="short", required=True)
    factor: float = key(NUMBER, required=True)  # how many times as fast as the budget lasts for its period


@dataclass(frozen=True, slots=True)
class Baseline:
    """`baseline:`: from when on a baseline counts, and whose."""

    history_seconds: float = key(kinds.DURATION, name="history", unset=0.0)  # for how long a model must have been seen
    # or from which moment on (Unix seconds); None = by history alone
    since_unix_seconds: float | None = key(MOMENT, name="since")
    settle_seconds: float = key(kinds.DURATION, name="settle", unset=0.0)  # how old a target must be


@dataclass(frozen=True, slots=True)
class Panels:
    """`panels:`: where the lines of panels are drawn that no alert watches."""

    idle_above: float = key(RATIO, unset=1.0)  # of a day's spend that was idle
    # of all context tokens, of the longest hundredth of the requests
    long_context_share_above: float = key(RATIO, unset=1.0)
    bandwidth_below: float = key(RATIO, unset=0.0)  # of the median of 7 days of the memory bandwidth in use
    # of an engine's KV cache: with less in use, requests do not wait for memory
    free_kv_below: float = key(RATIO, unset=0.0)


@dataclass(frozen=True, slots=True)
class Receivers:
    """`receivers:`: what the routes of Alertmanager call those who are told."""

    critical: str = key(RECEIVER, unset="pagerduty")  # of pages
    warning: str = key(RECEIVER, unset="tickets")  # of tickets


@dataclass(frozen=True, slots=True)
class Workload:
    """Where kube-state-metrics knows how many replicas of a model are wanted."""

    model_name: str = key(kinds.text("model name"), required=True)  # as served
    namespace: str = key(kinds.text("namespace"), required=True)  # of Kubernetes
    kind: str = key(kinds.choice("kind", ("deployment", "statefulset")), required=True)  # deployment or statefulset
    name: str = key(kinds.text("workload's name"), required=True)  # of that object
    role: str = key(kinds.choice("role", [role.value for role in Role]), default=Role.UNIFIED.value)  # of the replicas
    pods_per_replica: int = key(kinds.integer(1, 1000), default="1")  # above 1 for a replica that spans several pods
    # its targets' identity labels, but for those that namespace and name are
    labels: Mapping[str, str] = key(read_label_values, unset={})


@dataclass(frozen=True, slots=True)
class NodeLoss:
    """`node_loss:`: how N-1 is calculated."""

    # share of its ceilings that a replica is expected to reach where nothing was measured
    efficiency: float = key(RATIO, unset=1.0)
    tolerate_nodes: int = key(kinds.integer(1, 2), unset=1)  # nodes that may be lost at a time
    # from the order of a replica to its first request
    scale_lag_seconds: float = key(kinds.DURATION, name="scale_lag", unset=0.0)
    # how long replicas that a rollout replaces are excused
    rollout_limit_seconds: float = key(kinds.DURATION, name="rollout_limit", unset=0.0)
    workloads: tuple[Workload, ...] = ()  # whose desired replicas kube-state-metrics knows


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """One alert."""

    enabled: bool  # False: no rule is rendered
    for_seconds: float  # how long its condition must hold before it fires
    severity: Severity | None  # None = its own
    labels: Mapping[str, str]  # added to those of the rule
    values: Mapping[str, float]  # by the names of its line in settings.yml, durations in seconds

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def for_seconds_of(self, severity: Severity) -> float:
        """How long the condition of one severity must hold, where it has a time of its own (`warning_for`)."""
        return self.values.get(f"{severity}_for", self.for_seconds)


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set for the rules."""

    # of the exporter by Prometheus: every range holds four
    scrape_interval_seconds: float = key(kinds.INTERVAL, name="scrape_interval", unset=0.0)
    # how long after its time a moment is looked at
    evaluation_delay_seconds: float = key(EVALUATION_DELAY, name="evaluation_delay", unset=0.0)
    # labels that tell fleets apart, by what all replicas of a workload share; (): none
    identity_labels: tuple[str, ...] = key(list_reader(LABEL_NAME, "label names"), unset=())
    # those of them that every series of a scrape or a Prometheus has
    external_labels: tuple[str, ...] = key(list_reader(LABEL_NAME, "label names"), unset=())
    # labels that the scrape renames and that shall not be spoken of
    renamed_labels: tuple[str, ...] = key(RENAMED, unset=())
    severity_cap: Severity = key(SEVERITY, unset=Severity.CRITICAL)  # the loudest that any alert may be
    # with {alert} for the alert's name; "": the command that prints the runbook
    runbook_url: str = key(URL_TEMPLATE, unset="")
    queries_url: str = key(QUERIES_URL, unset="")  # with {queries} for those of the runbook; "": no link
    dashboard_url: str = key(URL_TEMPLATE, unset="")  # with {uid} for the dashboard's; "": its path in a Grafana
    # that are served: thresholds are held against the edges of their buckets
    runtimes: tuple[str, ...] = key(list_reader(RUNTIME, "runtimes"), unset=())
    labels: Mapping[str, str] = field(default_factory=dict)  # on every alert
    slo: Mapping[str, Objective] = field(default_factory=dict)  # by name
    period_seconds: float = 1.0  # of all objectives
    burn: Mapping[str, tuple[BurnWindow, ...]] = field(default_factory=dict)  # by speed: fast and slow
    baseline: Baseline = field(default_factory=Baseline)  # for alerts that compare with what is usual
    node_loss: NodeLoss = field(default_factory=NodeLoss)  # for the question whether the fleet survives without a node
    memory_seconds: float = key(MEMORY, name="memory", unset=0.0)  # how long it is remembered what was there
    retired: tuple[Retired, ...] = key(read_retired, unset=())  # what was taken away on purpose
    drill_max_age_seconds: float | None = None  # None = nobody is reminded of drills
    receivers: Receivers = field(default_factory=Receivers)  # who is told, by severity
    panels: Panels = field(default_factory=Panels)  # lines that no alert watches
    alerts: Mapping[str, AlertSettings] = field(default_factory=dict)  # by name, without the prefix

    @property
    def own_labels(self) -> tuple[str, ...]:
        """The identity labels that targets have of their own."""
        return tuple(name for name in self.identity_labels if name not in self.external_labels)

    def capped(self, severity: Severity) -> Severity:
        """The severity, or the cap where that is quieter."""
        return min(severity, self.severity_cap, key=LOUDNESS.index)
