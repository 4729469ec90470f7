"""The row type: how one neutral field is read from one runtime's page. A runtime is a table of these, nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from llm_serving_exporter.model.facts import ServerFacts
from llm_serving_exporter.model.snapshot import Quality


class Reads(Enum):
    """What a row takes from the page."""

    VALUE = "value"  # the sample's value
    HISTOGRAM = "histogram"  # `<sample>_bucket`, `_sum`, `_count`
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
    condition holds is used. `samples` are wire names with `:`; the same name with `_` is read too (an OpenMetrics scrape
    renames). With several names their values are added; only the first has to be there. `minus` is subtracted.
    `where` keeps samples whose label has one of the values. `by` makes a mapping keyed by that label, its values renamed by `rename`
    (values that `rename` lacks keep their name). `labels`: numeric labels to multiply (Reads.LABELS), or the one label to take
    (Reads.TEXT); `shared_by_engines` divides by the number of engines on the page. `times_label`: (series, label) of a numeric
    label to multiply by; in a row with `minus` it multiplies only what is subtracted. `when`: (series, label, value) that has to be on the
    page; `unless`: one that says that the feature is switched off there, which leaves the field absent as not configured.
    `versions` is when the row is right, documented; with `guarded` it is also a condition, and an unknown version then
    leaves the field absent rather than guessed, unless `proof` (series, label, value) shows the version on the page itself.
    `multiprocess_quality` replaces `quality` where several processes answer for one server (then nobody's start time is on the page).
    `may_fall`: a difference of counters that are booked at different moments; it is counted on by the exporter, from 0.
    `caveat` is what a reader of the series must know; `source` where the facts come from.
    """

    field: str
    samples: tuple[str, ...]
    reads: Reads = Reads.VALUE
    where: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    by: str | None = None
    rename: Mapping[str, str] = dataclasses.field(default_factory=dict)
    minus: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    shared_by_engines: bool = False
    times_label: tuple[str, str] | None = None
    aggregate: Aggregate = Aggregate.SUM
    scale: float = 1.0
    versions: str = ""
    when: tuple[str, str, str] | None = None
    unless: tuple[str, str, str] | None = None
    guarded: bool = False
    proof: tuple[str, str, str] | None = None
    quality: Quality = Quality.LIVE
    multiprocess_quality: Quality | None = None
    may_fall: bool = False
    caveat: str = ""
    source: str = ""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A side endpoint read at start and when the target restarts. `read` turns its JSON into facts; it must tolerate any JSON."""

    path: str
    read: Callable[[object, ServerFacts], ServerFacts]
    says: str


@dataclass(frozen=True, slots=True)
class Runtime:
    """Everything that is known about one runtime's page.

    `prefixes`: what its own families begin with (wire names with `:`). `fingerprint`: samples that only this runtime has, any
    of which identifies it. `model_label`, `engine_label`: labels of identity. `start_sample`: unix time of process start.
    `ignored`: families known and not read (prefixes allowed with `*`). `paths`: where its metrics page may be, likeliest first.
    `default_edges`: bucket edges of an unconfigured server by SLO name, for configuration warnings only.
    """

    name: str
    title: str
    prefixes: tuple[str, ...]
    fingerprint: tuple[str, ...]
    rows: tuple[Row, ...]
    model_label: str
    engine_label: str | None
    start_sample: str | None
    paths: tuple[str, ...]
    endpoints: tuple[Endpoint, ...]
    ignored: tuple[str, ...]
    default_edges: Mapping[str, tuple[float, ...]]
    versions: str
