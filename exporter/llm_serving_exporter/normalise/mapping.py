"""The row type: how one neutral field is read from one runtime's page. A runtime is a table of these, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.samples import SeriesKey
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role

# in `Runtime.missing`: the runtime does not tell requests that ended in an error from others
ERRORS = "slo_errors"


class Reads(Enum):
    """What a row takes from the page."""

    VALUE = "value"  # the sample's value
    HISTOGRAM = "histogram"  # `<sample>_bucket`, `_sum`, `_count`
    MEAN = "mean"  # two samples, a sum and its count: a histogram without buckets
    LABELS = "labels"  # the product of numeric labels of an info series whose value is 1
    TEXT = "text"  # a label of an info series, as it stands


class Aggregate(Enum):
    """How several samples of one identity become one value. Duplicate series are never aggregated: they void the field."""

    SUM = "sum"
    MAX = "max"
    ONE = "one"  # there may be only one


@dataclass(frozen=True, slots=True)
class Row:
    """One way to read one field.

    Rows for the same field are tried in table order; the first one whose samples are on the page and whose version
    condition holds is used. Samples are wire names with `:`; the same name with `_` is read too (an OpenMetrics scrape
    renames). Each may be a selector, `name{label="value|other"}`; "" allows a sample without the label.

    value = (sum of `samples` - sum of `minus`) x each of `times` / sum of `over` x `scale`

    With several `samples` only the first has to be there; of `times` and `over` all. `agrees`: a sample that must say the same
    within 0.02, or the field is refused as inconsistent (labels that a server fills by position shift when a value is missing).
    `where` keeps samples whose label has one of the values. `by` makes a mapping keyed by that label, its values renamed by `rename`
    (values that `rename` lacks keep their name); `named` gives samples that lack the label their key, and then any of the samples suffices.
    A key renamed to "" is left out. `labels`: numeric labels to multiply (Reads.LABELS), or the one label to take
    (Reads.TEXT, renamed by `rename`); `shared_by_engines` divides by the number of engines on the page. `times_label`: (series, label) of
    a numeric label to multiply by; in a row with `minus` it multiplies only what is subtracted. `scale` also multiplies a histogram's
    edges and sum. `sum_is_sound`: False where a histogram's sum is not what was observed; it is then not read.
    `when`: (series, label, value) that has to be on the page; `unless`: one that says that the feature is switched off there,
    which leaves the field absent as not configured.
    `versions` is when the row is right, documented; with `guarded` it is also a condition, and an unknown version then
    leaves the field absent rather than guessed, unless `proof` (series, label, value) shows the version on the page itself.
    `quality`: how far the value is true at an instant; `refresh_seconds` of a slow one: how often the engine brings it up to date;
    `freezes`: it is brought up to date only while requests end, and keeps its last value otherwise. `born_at_first_event`: a gauge that
    the page has only once something was worked on, in a runtime whose counters are born so too.
    `multiprocess_quality` replaces `quality` where several processes answer for one server (then nobody's start time is on the page).
    `may_fall`: a difference of counters that are booked at different moments; it is counted on by the exporter, from 0.
    `zero_is_unset`: 0 says that nothing is set, which leaves the field absent as not configured.
    `caveat` is what a reader of the series must know; `source` where the facts come from.
    """

    field: str
    samples: tuple[str, ...]
    reads: Reads = Reads.VALUE
    where: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    by: str | None = None
    named: Mapping[str, str] = dataclasses.field(default_factory=dict)
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    minus: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    agrees: str | None = None
    labels: tuple[str, ...] = ()
    shared_by_engines: bool = False
    times_label: tuple[str, str] | None = None
    aggregate: Aggregate = Aggregate.SUM
    scale: float = 1.0
    sum_is_sound: bool = True
    versions: str = ""
    when: tuple[str, str, str] | None = None
    unless: tuple[str, str, str] | None = None
    guarded: bool = False
    proof: tuple[str, str, str] | None = None
    quality: Quality = Quality.LIVE
    refresh_seconds: float = 0.0
    freezes: bool = False
    born_at_first_event: bool = False
    multiprocess_quality: Quality | None = None
    may_fall: bool = False
    zero_is_unset: bool = False
    caveat: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A side endpoint read at start and when the target restarts. `read` turns its JSON into facts; it must tolerate any JSON.

    `says`: what it can say, fields of ServerFacts or exported ones.
    """

    path: str
    read: Callable[[object, ServerFacts], ServerFacts]
    says: tuple[str, ...]

    @property
    def said(self) -> str:
        """`says` for a sentence."""
        return ", ".join(self.says)


Readings = tuple[tuple[SeriesKey, float], ...]


@dataclass(frozen=True, slots=True)
class Poll:
    """A JSON endpoint read at each tick. `read` turns its answer into samples, which rows then read like the page's; it must tolerate
    any JSON. `says`: what it is read for.

    `busy`: a sample of the page above 0 while the server works. The endpoint is then asked only meanwhile: asking may wake a server that
    sleeps, or keep it awake. `at_rest` makes the samples of a server at rest from those that it gave last (() before the first).
    """

    path: str
    read: Callable[[object], Readings]
    says: str
    busy: str | None = None
    at_rest: Callable[[Readings], Readings] | None = None


class PageKind(Enum):
    """What a server's metrics page is."""

    METRICS = "metrics"  # exposition text
    JSON = "json"  # an answer that `Runtime.read_page` turns into samples
    NONE = "none"  # any 200 answer: the server is there, and says nothing


@dataclass(frozen=True, slots=True)
class Mark:
    """Something on a page that tells runtimes apart: a sample or family (a name ending in `*` is a prefix), where `label` is given only
    with that label."""

    name: str
    label: str | None = None


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """All of some marks, and none of others."""

    all_of: tuple[Mark, ...]
    none_of: tuple[Mark, ...] = ()


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that is known about one runtime's page.

    `prefixes`: what its own families begin with (wire names with `:`). `fingerprints`: any of them identifies its page; () = only
    the setting `runtime` does. `model_labels`, `engine_labels`: labels of identity, the first that a series has; `replica_label`: where one
    page shows several replicas, what tells them apart. `rank_labels` number the processes of one engine that each report
    the same: of series that differ in nothing else one counts (the largest; of histograms the lowest rank's). `only`: label -> values of
    the series that are read at all ("" = without the label); `never`: label -> values of those that are not. `living`: a sample without
    which an identity is a replica that has gone (where no identity has it, all are kept). `born_at_first_event`: counters and histograms
    have no sample before their first event, so that one that appears has counted from 0. `respelt`: (prefix, other prefix) pairs: how the
    runtime may write its names otherwise.
    `unnamed`: values of model labels that name no model. `any_case`: names of models that differ in nothing but capitals are one model's,
    which is spelt as the one with the most of them.
    `start_sample`: unix time of process start. `significant_digits`: that numbers are printed with, None = all.
    `ignored`: families known and not read (prefixes allowed with `*`). `paths`: where its metrics page may be, likeliest first.
    `kind` and `read_page`: what the page is; `read_page` gives () for JSON of its that says nothing, None for JSON that is not its.
    `without_metrics`: nothing but its rows can be known of it, and a page with any sample is its, also with nothing loaded.
    `adds`: its samples that are increments, which the exporter adds up from 0; `stays`: those that hold on while an answer has no
    samples at all. `polls`: asked at each tick. `shows`: (path, whether its JSON is this
    runtime's) where the page has nothing of its own. `role`: of every such target, None = unified unless the page
    or the configuration says otherwise. `default_edges`: bucket edges of an unconfigured server by SLO name, for configuration
    warnings only. `missing`: why a field has no row, or ERRORS, for people. `versions`: that the table is made for; `covered`: those
    that recorded pages show ("" = none: made from the facts).
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    prefixes: tuple[str, ...] = ()
    fingerprints: tuple[Fingerprint, ...] = ()
    model_labels: tuple[str, ...] = ()
    engine_labels: tuple[str, ...] = ()
    replica_label: str | None = None
    rank_labels: tuple[str, ...] = ()
    only: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    never: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    living: str | None = None
    born_at_first_event: bool = False
    respelt: tuple[tuple[str, str], ...] = ()
    unnamed: frozenset[str] = frozenset()
    any_case: bool = False
    start_sample: str | None = None
    significant_digits: int | None = None
    paths: tuple[str, ...] = ("/metrics",)
    kind: PageKind = PageKind.METRICS
    without_metrics: bool = False
    read_page: Callable[[object], Readings | None] | None = None
    adds: frozenset[str] = frozenset()
    stays: frozenset[str] = frozenset()
    endpoints: tuple[Endpoint, ...] = ()
    polls: tuple[Poll, ...] = ()
    shows: tuple[tuple[str, Callable[[object], bool]], ...] = ()
    ignored: tuple[str, ...] = ()
    role: Role | None = None
    default_edges: Mapping[str, tuple[float, ...]] = dataclasses.field(default_factory=dict)
    missing: Mapping[str, str] = dataclasses.field(default_factory=dict)
    versions: str = ""
    covered: str = ""
