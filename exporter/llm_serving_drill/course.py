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

    # as the label model_name has it
    model_name: str
    # "unified", "prefill" or "decode"
    role: str = "unified"
    # identity labels of the rules, which tell fleets apart: names and values
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
    def of_model(self) -> str:
        """Those of the model and the role alone, as every series of a target has them."""
        return _matchers({"model_name": self.model_name, "role": self.role})


def _matchers(labels: Mapping[str, str]) -> str:
    return ",".join(f'{name}="{escape_label_value(value)}"' for name, value in labels.items())


class Bounds(Struct, frozen=True):
    """Where a drill is aborted."""

    # share of failed requests in 5 minutes; None = no bound
    errors_ratio: float | None
    # p99 time to first token over 5 minutes; None = no bound
    ttft_seconds: float | None
    # from the trigger to the recovery
    duration_seconds: float
    # how many may go; None = as many as stand on the node
    lost_replicas: int | None = None
    # how long Prometheus may say nothing
    blind_seconds: float = 60.0


class Settings(Struct, frozen=True):
    """How the drill runs."""

    # where it is aborted
    bounds: Bounds
    # wait for a loss instead of triggering one
    watch: bool = False
    # begin although the plan refuses
    force: bool = False
    # the node that is to go; None = the one with the most replicas
    node: str | None = None
    # alerts that must come; None = those that the rules ask for, () = none
    expected_alerts: tuple[str, ...] | None = None
    # share of good times to first token, above 0 and below 1
    objective: float = 0.99
    # length of the time before the loss that is compared with
    baseline_seconds: float = 600.0
    # how long to wait for the loss to be seen
    loss_timeout_seconds: float = 300.0
    # how long a recovery must last
    settle_seconds: float = 60.0
    # time between two readings
    interval_seconds: float = 5.0
    # how long the loss lasts before it is restored; None = until somebody else ends it
    hold_seconds: float | None = None
    # hold the loss until every expected alert has arrived
    hold_for_page: bool = False
    # how long after an alert's `for` it may still come
    page_slack_seconds: float = 120.0
    # range behind the recorded 5m rates
    rate_window_seconds: float = 300.0


class Reading(Struct, frozen=True):
    """All recorded series of the model at one moment. None and missing keys mean that the series is absent."""

    # when, by the clock of Prometheus
    unix_seconds: float
    # ready replicas
    ready: float | None = None
    # ready replicas and those that sleep
    present: float | None = None
    # replicas that are wanted
    desired: float | None = None
    # nodes that serve the model
    nodes: float | None = None
    # known replicas that are not down
    alive: float | None = None
    # requests in the queues
    waiting: float | None = None
    # p99 time to first token over 5 minutes
    p99_ttft_seconds: float | None = None
    # share of the times to first token above the histogram's top finite edge
    above_top_edge_ratio: float | None = None
    # KV cache in use, of the fullest engine
    kv_usage_ratio: float | None = None
    # share of failed requests in 5 minutes
    errors_ratio: float | None = None
    # by phase
    tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    # whether the survivors of a node loss could carry the demand
    n1_sufficient: bool | None = None
    # the largest value of `n1_load`
    n1_load_max: float | None = None
    # the largest value of `load`
    load_max: float | None = None
    # by resource: demand as a share of the capacity without the largest node
    n1_load: Mapping[str, float] = field(default_factory=dict)
    # by resource: demand as a share of the capacity
    load: Mapping[str, float] = field(default_factory=dict)
    # by resource: the most of the last hour, in the units of capacity
    demand: Mapping[str, float] = field(default_factory=dict)
    # by resource: capacity without the largest node
    n1_capacity: Mapping[str, float] = field(default_factory=dict)
    # by resource: what is used at the moment, in the units of capacity
    now: Mapping[str, float] = field(default_factory=dict)

    @property
    def ttft_at_least(self) -> bool:
        """The p99 is only a lower bound: it lies above the histogram's top finite edge."""
        return self.above_top_edge_ratio is not None and self.above_top_edge_ratio > CLIPPED_ABOVE


class AlertRule(Struct, frozen=True):
    """An alerting rule as Prometheus has loaded it."""

    # the label alertname
    name: str
    # how long its condition must hold
    for_seconds: float


class ActiveAlert(Struct, frozen=True):
    """An alert of the model as Prometheus has it now: pending or firing."""

    # the label alertname
    name: str
    # the label severity, "" without one
    severity: str
    # False = pending
    firing: bool
    # when its condition began to hold
    active_since_unix_seconds: float


class Forecast(Struct, frozen=True):
    """What is known before anything is lost."""

    # the series at that time
    reading: Reading
    # ready replicas by node; empty where no node is known
    replicas_by_node: Mapping[str, int] = field(default_factory=dict)
    # by KV capacity; None where it is not known
    largest_node: str | None = None
    # alerting rules by name
    rules: Mapping[str, AlertRule] = field(default_factory=dict)
    # alerts of these replicas that are there already
    active: tuple[ActiveAlert, ...] = ()
    # models and roles that have ready replicas recorded; asked for only where the drilled one has none
    others: tuple[tuple[str, str], ...] = ()


class Plan(Struct, frozen=True):
    """What will be done, and why not."""

    # the node that is to go, None where it is not known
    node: str | None
    # replicas that may go; more is too much; None where it is not known
    may_lose: int | None
    # alerts that must arrive in any case, because they were asked for
    required: tuple[str, ...]
    # alerts that must arrive where their rule says that they are due
    by_rule: tuple[str, ...]
    # sentences; the drill begins only where there are none, or with force
    refusals: tuple[str, ...]
    # sentences for the reader of the report
    notes: tuple[str, ...]

    @property
    def alerts(self) -> tuple[str, ...]:
        """All that are looked for."""
        return (*self.required, *self.by_rule)


class Baseline(Struct, frozen=True):
    """The time before the loss. None where the series was absent."""

    # how long it is
    seconds: float
    # median of the recorded p99
    p99_ttft_seconds: float | None = None
    # the p99 is a lower bound: it lies above the top finite edge
    p99_at_least: bool = False
    # mean queue, requests
    waiting_mean: float | None = None
    # longest queue, requests
    waiting_max: float | None = None
    # mean of the fullest engine
    kv_usage_ratio: float | None = None
    # mean share of failed requests
    errors_ratio: float | None = None
    # mean by phase
    tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    # fewest ready replicas
    ready_min: float | None = None
    # requests that were rejected
    rejected: float | None = None


class CommandRun(Struct, frozen=True):
    """A command that was run."""

    # TRIGGER or RESTORE
    what: str
    # as the user wrote it
    command: str
    # when it was started
    began_unix_seconds: float
    took_seconds: float
    # exit status, negative for a signal; None where it could not start, ran too long or was stopped
    status: int | None
    # the end of what it printed
    output: str
    # why `status` is None, "" where it is not
    problem: str = ""

    @property
    def good(self) -> bool:
        """It ended by itself with status 0."""
        return self.status == 0 and not self.problem


class Sighting(Struct, frozen=True):
    """What was seen of an alert."""

    # the label alertname
    name: str
    # the label severity, "" before it was seen
    severity: str = ""
    # its condition first held; None where it never did
    pending_unix_seconds: float | None = None
    # Prometheus first had it firing; None where it never did
    firing_unix_seconds: float | None = None
    # Alertmanager first had it; None where it never did
    received_unix_seconds: float | None = None
    # names of the receivers that Alertmanager routes it to
    receivers: tuple[str, ...] = ()
    # Alertmanager had it and told nobody, because of somebody's silence
    silenced: bool = False
    # a louder alert stands for it, which counts as arrived
    inhibited: bool = False


class Counts(Struct, frozen=True):
    """Exact counts between the start and the end of the drill. None where the series are absent."""

    # times to first token within the objective
    ttft_good: float | None = None
    # times to first token over it
    ttft_bad: float | None = None
    # requests that were rejected
    rejected: float | None = None


class Course(Struct, frozen=True):
    """Everything that happened, as far as it went. The verdict and the report are made of it."""

    # whose drill
    scope: Scope
    settings: Settings
    # how far it went
    phase: Phase
    # None before it was made
    plan: Plan | None = None
    # None before it was asked for
    forecast: Forecast | None = None
    # None before it was measured
    baseline: Baseline | None = None
    # the last reading before the loss
    before: Reading | None = None
    # from the trigger on, or while watching from the loss on
    readings: tuple[Reading, ...] = ()
    # of each alert that is looked for
    sightings: tuple[Sighting, ...] = ()
    # those that have ended
    commands: tuple[CommandRun, ...] = ()
    # filled at the end
    counts: Counts = Counts()
    # the trigger, or while watching the last reading at which nothing was missing; None where it never came to that
    start_unix_seconds: float | None = None
    # the first reading with fewer replicas; None where none was lost
    lost_unix_seconds: float | None = None
    end_unix_seconds: float = 0.0
    # why it ended early, "" where it did not
    broken_off: str = ""
    # whether an Alertmanager was asked
    alertmanager: bool = False
    # sentences for the reader of the report
    notes: tuple[str, ...] = ()
