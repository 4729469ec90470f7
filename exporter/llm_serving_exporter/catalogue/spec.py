"""What a metric is, declared once: everything published is generated from these. tests/unit/catalogue has the rules of a declaration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from operator import le

from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import Struct, replace

# --- What becomes of a name that changes: for one minor version its series stand under both, then under the new one alone.
#
# A declaration says it by `formerly`. docs/releases.md has the policy; tests fail once the version has moved past what `since` names.


_MINOR = re.compile(r"(\d+)\.(\d+)")


class Formerly(Struct, frozen=True):
    """The name before a rename."""

    name: str  # as the declaration had it: of a metric without the prefix, of a record whole
    since: str  # minor version that brought the new name, such as "0.2": the last that has the old one too

    def is_over(self, version: str) -> bool:
        """Whether a version of the exporter (0.3.0, 0.3.0rc1) is past the one that has both names."""
        theirs = _MINOR.match(version)
        assert theirs
        ours = _MINOR.match(self.since)
        assert ours
        return (int(theirs[1]), int(theirs[2])) > (int(ours[1]), int(ours[2]))

    def describe(self, new_name: str) -> str:
        """What the help of the old name begins with: where to go, and until when there is time."""
        return f"Renamed to {new_name}: this name ends after {self.since}."


# --- Which values can be: declared once for everything that is read or published, checked by one comparison that NaN fails too.


# events of a kind that one engine can have counted: a million a second for thirty years
MOST_EVENTS = 1e15
# of what was reached over what can be: above 1 one of its inputs is wrong, beyond this it tells nothing at all
MOST_RATIO = 10.0


class Bounds(Struct, frozen=True):
    """The range of a value, in its base unit; of a histogram, that of one event."""

    least: float  # the least that can be
    most: float  # the most that can be
    # from here on something is wrong, although the value can be: it is published and suspect; None: there is no such edge
    suspect_above: float | None = None

    def admits(self, value: float) -> bool:
        """Whether the value can be. NaN and infinity cannot."""
        return self.least <= value <= self.most

    def suspects(self, value: float) -> bool:
        """Whether the value can be, and something is wrong all the same."""
        return self.suspect_above is not None and value > self.suspect_above

    def admits_histogram(self, histogram: Histogram) -> bool:
        """Whether its buckets ascend to its count, and its sum is one that so many events within the range can have.

        A page may be read between an event's sum and its count: the sum may be one event ahead.
        """
        counts, count, total = histogram.cumulative, histogram.count, histogram.sum
        # NaN fails every comparison
        if not (all(map(le, (0.0, *counts), (*counts, count))) and count <= MOST_EVENTS):
            return False
        return total is None or self.least * count <= total <= self.most * (count + 1.0)


# --- A metric


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
    TENANTS = "Tenants of gateways"
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

# where a node stands and what it is: of a target that spans several, each node's own
NODE_LABELS = ("region", "zone", "instance_type", "provider_id")

# every label that a metric may declare; identity labels need no declaration
LABELS = frozenset(
    {
        *SERVING_LABELS,
        *GPU_LABELS,
        "runtime", "version", "group", "phase", "reason", "code_class", "latency", "rank", "slo", "outcome", "threshold", "kind",
        "signal", "quality", "state", "stage", "sensor", "domain", "direction", "xid", "uuid", "index", "pci_bus_id",
        "driver_version", "compute_capability", "mig_profile", "parent", "source", "revision", "python_version", "sha256", "origin",
        "bound", "part", "evidence", "cause", "family", "weight_format", "kv_format", "precision", "verdict",
        "rate", "method", "basis", "inputs", "ceiling", "replica_name", "of", "includes_power", "shard", "shards", "fault", "mode", "storage", "tenant",
    }
)  # fmt: skip

# labels of what is no exporter's own: a metric with one of them is about it, the first that it has decides
_SUBJECTS = {"target": Subject.TARGET, "gpu": Subject.GPU, "model_name": Subject.FLEET}

# what an entry that declares no range of its own has: the most of a gauge (of a histogram: of one event), and of a counter. Generous: what
# is meant to be caught is a value that nothing real can have, not one that is merely high
_LARGEST: dict[Unit, tuple[float, float]] = {
    Unit.SECONDS: (1e12, 1e13),  # thirty thousand years; GPU time of a fleet
    Unit.BYTES: (1e18, 1e24),  # an exabyte; what a fabric of it moves in a decade
    Unit.TOKENS: (1e12, MOST_EVENTS),
    Unit.RATIO: (1.01, 1.01),  # a share; readings that are a moment apart may come to a little more than all
    Unit.JOULES: (1e12, 1e18),
    Unit.USD: (1e12, 1e15),
    Unit.GRAMS: (1e15, 1e18),
    Unit.WATTS: (1e5, 1e5),  # a board's
    Unit.CELSIUS: (1e3, 1e3),
    Unit.HERTZ: (1e12, 1e12),
    Unit.TOKENS_PER_SECOND: (1e12, 1e12),
    Unit.BYTES_PER_SECOND: (1e18, 1e18),
    Unit.PER_SECOND: (1e9, 1e9),
    Unit.FLOPS_PER_SECOND: (1e21, 1e21),
    Unit.FLOPS_PER_BYTE: (1e9, 1e9),
    Unit.COUNT: (MOST_EVENTS, MOST_EVENTS),
    Unit.BOOLEAN: (1.0, 1.0),
    Unit.TIMESTAMP: (1e11, 1e11),  # the year 5138
}
_COLDEST = -100.0


# each is declared once, so that it is the key of what is kept by metric
@dataclass(frozen=True, slots=True, eq=False)
class Metric:
    """One exported metric."""

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
    least: float | None = None  # least value that can be, of a histogram's event; None: the unit's
    most: float | None = None  # most that can be; None: the unit's
    suspect_above: float | None = None  # from here on it is published and suspect; None: there is no such edge
    # of a histogram, whether its finite buckets are always published; else count and sum, and the buckets where `all_buckets` asks for them
    finite_buckets: bool = True
    formerly: Formerly | None = None  # its name before a rename, under which it stands too for one minor version
    # the range in force: what is outside is not published, but absent as implausible
    bounds: Bounds = field(init=False)
    full_name: str = field(init=False)  # the name as exposed, with the prefix
    subject: Subject = field(init=False)  # what its series are about, as its labels say
    former: Metric | None = field(init=False, compare=False, repr=False)  # the same under the former name

    @property
    def identity_labels(self) -> tuple[str, ...]:
        """Those that stand on every series of it beside `labels`; with `target_labels` and labels of a target's own there are more."""
        if self.whole_identity:
            return IDENTITY_LABELS
        places = PLACE_LABELS if self.subject in (Subject.TARGET, Subject.GPU) else ()
        return tuple(name for name in places if name not in self.labels)

    def __post_init__(self) -> None:
        of_gauge, of_counter = _LARGEST[self.unit]
        least = (_COLDEST if self.unit is Unit.CELSIUS else 0.0) if self.least is None else self.least
        most = (of_counter if self.kind is Kind.COUNTER else of_gauge) if self.most is None else self.most
        subject = next((about for label, about in _SUBJECTS.items() if label in self.labels), Subject.EXPORTER)
        object.__setattr__(self, "bounds", Bounds(least, most, self.suspect_above))
        object.__setattr__(self, "full_name", PREFIX + self.name)
        object.__setattr__(self, "subject", subject)
        former = None
        if self.formerly is not None:
            help = f"{self.formerly.describe(self.full_name)} {self.help}"
            former = replace(self, name=self.formerly.name, formerly=None, help=help)
        object.__setattr__(self, "former", former)


# what a missing figure of an engine means, and where it comes from
WHY, WORKED_OUT = "signal_available has the reason", "derived"


def declare_figure(
    group: Group,
    name: str,
    unit: Unit,
    help: str,
    formula: str,
    *labels: str,
    kind: Kind = Kind.GAUGE,
    absent: str = WHY,
    most: float | None = None,
    suspect_above: float | None = None,
) -> Metric:
    """A figure of an engine that the exporter works out. `labels`: beside those of every serving series."""
    own = (*SERVING_LABELS, *labels)
    return Metric(
        name, kind, unit, group, help, own, absent, formula, WORKED_OUT, most=most, suspect_above=suspect_above
    )


def list_declared(names: Mapping[str, object]) -> tuple[Metric, ...]:
    """The metrics among a module's `globals()`, in the order of their declarations, which is that of the page."""
    return tuple(value for value in names.values() if isinstance(value, Metric))
