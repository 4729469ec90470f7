"""The nouns of a drill: whose it is, what was asked, what was forecast, what was seen, what came of it. Frozen; times in Unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from llm_serving_exporter.model.text import escape_label_value

# a p99 of which more than this share lies above the top finite edge of the histogram is only known to be "at least" that edge
CLIPPED_ABOVE = 0.01
# what a command is run for
TRIGGER, RESTORE = "trigger", "restore"


class Phase(StrEnum):
    """Where a drill is."""

    PLAN = "plan"
    BASELINE = "baseline"
    TRIGGER = "trigger"
    WAITING = "waiting for the loss"
    LOST = "node lost"
    RESTORED = "restored"
    SETTLING = "settling"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Scope:
    """The replicas that are drilled. `labels`: identity labels that the scrape adds and that tell fleets apart."""

    model_name: str
    role: str = "unified"
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def identity(self) -> dict[str, str]:
        """Labels that every alert of these replicas carries."""
        return {"model_name": self.model_name, "role": self.role, **dict(self.labels)}

    @property
    def matchers(self) -> str:
        """As a selector has them, without braces."""
        return _matchers(self.identity)

    @property
    def of_scrape(self) -> str:
        """Those of the identity labels alone; "" where there are none."""
        return _matchers(dict(self.labels))


def _matchers(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{escape_label_value(value)}"' for name, value in labels.items())


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where a drill is broken off. None: no such bound. `lost_replicas`: as many may go; None: as many as stand on the node."""

    errors_ratio: float | None
    ttft_seconds: float | None
    duration_seconds: float
    lost_replicas: int | None = None
    blind_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """How it is to run. All times in seconds.

    `node`: the one that is to go, None for the one with the most replicas. `expected_alerts`: None for those that the rules ask for,
    () for none. `hold_seconds`: how long the loss lasts before it is restored, None for until somebody else ends it, `hold_for_page` for
    until every expected alert has arrived. `rate_window_seconds`: the range behind the recorded 5m rates. `page_slack_seconds`: how long
    after an alert's `for` it may still come.
    """

    bounds: Bounds
    watch: bool = False
    force: bool = False
    node: str | None = None
    expected_alerts: tuple[str, ...] | None = None
    objective: float = 0.99
    baseline_seconds: float = 600.0
    loss_timeout_seconds: float = 300.0
    settle_seconds: float = 60.0
    interval_seconds: float = 5.0
    hold_seconds: float | None = None
    hold_for_page: bool = False
    page_slack_seconds: float = 120.0
    rate_window_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class Reading:
    """All recorded series of the model at one moment; None and missing keys where there are none.

    `n1_sufficient` True or False. Loads, demand and capacity by resource; `now` is what is used at the moment, in the units of capacity.
    `present`: ready replicas and those that sleep; `alive`: known ones that are not down.
    """

    unix_seconds: float
    ready: float | None = None
    present: float | None = None
    desired: float | None = None
    nodes: float | None = None
    alive: float | None = None
    waiting: float | None = None
    p99_ttft_seconds: float | None = None
    above_top_edge_ratio: float | None = None
    kv_usage_ratio: float | None = None
    errors_ratio: float | None = None
    tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    n1_sufficient: bool | None = None
    n1_load_max: float | None = None
    load_max: float | None = None
    n1_load: Mapping[str, float] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)
    demand: Mapping[str, float] = field(default_factory=dict)
    n1_capacity: Mapping[str, float] = field(default_factory=dict)
    now: Mapping[str, float] = field(default_factory=dict)

    @property
    def ttft_at_least(self) -> bool:
        """The p99 is only a lower bound: it lies above the histogram's top finite edge."""
        return self.above_top_edge_ratio is not None and self.above_top_edge_ratio > CLIPPED_ABOVE


@dataclass(frozen=True, slots=True)
class AlertRule:
    """An alerting rule as Prometheus has loaded it. `for_seconds`: how long its condition must hold."""

    name: str
    for_seconds: float


@dataclass(frozen=True, slots=True)
class ActiveAlert:
    """An alert of the model as Prometheus has it now: pending or firing."""

    name: str
    severity: str
    firing: bool
    active_since_unix_seconds: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What is known before anything is lost. `replicas_by_node`: ready ones; `largest_node`: by KV capacity; both may be unknown."""

    reading: Reading
    replicas_by_node: Mapping[str, int] = field(default_factory=dict)
    largest_node: str | None = None
    rules: Mapping[str, AlertRule] = field(default_factory=dict)
    active: tuple[ActiveAlert, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be done, and why not. `refusals`: sentences; the drill begins only where there are none, or with force.

    `may_lose`: replicas, after which more is too much; None where it is not known. `required`: alerts that must arrive in any case, because
    they were asked for; `by_rule`: those that must arrive where their rule says that they are due.
    """

    node: str | None
    may_lose: int | None
    required: tuple[str, ...]
    by_rule: tuple[str, ...]
    refusals: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def alerts(self) -> tuple[str, ...]:
        """All that are looked for."""
        return (*self.required, *self.by_rule)


@dataclass(frozen=True, slots=True)
class Baseline:
    """The time before the loss. p99: median of what was recorded; the others means, with the largest queue."""

    seconds: float
    p99_ttft_seconds: float | None = None
    p99_at_least: bool = False
    waiting_mean: float | None = None
    waiting_max: float | None = None
    kv_usage_ratio: float | None = None
    errors_ratio: float | None = None
    tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    ready_min: float | None = None
    rejected: float | None = None


@dataclass(frozen=True, slots=True)
class CommandRun:
    """A command that was run.

    `status`: its exit status, negative for a signal, None where it could not start, ran too long or was stopped; then `problem` says so.
    """

    what: str
    command: str
    began_unix_seconds: float
    took_seconds: float
    status: int | None
    output: str
    problem: str = ""

    @property
    def good(self) -> bool:
        """It ended by itself with status 0."""
        return self.status == 0 and not self.problem


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen of an alert, each time None where it was not: its condition first held, Prometheus had it firing, Alertmanager had it.

    `silenced`: Alertmanager had it and told nobody, by somebody's silence. An inhibited one is not: a louder alert stands for it.
    """

    name: str
    severity: str = ""
    pending_unix_seconds: float | None = None
    firing_unix_seconds: float | None = None
    received_unix_seconds: float | None = None
    receivers: tuple[str, ...] = ()
    silenced: bool = False
    inhibited: bool = False


@dataclass(frozen=True, slots=True)
class Counts:
    """Exact counts between the start and the end of the window; None where the series are absent."""

    ttft_good: float | None = None
    ttft_bad: float | None = None
    rejected: float | None = None


@dataclass(frozen=True, slots=True)
class Course:
    """Everything that happened, as far as it went; what `verdict` and the report are made of.

    `start_unix_seconds`: the trigger, or while watching the last look at which nothing was missing; None where it never came to that.
    `broken_off`: why it ended early, "" where it did not. `alertmanager`: whether one was asked.
    """

    scope: Scope
    settings: Settings
    phase: Phase
    plan: Plan | None = None
    forecast: Forecast | None = None
    baseline: Baseline | None = None
    before: Reading | None = None
    readings: tuple[Reading, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    commands: tuple[CommandRun, ...] = ()
    counts: Counts = Counts()
    start_unix_seconds: float | None = None
    lost_unix_seconds: float | None = None
    end_unix_seconds: float = 0.0
    broken_off: str = ""
    alertmanager: bool = False
    notes: tuple[str, ...] = ()
