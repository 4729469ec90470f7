"""Counts of a front door by tenant, under names that may be published.

The counters are the exporter's own: they begin at 0 when it begins to read a front door, and a gateway's restart does not make them fall.
So a tenant that has a row of its own after a restart of the exporter, and was among the others before, makes no counter jump.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable
from threading import Lock

from llm_serving_exporter.files.key_file import KeyFileError, read_key_file
from llm_serving_exporter.model.samples import Samples
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
from llm_serving_exporter.model.text import clean
from llm_serving_exporter.normalise.mapping import Runtime
from llm_serving_exporter.normalise.tenants import (
    RawCounts,
    RawTenant,
    TenantPlan,
    find_labels,
    plan_tenants,
    read_tenants,
)
from llm_serving_exporter.targets.several_servers import WITHIN_INTERVALS

LONGEST_NAME = 80
HEX_DIGITS = 16
# of one front door: names that clients ask for are theirs to choose
MOST_MODELS = 100
# a counter that is new stays at 0 so long, so that a scrape sees it there: what it was born with would be in no increase()
FROM_ZERO_SECONDS = 60.0
# something before and after an "@", as it is or as a URL writes it: whatever looks like an address is treated as one
_ADDRESS = re.compile(r"[^\s@]+(?:@|%40|\uff20|\ufe6b)[^\s@]+", re.IGNORECASE)


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
        if not raw:
            return UNLABELLED
        name = self._disguise(raw)
        if name == WITHHELD:
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
        return WITHHELD if _ADDRESS.search(raw) else clean(raw, LONGEST_NAME)


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


class TenantCounter:
    """Adds up one front door's counts by tenant. `count` is called for each good page, in their order."""

    def __init__(self, names: TenantNames, settle_seconds: float) -> None:
        self.names = names
        # after a fall of counters it is not known for so long whether this is a restart or another worker
        self._settle_seconds = settle_seconds
        self._plan: TenantPlan | None = None
        # as pages had them last; None before the first page
        self._last: dict[RawTenant, dict[str, float]] | None = None
        # by served model and published name
        self._sums: dict[tuple[str, str], dict[str, float]] = {}
        # served models with rows of their own
        self._models: set[str] = set()
        # monotonic seconds at which each began
        self._began: dict[tuple[str, str], float] = {}
        # growth since the last fall, and when that was; it counts once it is known that one server answers
        self._held: dict[tuple[str, str], dict[str, float]] = {}
        self._fell_at: float | None = None
        # whether the page before came from several servers
        self._doubtful = False

    def count(self, runtime: Runtime, samples: Samples, snapshot: Snapshot) -> TenantReading:
        """Counts one page; what has been counted so far."""
        settings = self.names.settings
        if self._plan is None or self._plan.layout is not samples.layout:
            self._plan = plan_tenants(
                runtime, samples.layout, snapshot, find_labels(runtime, settings.by, settings.label)
            )
        now, raw = snapshot.monotonic_seconds, read_tenants(self._plan, samples)
        self._settle(now, raw, fell=self._doubtful or self._has_fallen(raw))
        self._doubtful = False
        into = self._sums if self._fell_at is None else self._held
        first, last = self._last is None, self._last or {}
        # the largest of a page first: those have rows of their own, whichever of two exporters reads it
        for one in sorted(raw, key=lambda one: (-sum(raw[one].values()), one)):
            key = self._name_model(one[0]), self.names.publish(one[1])
            self._began.setdefault(key, now)
            sums, begun = into.setdefault(key, {}), self._sums.setdefault(key, {})
            for name, value in raw[one].items():
                before = value if first else last.get(one, {}).get(name, 0.0)
                begun.setdefault(name, 0.0)
                # a counter that fell began again at 0
                sums[name] = sums.get(name, 0.0) + (value - before if value >= before else value)
        # a series that is missing for a moment goes on where it was
        self._last = {**last, **{one: {**last.get(one, {}), **counts} for one, counts in raw.items()}}
        return TenantReading(settings.by, self._list_rows(now), self._plan.signals)

    def forget_pages(self) -> None:
        """To be called where pages came from several servers in turn: nothing since the first fall counts, and counting begins again."""
        self._last, self._held, self._doubtful = None, {}, True

    def _has_fallen(self, raw: RawCounts) -> bool:
        last = self._last or {}
        return any(
            value < last.get(one, {}).get(name, 0.0) for one, counts in raw.items() for name, value in counts.items()
        )

    def _settle(self, now: float, raw: RawCounts, *, fell: bool) -> None:
        if fell:
            self._fell_at = now
        elif self._fell_at is not None and now - self._fell_at >= self._settle_seconds:
            for key, counts in self._held.items():
                for name, value in counts.items():
                    self._sums[key][name] = self._sums[key].get(name, 0.0) + value
            self._held, self._fell_at = {}, None
            # what the server no longer had after its restart
            self._last = {one: counts for one, counts in (self._last or {}).items() if one in raw}

    def _name_model(self, model: str) -> str:
        served = self.names.settings.aliases.get(model, model)
        if served not in self._models and len(self._models) >= MOST_MODELS:
            return OTHER
        self._models.add(served)
        return served

    def _list_rows(self, now: float) -> tuple[TenantRow, ...]:
        return tuple(
            TenantRow(
                model,
                tenant,
                counts if now - self._began[model, tenant] >= FROM_ZERO_SECONDS else dict.fromkeys(counts, 0.0),
            )
            for (model, tenant), counts in sorted((key, dict(counts)) for key, counts in self._sums.items())
        )


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
