"""The row type: how one neutral field is read from one runtime's page. A runtime is a table of these, nothing else."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any

from llm_serving_exporter.model import record
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.sample import SeriesKey
from llm_serving_exporter.model.snapshot import Quality, ServerFacts
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.tenants import TenantKind

Version = tuple[int, ...]

_LEADING = re.compile(r"\s*[vb]?(\d+(?:\.\d+)*)")
_CLAUSE = re.compile(r"(>=|<=|<|>)(\d+(?:\.\d+)*)\Z")


def parse_version(text: str | None) -> Version | None:
    """The leading numbers of a version ("0.32.1rc1.dev5+gabc" -> (0, 32, 1), "b11434-pypi" -> (11434,)); None where there are none."""
    match = _LEADING.match(text or "")
    return tuple(int(part) for part in match[1].split(".")[:4]) if match else None


def satisfies(version: Version, versions: str) -> bool:
    """Whether a version satisfies every comma-separated clause (">=0.9,<0.13"); "" is satisfied by all.

    Raises ValueError for a clause that is not `>=`, `>`, `<=` or `<` and numbers.
    """
    for clause in filter(None, (part.strip() for part in versions.split(","))):
        match = _CLAUSE.match(clause)
        if match is None:
            raise ValueError(f"not a version clause: {clause!r}")
        bound = tuple(int(part) for part in match[2].split("."))
        width = max(len(bound), len(version))
        left, right = version + (0,) * (width - len(version)), bound + (0,) * (width - len(bound))
        if not {">=": left >= right, "<=": left <= right, "<": left < right, ">": left > right}[match[1]]:
            return False
    return True


SAMPLE = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_SELECTOR = re.compile(rf"({SAMPLE.pattern})(?:\{{(.*)\}})?")
_LABEL_VALUES = re.compile(rf'\s*({LABEL.pattern})="([^"\\]*)"\s*')


class Selector(Struct, frozen=True):
    """A sample by name and labels."""

    name: str  # wire name with `:`
    # label -> allowed values; "" allows a sample without the label
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)


@lru_cache(maxsize=4096)
def selector(text: str) -> Selector:
    """Reads a selector. Raises ValueError with what is wrong."""
    match = _SELECTOR.fullmatch(text)
    if match is None:
        raise ValueError(f'{text!r} is not a sample name, with labels as in name{{label="value|other"}} or without')
    where: dict[str, frozenset[str]] = {}
    for part in (match[2] or "").split(",") if match[2] else ():
        label = _LABEL_VALUES.fullmatch(part)
        if label is None:
            raise ValueError(f'{text!r}: {part!r} is not a label such as source="local_compute"')
        where[label[1]] = frozenset(label[2].split("|"))
    return Selector(match[1], where)


# fields that do not add up over series: two engines' ratios, limits, capacities and sizes are nobody's
NOT_ADDITIVE = frozenset(
    {
        "kv_cache_usage_ratio", "kv_cache_capacity_tokens", "kv_block_tokens", "context_limit_tokens", "batch_limit_requests",
        "accepted_tokens_per_step", "awake",
    }
)  # fmt: skip
# begin families of every Python or Go process, which say nothing about what it serves
OF_A_PROCESS = ("python_", "process_", "go_", "promhttp_")
# in `Runtime.missing`: the runtime does not tell requests that ended in an error from others
ERRORS = "slo_errors"
# where most servers answer 200 while they serve, and nothing else
USUAL_HEALTH = "/health"


class Reads(Enum):
    """What a row takes from the page."""

    VALUE = "value"  # the sample's value
    HISTOGRAM = "histogram"  # `<sample>_bucket`, `_sum`, `_count`
    MEAN = "mean"  # two samples, a sum and its count: a histogram without buckets
    LABELS = "labels"  # the product of numeric labels of an info series whose value is 1
    TEXT = "text"  # a label of an info series, as it stands
    PRESENCE = "presence"  # 1 where the sample, or a histogram of that name, is on the page, whatever its value


class Aggregate(Enum):
    """How several samples of one identity become one value. Duplicate series are never aggregated: they void the field."""

    SUM = "sum"
    MAX = "max"
    ONE = "one"  # there may be only one
    SAME = "same"  # all of them say the same, or it is not known which is right


class FirstToken(Enum):
    """Whose a front door's time to first token is, and of which requests."""

    CLIENT = "client"  # from the request's arrival at the front door: the user's, of every request
    CLIENT_OF_STREAMS = "client_of_streams"  # likewise, of streams only
    # from the call to the server behind it, of streams only: the engine's side, as the front door sees it
    UPSTREAM_OF_STREAMS = "upstream_of_streams"

    @property
    def is_clients(self) -> bool:
        """Whether it lasts from the request's arrival at the front door."""
        return self is not FirstToken.UPSTREAM_OF_STREAMS


class Row(record.Struct, frozen=True):
    """One way to read one field.

    Rows for the same field are tried in table order. The first one is used whose samples are on the page and whose version condition
    holds. Samples are wire names with `:`; the same name with `_` is read too (an OpenMetrics scrape renames). Each may be a selector,
    `name{label="value|other"}`; "" allows a sample without the label.

    value = (sum of `samples` - sum of `minus`) x each of `times` / sum of `over` x `scale`
    """

    field: str  # of EngineSnapshot
    samples: tuple[str, ...]  # added up; where there are several, only the first has to be on the page
    reads: Reads = Reads.VALUE
    # samples whose label has another value are left out
    where: Mapping[str, frozenset[str]] = record.field(default_factory=dict)
    by: str | None = None  # makes a mapping whose keys are this label's values
    # keys of samples that lack the label of `by`; any of the samples then suffices
    named: Mapping[str, str] = record.field(default_factory=dict)
    # of values of `by`: see `rename_value`; one that it lacks keeps its name, one renamed to "" is left out
    rename: Mapping[str, str] = record.field(default_factory=dict)
    minus: tuple[str, ...] = ()  # samples that are subtracted
    times: tuple[str, ...] = ()  # samples that multiply; all have to be there
    over: tuple[str, ...] = ()  # samples that divide; all have to be there
    # must be the same within 0.02, or the field is refused: labels filled by position shift when a value is missing
    agrees: str | None = None
    # numeric ones to multiply (Reads.LABELS), or the one to read, renamed by `rename` (Reads.TEXT)
    labels: tuple[str, ...] = ()
    shared_by_engines: bool = False  # divides by the number of engines on the page
    of_a_context_part: bool = False  # multiplies by the parts that context parallelism cuts a sequence's KV into
    # (series, label) whose number multiplies; in a row with `minus`, what is subtracted
    times_label: tuple[str, str] | None = None
    # of several series of one engine; None: SUM, or SAME where they are NOT_ADDITIVE
    aggregate: Aggregate | None = None
    scale: float = 1.0  # to base units; multiplies a histogram's edges and sum too
    sum_is_sound: bool = True  # False: a histogram's sum is not what was observed, and is not read
    versions: str = ""  # when the row is right, as documentation; with `guarded` it is a condition
    when: tuple[str, str, str] | None = None  # (series, label, value) that has to be on the page
    # likewise, says that the feature is switched off: absent as not configured
    unless: tuple[str, str, str] | None = None
    guarded: bool = False  # `versions` must hold, unless `proof` is on the page; an unknown one leaves the field absent
    proof: tuple[str, str, str] | None = None  # shows the version on the page itself
    quality: Quality = Quality.LIVE  # how far the value is true at an instant
    refresh_seconds: float = 0.0  # how often the engine updates a value of quality slow
    freezes: bool = False  # the engine updates it only while requests end
    decode_only: bool = False  # the engine updates it only as it decodes
    born_at_first_event: bool = False  # a gauge that comes only after some work, as the runtime's counters do
    # where several processes answer for a server: its page has no start time
    multiprocess_quality: Quality | None = None
    may_fall: bool = False  # a difference of counters booked at different moments; the exporter counts it on, from 0
    zero_is_unset: bool = False  # 0: nothing is set; absent as not configured
    caveat: str = ""  # what a reader of the series must know
    source: str = ""  # where the facts come from

    def rename_value(self, value: str) -> str | None:
        """What `rename` makes of a label's value: its own entry, else that of an HTTP status' class, "4xx"; None where there is neither."""
        if value in self.rename or len(value) != 3 or not (value.isascii() and value.isdigit()):
            return self.rename.get(value)
        return self.rename.get(f"{value[0]}xx")


class Endpoint(record.Struct, frozen=True):
    """A side endpoint, read at start and when the target restarts."""

    path: str
    read: Callable[[object, ServerFacts], ServerFacts]  # must tolerate any JSON
    says: tuple[str, ...]  # fields of ServerFacts, or exported ones

    @property
    def summary(self) -> str:
        """`says` for a sentence."""
        return ", ".join(self.says)


Readings = tuple[tuple[SeriesKey, float], ...]


class Poll(record.Struct, frozen=True):
    """A JSON endpoint that is read at each tick."""

    path: str
    read: Callable[[object], Readings]  # into samples, which rows read like those of the page; must tolerate any JSON
    says: str
    # a sample of the page that is above 0 while the server works. The endpoint is then read only meanwhile: a request
    # may wake a sleeping server, or keep it awake
    busy: str | None = None
    # of a server at rest, made of those that it gave last (() before the first)
    at_rest: Callable[[Readings], Readings] | None = None


class PageKind(Enum):
    """What a server's metrics page is."""

    METRICS = "metrics"  # exposition text
    JSON = "json"  # an answer that `Runtime.read_page` turns into samples
    NONE = "none"  # any 200 answer: the server is there, and says nothing


class Mark(record.Struct, frozen=True):
    """Something on a page that identifies its runtime."""

    name: str  # a sample or family; ending in `*`, a prefix
    label: str | None = None  # counts only with this label; None: with any


class Fingerprint(record.Struct, frozen=True):
    """All of some marks, and none of others."""

    all_of: tuple[Mark, ...]
    none_of: tuple[Mark, ...] = ()


class Flags(record.Struct, frozen=True):
    """Flags of an engine's command line, with `-` for `_`."""

    batch_limit: tuple[str, ...]  # spellings of the one for the most requests that run at once
    unless: tuple[str, ...] = ()  # with any of these that is not the limit of one engine
    source: str = ""  # where the facts come from
    # others for requests beyond which none is taken, so that no more run; a batch's limit may be lower
    bounds: tuple[str, ...] = ()

    @property
    def every(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.batch_limit, *self.unless)


class Runtime(record.Struct, frozen=True):
    """Everything that is known about one runtime's page."""

    name: str  # as the setting `runtime` and the label spell it
    title: str  # as its makers spell it
    rows: tuple[Row, ...]
    prefixes: tuple[str, ...] = ()  # of its own families (wire names with `:`)
    fingerprints: tuple[Fingerprint, ...] = ()  # any of them identifies its page; (): only the setting `runtime` does
    model_labels: tuple[str, ...] = ()  # the first that a series has names its model
    engine_labels: tuple[str, ...] = ()  # the first that a series has names its engine
    replica_label: str | None = None  # distinguishes replicas where one page shows several
    # number the processes of one engine that each report the same. Of series that differ in nothing else one counts:
    # the largest, of histograms that of the lowest rank
    rank_labels: tuple[str, ...] = ()
    # series without one of the label's values ("": without the label) are not read
    only: Mapping[str, frozenset[str]] = record.field(default_factory=dict)
    # series with one of the label's values are not read
    never: Mapping[str, frozenset[str]] = record.field(default_factory=dict)
    # label -> regular expression of its whole value, "" of a label that is not there: a series of which all labels of one of these fit is
    # of a question that no user asked, such as this exporter's own, and is not read
    not_users: tuple[Mapping[str, str], ...] = ()
    living: str | None = None  # a sample that each living replica has; one without it is gone, unless none has it
    # counters and histograms, too, come with their first event, having counted from 0
    born_at_first_event: bool = False
    respelt: tuple[tuple[str, str], ...] = ()  # (prefix, other prefix): other spellings of its names
    unnamed: frozenset[str] = frozenset()  # values of model labels that name no model
    any_case: bool = False  # names that differ in capitals only are one model, spelt with the most capitals
    start_sample: str | None = None  # Unix time of the process's start
    significant_digits: int | None = None  # of the numbers that it prints; None: all
    paths: tuple[str, ...] = ("/metrics",)  # where its metrics page may be, likeliest first
    health: str = USUAL_HEALTH  # answers 200 while the server serves, also where its page fails; without side effects
    kind: PageKind = PageKind.METRICS
    # only its rows can be known; a page with any sample is its page, also with nothing loaded
    without_metrics: bool = False
    # JSON into samples: () for its own that says nothing, None for JSON of something else
    read_page: Callable[[object], Readings | None] | None = None
    adds: frozenset[str] = frozenset()  # samples that are increments, which the exporter adds up from 0
    stays: frozenset[str] = frozenset()  # samples that stay valid while an answer has no samples at all
    endpoints: tuple[Endpoint, ...] = ()  # at start and after a restart
    polls: tuple[Poll, ...] = ()  # at each tick
    flags: Flags | None = None
    # path, and whether its JSON is this runtime's, where the page has nothing of its own
    shows: tuple[tuple[str, Callable[[object], bool]], ...] = ()
    ignored: tuple[str, ...] = ()  # families that are known and not read (prefixes with `*`)
    role: Role | None = None  # of every such target; None: unified, unless the page or the configuration says otherwise
    # of a front door; None: none, or nobody knows whose. Objectives count the client's only
    first_token: FirstToken | None = None
    several_workers: str = ""  # how to make workers that answer in turn count together; a sentence
    # the labels that name one; the first that says anything is taken
    tenants: Mapping[TenantKind, tuple[str, ...]] = record.field(default_factory=dict)
    no_tenant: frozenset[str] = frozenset({""})  # values of those labels that name nobody
    # method of a quantised checkpoint, or family of models -> versions that keep the KV cache as it wants, and go on saying "auto"; of a
    # family they may go on saying "fp8" too. "modelopt/fp8_e4m3": of such a checkpoint this format alone
    kv_as_calibrated: Mapping[str, str] = record.field(default_factory=dict)
    # of an unconfigured server by SLO; only for warnings about the configuration
    default_edges: Mapping[str, tuple[float, ...]] = record.field(default_factory=dict)
    missing: Mapping[str, str] = record.field(default_factory=dict)  # why a field, or ERRORS, has no row; for people
    versions: str = ""  # that the table is made for
    covered: str = ""  # versions that recorded pages show; "": none, the table is made from the facts
    recorded: tuple[str, ...] = ()  # recordings in tests/captures that it was held against; (): none
    hooks: str = ""  # the name in `hooks.HOOKS` of what takes code; "": none


class Hooks(record.Struct, frozen=True):
    """What of a table takes code; a field that is a column of `Runtime` has the column's meaning."""

    endpoints: tuple[Endpoint, ...] = ()
    polls: tuple[Poll, ...] = ()
    shows: tuple[tuple[str, Callable[[object], bool]], ...] = ()
    read_page: Callable[[object], Readings | None] | None = None
    adds: frozenset[str] = frozenset()
    stays: frozenset[str] = frozenset()
    without_metrics: bool = False
    # with the built-in tables before it: the whole table, made of the rows of others
    complete: Callable[[Runtime, Mapping[str, Runtime]], Runtime] | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns that they give."""
        given = {name: getattr(self, name) for name in record.name_fields(self) if name != "complete"}
        page = {"kind": PageKind.JSON} if self.read_page is not None else {}
        return {**page, **{name: content for name, content in given.items() if content}}
