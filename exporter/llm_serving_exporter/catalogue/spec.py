"""What a metric is: declared once, checked when it is constructed. Everything published is generated from these."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import StrEnum

PREFIX = "llm_serving_"


class Kind(StrEnum):
    """Prometheus types. A state set is a gauge with one series a state, 1 for the state that holds."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    INFO = "info"  # constant 1, the labels are the content


class Unit(StrEnum):
    """Base units only; the name carries the unit."""

    SECONDS = "seconds"
    BYTES = "bytes"
    TOKENS = "tokens"
    RATIO = "ratio"
    JOULES = "joules"
    USD = "usd"
    GRAMS = "grams"
    WATTS = "watts"
    CELSIUS = "celsius"
    HERTZ = "hertz"
    TOKENS_PER_SECOND = "tokens_per_second"
    BYTES_PER_SECOND = "bytes_per_second"
    PER_SECOND = "per_second"
    FLOPS_PER_SECOND = "flops_per_second"
    FLOPS_PER_BYTE = "flops_per_byte"
    COUNT = "count"  # things counted: requests, events, rows; the name says which
    BOOLEAN = "boolean"  # 0 or 1
    TIMESTAMP = "unix seconds"


class Group(StrEnum):
    """Chapters of METRICS.md."""

    COUNTERS = "Passed through: counters"
    HISTOGRAMS = "Passed through: histograms"
    GAUGES = "Passed through: gauges"
    DERIVED = "Derived over the window"
    ROOFLINE = "Roofline: ceilings, how near, what limits"
    FACTS = "Facts about the model"
    SLO = "Service level objectives"
    COST = "Cost"
    GPU = "GPU"
    HEALTH = "Targets and health"
    EXPORTER = "The exporter itself"


class Subject(StrEnum):
    """What a series is about, which decides the identity labels that stand on it beside its own."""

    TARGET = "a target"
    FLEET = "the replicas of a model"
    GPU = "a GPU"
    EXPORTER = "the exporter"


SERVING_LABELS = ("target", "model_name", "engine", "role")
GPU_LABELS = ("gpu", "gpu_name", "node")
# those that a scrape of a pod is given too: ours are there as "", so that none of the exporter's pod stands on a series of something else
PLACE_LABELS = ("namespace", "pod", "container", "node")
# where a target is, and what it belongs to; with its own labels, its identity
IDENTITY_LABELS = (*PLACE_LABELS, "workload", "workload_kind", "provider_id", "region", "instance_type")

# every label that a metric may declare; identity labels need no declaration
LABELS = frozenset(
    {
        *SERVING_LABELS,
        *GPU_LABELS,
        "runtime", "version", "group", "phase", "reason", "code_class", "latency", "rank", "slo", "outcome", "threshold", "kind",
        "signal", "quality", "state", "stage", "sensor", "domain", "direction", "xid", "uuid", "index", "pci_bus_id",
        "driver_version", "compute_capability", "mig_profile", "parent", "source", "revision", "python_version", "sha256", "origin",
        "bound", "part", "evidence", "cause", "family", "weight_format", "kv_format", "precision", "verdict",
        "rate", "method", "basis", "inputs", "ceiling", "includes_power", "shard", "shards", "fault", "mode",
    }
)  # fmt: skip

# labels of what is no exporter's own: a metric with one of them is about it, the first that it has decides
_SUBJECTS = {"target": Subject.TARGET, "gpu": Subject.GPU, "model_name": Subject.FLEET}

_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*\Z")
# a unit and what the name has to contain for it
_IN_NAME = {
    Unit.SECONDS: "seconds", Unit.BYTES: "bytes", Unit.TOKENS: "tokens", Unit.RATIO: "_ratio", Unit.JOULES: "joules", Unit.USD: "usd", Unit.GRAMS: "grams",
    Unit.WATTS: "watts", Unit.CELSIUS: "celsius", Unit.HERTZ: "hertz", Unit.TOKENS_PER_SECOND: "tokens_per_second",
    Unit.BYTES_PER_SECOND: "bytes_per_second", Unit.PER_SECOND: "per_second",
    Unit.FLOPS_PER_SECOND: "flops_per_second", Unit.FLOPS_PER_BYTE: "flops_per_byte", Unit.TIMESTAMP: "_timestamp_seconds",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Metric:
    """One exported metric. Raises ValueError where a rule is broken."""

    name: str  # without the prefix, a counter's with `_total`
    kind: Kind  # type that Prometheus knows it by
    unit: Unit  # shows in the name
    group: Group  # chapter of METRICS.md
    help: str  # one sentence with a full stop: what it is, and its range
    labels: tuple[str, ...]  # names from LABELS
    absent: str  # what a missing series means
    formula: str = ""  # how it is worked out, in words; "": it is read, not worked out
    source: str = "page"  # where it comes from; "page": the runtime's table, see the columns of METRICS.md
    whole_identity: bool = (
        False  # whether every identity label stands on its series, and the labels of its target's own
    )
    # the name as exposed, with the prefix
    full_name: str = field(init=False)
    subject: Subject = field(init=False)  # what its series are about, as its labels say

    @property
    def identity_labels(self) -> tuple[str, ...]:
        """Those that stand on every series of it beside `labels`; with `target_labels` and labels of a target's own there are more."""
        if self.whole_identity:
            return IDENTITY_LABELS
        places = PLACE_LABELS if self.subject in (Subject.TARGET, Subject.GPU) else ()
        return tuple(name for name in places if name not in self.labels)

    def __post_init__(self) -> None:
        object.__setattr__(self, "full_name", PREFIX + self.name)
        object.__setattr__(self, "subject", _subject_of(self.labels))
        faults = []
        if not _NAME.match(self.name):
            faults.append("the name must be lower-case words joined by single underscores, without colon")
        if (self.kind is Kind.COUNTER) != self.name.endswith("_total"):
            faults.append("a counter, and only a counter, ends in _total")
        if (self.kind is Kind.INFO) != self.name.endswith("_info"):
            faults.append("an info metric, and only that, ends in _info")
        wanted = _IN_NAME.get(self.unit)
        if (
            wanted
            and wanted not in self.name
            and not (self.unit is Unit.TIMESTAMP and self.name.endswith("_time_seconds"))
        ):
            faults.append(f"the unit {self.unit.value} must show in the name as {wanted!r}")
        if not self.help or not self.help.endswith("."):
            faults.append("help must be a sentence ending in a full stop")
        if unknown := [label for label in self.labels if label not in LABELS]:
            faults.append(f"labels {unknown} are not in spec.LABELS")
        if not self.absent:
            faults.append("say what absence means")
        if faults:
            raise ValueError(f"metric {self.name!r}: " + "; ".join(faults))


def _subject_of(labels: tuple[str, ...]) -> Subject:
    return next((subject for label, subject in _SUBJECTS.items() if label in labels), Subject.EXPORTER)
