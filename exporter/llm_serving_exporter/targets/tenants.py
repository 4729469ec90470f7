"""Counts of a front door by tenant, under names that may be published.

The counters are the exporter's own: they begin at 0 when it begins to read a front door, and a gateway's restart does not make them fall.
So a tenant that has a row of its own after a restart of the exporter, and was among the others before, makes no counter jump.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from threading import Lock

from llm_serving_exporter.catalogue.spec import MOST_EVENTS
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.tenants import Key, TenantPlan, find_labels, plan_tenants
from llm_serving_exporter.files.watched import KeyFileError, read_key_file
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.sample import Samples
from llm_serving_exporter.model.snapshot import Snapshot
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.tenants import (
    OTHER,
    SHORTEST_KEY_BYTES,
    UNLABELLED,
    WITHHELD,
    TenantKind,
    TenantReading,
    TenantRow,
    TenantSettings,
)
from llm_serving_exporter.model.text import clean, has_address
from llm_serving_exporter.targets.several_servers import WITHIN_INTERVALS

# --- Names that may be published: never an address or a key, printable, and only so many of them.


LONGEST_NAME = 80
HEX_DIGITS = 16
# as OpenAI and LiteLLM make keys: somebody may have written one where a name belongs
_API_KEY = re.compile(r"(?<![A-Za-z0-9])sk-(?=[\w-]{0,60}\d)[\w-]{16}")


class TenantNames:
    """Names that may be published, of all front doors of one process. Threads may share it.

    The first `limit` tenants have names of their own, which they keep; all later ones are `other`. Without a key that can be read where one
    is asked for, every tenant is `withheld`.
    """

    def __init__(self, settings: TenantSettings) -> None:
        self.settings = settings
        self.key = _read_key(settings.key_file)
        self._lock = Lock()
        # published names of their own, in the order of their first sight
        self._own: set[str] = set()

    def publish(self, raw: str) -> str:
        """The name under which a tenant may be published. `raw`: as the page has it, "" for none."""
        if not raw or raw.isspace():
            return UNLABELLED
        name = self._disguise(raw)
        if name in (WITHHELD, OTHER, UNLABELLED):
            return name
        with self._lock:
            if name not in self._own:
                if len(self._own) >= self.settings.limit:
                    return OTHER
                self._own.add(name)
        return name

    def _disguise(self, raw: str) -> str:
        if self.settings.key_file is not None:
            return hash_name(self.key, raw) if self.key is not None else WITHHELD
        secret = has_address(raw) or _API_KEY.search(raw)
        return WITHHELD if secret else clean(raw, LONGEST_NAME)


def hash_name(key: bytes, name: str) -> str:
    """The first hex digits of HMAC-SHA256 (RFC 2104) of a name: the same name has the same, and without the key none can be tried."""
    return hmac.new(key, name.encode(errors="surrogatepass"), hashlib.sha256).hexdigest()[:HEX_DIGITS]


def make_names(settings: TenantSettings, before: TenantNames | None) -> TenantNames | None:
    """Names by a configuration; None where tenants are off. Those of before go on where neither it nor the key has changed."""
    if settings.by is TenantKind.OFF:
        return None
    if before is not None and before.settings == settings and before.key == _read_key(settings.key_file):
        return before
    return TenantNames(settings)


def _read_key(path: str | None) -> bytes | None:
    try:
        return None if path is None else read_key_file(path, SHORTEST_KEY_BYTES)
    except KeyFileError:
        # it was there when the configuration was checked
        return None


# --- Counts under these names.


# of one front door: names that clients ask for are theirs to choose
MOST_MODELS = 100
# series that are on the page no more, so that a gateway which forgets the idle is followed, and does not fill the memory either
MOST_GONE = 20_000
# a counter that is new stays at 0 so long, so that a scrape sees it there: what it was born with would be in no increase()
FROM_ZERO_SECONDS = 60.0

# (model, tenant, name of the series), as published
Row = tuple[str, str, str]


class TenantCounter:
    """Adds up one front door's counts by tenant. `count` is called for each good page, in their order.

    Series by series, not tenant by tenant: a tenant has several (of statuses, of providers), and one that goes, or is no number for a
    moment, must not look like a fall of what they add up to.
    """

    def __init__(self, names: TenantNames, settle_seconds: float) -> None:
        self.names = names
        # after a fall of counters it is not known for so long whether this is a restart or another worker
        self._settle_seconds = settle_seconds
        self._plan: TenantPlan | None = None
        # by series of the plan: the row that it adds to
        self._rows: tuple[Row, ...] = ()
        # by series of the plan: its last count; None where none is known yet, so that the first that is begins at 0
        self._last: list[float | None] = []
        # the same of series that were on pages before
        self._gone: dict[Key, float] = {}
        # whether a page has been read, since which a series that is new began at 0
        self._begun = False
        self._sums: dict[Row, float] = {}
        # served models with rows of their own
        self._models: set[str] = set()
        # monotonic seconds at which each began
        self._began: dict[Row, float] = {}
        # growth since the last fall, and when that was; it counts once it is known that one server answers
        self._held: dict[Row, float] = {}
        self._fell_at: float | None = None
        # counts before the first of the falls that are not settled, and by how much those of them fell that did
        self._before_fall: dict[Key, float] = {}
        self._depth: dict[Key, float] = {}
        # whether the page before came from several servers
        self._doubtful = False

    def count(self, runtime: Runtime, samples: Samples, snapshot: Snapshot) -> TenantReading:
        """Counts one page; what has been counted so far."""
        settings = self.names.settings
        now = snapshot.monotonic_seconds
        if self._plan is None or self._plan.layout is not samples.layout:
            labels = find_labels(runtime, settings.by, settings.label)
            self._follow(plan_tenants(runtime, samples.layout, snapshot, labels), samples)
        assert self._plan is not None
        values = [samples.values[source.place] for source in self._plan.sources]
        self._settle(now, values)
        into = self._sums if self._fell_at is None else self._held
        for index, (row, value, before) in enumerate(zip(self._rows, values, self._last, strict=True)):
            # NaN and infinities fail the comparison
            if not 0 <= value <= MOST_EVENTS:
                continue
            self._began.setdefault(row, now)
            self._sums.setdefault(row, 0.0)
            if before is not None:
                # a counter that fell began again at 0
                into[row] = into.get(row, 0.0) + (value - before if value >= before else value)
            self._last[index] = value
        self._begun = True
        return TenantReading(settings.by, tuple(self._list_rows(now)), self._plan.signals)

    def forget_pages(self) -> None:
        """To be called where pages came from several servers in turn: nothing since the first fall counts, and counting begins again."""
        self._last, self._gone, self._begun = [None] * len(self._last), {}, False
        self._held, self._before_fall, self._doubtful = {}, {}, True

    def _follow(self, plan: TenantPlan, samples: Samples) -> None:
        """Takes up a page of another layout: what is known of its series, and the rows that they add to."""
        counts = {**self._gone, **self._list_known()}
        # one that is new began at 0, but on the first page of all nothing is known of what was before
        new = 0.0 if self._begun else None
        self._last = [counts.pop(source.key, new) for source in plan.sources]
        self._gone = dict(islice(counts.items(), max(0, len(counts) - MOST_GONE), None))
        self._plan = plan
        sums: dict[tuple[str, str], float] = {}
        for source in plan.sources:
            value = samples.values[source.place]
            sums[source.raw] = sums.get(source.raw, 0.0) + (value if 0 <= value <= MOST_EVENTS else 0.0)
        # the largest of a page first: those have rows of their own, whichever of two exporters reads it
        names = {
            raw: (self._name_model(raw[0]), self.names.publish(raw[1]))
            for raw in sorted(sums, key=lambda raw: (-sums[raw], raw))
        }
        self._rows = tuple((*names[source.raw], source.key[0]) for source in plan.sources)

    def _list_known(self) -> dict[Key, float]:
        sources = self._plan.sources if self._plan is not None else ()
        return {source.key: value for source, value in zip(sources, self._last, strict=True) if value is not None}

    def _settle(self, now: float, values: Sequence[float]) -> None:
        """Notes a fall, and decides about the last: what grew since counts after a while without another, not where counters came back."""
        fallen = self._find_fallen(values)
        if fallen or self._doubtful:
            if self._fell_at is None:
                self._before_fall, self._depth = self._list_known(), fallen
                self._before_fall.update(self._gone)
                # what a server no longer has after its restart begins at 0
                self._gone = {}
            self._fell_at, self._doubtful = now, False
        elif self._fell_at is not None and self._have_returned(values):
            self._resume()
        elif self._fell_at is not None and now - self._fell_at >= self._settle_seconds:
            for row, value in self._held.items():
                self._sums[row] += value
            self._held, self._before_fall, self._fell_at = {}, {}, None

    def _find_fallen(self, values: Sequence[float]) -> dict[Key, float]:
        sources = self._plan.sources if self._plan is not None else ()
        return {
            source.key: last - value
            for source, value, last in zip(sources, values, self._last, strict=True)
            if last is not None and 0 <= value < last
        }

    def _have_returned(self, values: Sequence[float]) -> bool:
        """Whether counters that fell are back where they were, at one stroke: those of a restarted server climb."""
        assert self._plan is not None
        jump = met = 0.0
        for source, value, last in zip(self._plan.sources, values, self._last, strict=True):
            if source.key in self._depth:
                if not value >= self._before_fall[source.key]:
                    return False
                met, jump = met + 1, jump + value - (last or 0.0)
        return 0 < met == len(self._depth) and jump >= add_up(self._depth.values()) / 2

    def _resume(self) -> None:
        """Goes on from the counts before the fall: the pages since were another worker's."""
        assert self._plan is not None
        before, sources = self._before_fall, self._plan.sources
        self._last = [before.pop(source.key, last) for source, last in zip(sources, self._last, strict=True)]
        self._gone.update(before)
        self._held, self._before_fall, self._fell_at = {}, {}, None

    def _name_model(self, model: str) -> str:
        settings = self.names.settings
        served = settings.aliases.get(model, model)
        if served in self._models or served in settings.aliases.values():
            return served
        if len(self._models) >= MOST_MODELS:
            return OTHER
        self._models.add(served)
        return served

    def _list_rows(self, now: float) -> Iterator[TenantRow]:
        rows: dict[tuple[str, str], dict[str, float]] = {}
        for (model, tenant, name), value in self._sums.items():
            young = now - self._began[model, tenant, name] < FROM_ZERO_SECONDS
            rows.setdefault((model, tenant), {})[name] = 0.0 if young else value
        for model, tenant in sorted(rows):
            yield TenantRow(model, tenant, rows[model, tenant])


class Tenants:
    """The tenants of one target, as far as they are wanted: by the names that are in force at each page."""

    def __init__(self, names: Callable[[], TenantNames | None], interval_seconds: float) -> None:
        self._names = names
        self._settle_seconds = WITHIN_INTERVALS * interval_seconds
        self._counter: TenantCounter | None = None

    def count(self, runtime: Runtime, samples: Samples, snapshot: Snapshot) -> TenantReading | None:
        """What has been counted with this page. None where tenants are off, or the server is an engine, to which no tenant is known.

        For adapters engines are looked at too, so that they say that their pages do not count them.
        """
        names = self._names()
        if names is None or (runtime.role is not Role.FRONTEND and names.settings.by is not TenantKind.ADAPTER):
            self._counter = None
            return None
        if self._counter is None or self._counter.names is not names:
            self._counter = TenantCounter(names, self._settle_seconds)
        return self._counter.count(runtime, samples, snapshot)

    def forget_pages(self) -> None:
        """As `TenantCounter.forget_pages`."""
        if self._counter is not None:
            self._counter.forget_pages()
