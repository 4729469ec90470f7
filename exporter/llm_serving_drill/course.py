"""The values of a drill: whose it is, what was asked, what was forecast, what was seen, what came of it. Frozen; times in Unix seconds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from llm_serving_exporter.model.record import Struct, field
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


class Scope(Struct, frozen=True):
    """The replicas that are drilled."""

    model_name: str  # as the label model_name has it
    role: str = "unified"  # "unified", "prefill" or "decode"
    labels: tuple[tuple[str, str], ...] = ()  # identity labels of the rules, which tell fleets apart: names and values

    @property
    def identity(self) -> dict[str, str]:
        """Labels that every alert of these replicas carries."""
        return {"model_name": self.model_name, "role": self.role, **dict(self.labels)}

    @property
    def matchers(self) -> str:
        """As a selector has them, without braces."""
        return _matchers(self.identity)

    @property
    def of_model(self) -> str:
        """Those of the model and the role alone, as every series of a target has them."""
        return _matchers({"model_name": self.model_name, "role": self.role})


def _matchers(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{escape_label_value(value)}"' for name, value in labels.items())


class Bounds(Struct, frozen=True):
    """Where a drill is aborted."""

    errors_ratio: float | None  # share of failed requests in 5 minutes; None = no bound
    ttft_seconds: float | None  # p99 time to first token over 5 minutes; None = no bound
    duration_seconds: float  # from the trigger to the recovery
    lost_replicas: int | None = None  # how many may go; None = as many as stand on the node
    blind_seconds: float = 60.0  # how long Prometheus may say nothing


class Settings(Struct, frozen=True):
    """How the drill runs."""

    bounds: Bounds
    watch: bool = False  # wait for a loss instead of triggering one
    force: bool = False  # begin although the plan refuses
    node: str | None = None  # the node that is to go; None = the one with the most replicas
    # alerts that must come; None = those that the rules ask for, () = none
    expected_alerts: tuple[str, ...] | None = None
    objective: float = 0.99  # share of good times to first token, above 0 and below 1
    baseline_seconds: float = 600.0  # length of the time before the loss that is compared with
    loss_timeout_seconds: float = 300.0  # how long to wait for the loss to be seen
    settle_seconds: float = 60.0  # how long a recovery must last
    interval_seconds: float = 5.0
    # how long the loss lasts before it is restored; None = until somebody else ends it
    hold_seconds: float | None = None
    hold_for_page: bool = False  # hold the loss until every expected alert has arrived
    page_slack_seconds: float = 120.0  # how long after an alert's `for` it may still come
    rate_window_seconds: float = 300.0  # range behind the recorded 5m rates


class Reading(Struct, frozen=True):
    """All recorded series of the model at one moment. None and missing keys mean that the series is absent."""

    unix_seconds: float  # when, by the clock of Prometheus
    ready: float | None = None
    present: float | None = None  # ready replicas and those that sleep
    desired: float | None = None
    nodes: float | None = None
    alive: float | None = None  # known replicas that are not down
    waiting: float | None = None
    p99_ttft_seconds: float | None = None  # p99 time to first token over 5 minutes
    above_top_edge_ratio: float | None = None  # share of the times to first token above the histogram's top finite edge
    kv_usage_ratio: float | None = None  # KV cache in use, of the fullest engine
    errors_ratio: float | None = None  # share of failed requests in 5 minutes
    tokens_per_second: Mapping[str, float] = field(default_factory=dict)  # by phase
    n1_sufficient: bool | None = None  # whether the survivors of a node loss could carry the demand
    n1_load_max: float | None = None  # the largest value of `n1_load`
    load_max: float | None = None  # the largest value of `load`
    # by resource: demand as a share of the capacity without the largest node
    n1_load: Mapping[str, float] = field(default_factory=dict)
    load: Mapping[str, float] = field(default_factory=dict)  # by resource: demand as a share of the capacity
    # by resource: the most of the last hour, in the units of capacity
    demand: Mapping[str, float] = field(default_factory=dict)
    n1_capacity: Mapping[str, float] = field(default_factory=dict)  # by resource: capacity without the largest node
    # by resource: what is used at the moment, in the units of capacity
    now: Mapping[str, float] = field(default_factory=dict)

    @property
    def ttft_at_least(self) -> bool:
        """The p99 is only a lower bound: it lies above the histogram's top finite edge."""
        return self.above_top_edge_ratio is not None and self.above_top_edge_ratio > CLIPPED_ABOVE


class AlertRule(Struct, frozen=True):
    """An alerting rule as Prometheus has loaded it."""

    name: str
    for_seconds: float  # how long its condition must hold


class ActiveAlert(Struct, frozen=True):
    """An alert of the model as Prometheus has it now: pending or firing."""

    name: str
    severity: str  # the label severity, "" without one
    firing: bool  # False = pending
    active_since_unix_seconds: float  # when its condition began to hold


class Forecast(Struct, frozen=True):
    """What is known before anything is lost."""

    reading: Reading
    # ready replicas by node; empty where no node is known
    replicas_by_node: Mapping[str, int] = field(default_factory=dict)
    largest_node: str | None = None  # by KV capacity; None where it is not known
    rules: Mapping[str, AlertRule] = field(default_factory=dict)
    active: tuple[ActiveAlert, ...] = ()  # alerts of these replicas that are there already
    # models and roles that have ready replicas recorded; asked for only where the drilled one has none
    others: tuple[tuple[str, str], ...] = ()


class Plan(Struct, frozen=True):
    """What will be done, and why not."""

    node: str | None  # the node that is to go, None where it is not known
    may_lose: int | None  # replicas that may go; more is too much; None where it is not known
    required: tuple[str, ...]  # alerts that must arrive in any case, because they were asked for
    by_rule: tuple[str, ...]  # alerts that must arrive where their rule says that they are due
    refusals: tuple[str, ...]  # sentences; the drill begins only where there are none, or with force
    notes: tuple[str, ...]

    @property
    def alerts(self) -> tuple[str, ...]:
        """All that are looked for."""
        return (*self.required, *self.by_rule)


class Baseline(Struct, frozen=True):
    """The time before the loss. None where the series was absent."""

    seconds: float
    p99_ttft_seconds: float | None = None  # median of the recorded p99
    p99_at_least: bool = False  # the p99 is a lower bound: it lies above the top finite edge
    waiting_mean: float | None = None  # mean queue, requests
    waiting_max: float | None = None  # longest queue, requests
    kv_usage_ratio: float | None = None  # mean of the fullest engine
    errors_ratio: float | None = None  # mean share of failed requests
    tokens_per_second: Mapping[str, float] = field(default_factory=dict)  # mean by phase
    ready_min: float | None = None
    rejected: float | None = None


class CommandRun(Struct, frozen=True):
    """A command that was run."""

    what: str  # TRIGGER or RESTORE
    command: str  # as the user wrote it
    began_unix_seconds: float
    took_seconds: float
    status: int | None  # exit status, negative for a signal; None where it could not start, ran too long or was stopped
    output: str  # the end of what it printed
    problem: str = ""  # why `status` is None, "" where it is not

    @property
    def good(self) -> bool:
        """It ended by itself with status 0."""
        return self.status == 0 and not self.problem

    @property
    def failure(self) -> str:
        """Why it is not good."""
        return self.problem or f"it ended with status {self.status}"


class Sighting(Struct, frozen=True):
    """What was seen of an alert."""

    name: str
    severity: str = ""  # the label severity, "" before it was seen
    pending_unix_seconds: float | None = None  # its condition first held; None where it never did
    firing_unix_seconds: float | None = None  # Prometheus first had it firing; None where it never did
    received_unix_seconds: float | None = None  # Alertmanager first had it; None where it never did
    receivers: tuple[str, ...] = ()  # names of the receivers that Alertmanager routes it to
    silenced: bool = False  # Alertmanager had it and told nobody, because of somebody's silence
    inhibited: bool = False  # a louder alert stands for it, which counts as arrived


class Counts(Struct, frozen=True):
    """Exact counts between the start and the end of the drill. None where the series are absent."""

    ttft_good: float | None = None  # times to first token within the objective
    ttft_bad: float | None = None  # times to first token over it
    rejected: float | None = None


class Course(Struct, frozen=True):
    """Everything that happened, as far as it went. The verdict and the report are made of it."""

    scope: Scope
    settings: Settings
    phase: Phase  # how far it went
    plan: Plan | None = None  # None before it was made
    forecast: Forecast | None = None  # None before it was asked for
    baseline: Baseline | None = None  # None before it was measured
    before: Reading | None = None
    readings: tuple[Reading, ...] = ()  # from the trigger on, or while watching from the loss on
    sightings: tuple[Sighting, ...] = ()  # of each alert that is looked for
    commands: tuple[CommandRun, ...] = ()  # those that have ended
    counts: Counts = Counts()  # filled at the end
    # the trigger, or while watching the last reading at which nothing was missing; None where it never came to that
    start_unix_seconds: float | None = None
    lost_unix_seconds: float | None = None  # the first reading with fewer replicas; None where none was lost
    end_unix_seconds: float = 0.0
    broken_off: str = ""  # why it ended early, "" where it did not
    alertmanager: bool = False  # whether an Alertmanager was asked
    notes: tuple[str, ...] = ()
