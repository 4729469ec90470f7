"""Where targets and servers are not one to one: several servers behind one address, one engine behind two targets, ranks of one replica."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from llm_serving_exporter.derive.window import START_TOLERANCE_SECONDS, read_counts
from llm_serving_exporter.gpus.attribution import shares_experts
from llm_serving_exporter.model.numbers import Histogram, add_up
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import FailureReason, Page, Stage
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import COUNTER_FIELDS, ServerFacts, Snapshot
from llm_serving_exporter.model.target import ReplicaPart, Siblings, Target
from llm_serving_exporter.targets.page_source import FailedTickError

# --- Several servers that answer at one address in turn, as a Service or a load balancer in front of replicas makes them, or as the
# workers of one server do that share no counters.


# within so many intervals of the target, this many process starts that go back, or this many falls of counters, are several servers: one
# of either is a restart or a failover
WITHIN_INTERVALS = 20
STARTS_THAT_GO_BACK, FALLS_OF_COUNTERS = 2, 3

_DETAIL = "several servers answer here in turn (a Service or load balancer?); list each replica as a target of its own"
_WORKERS = "several workers answer here in turn, each with counters of its own"


class SeveralServers:
    """Remembers the signs of several servers behind one target's address. Their counters are nobody's: no series is better than a mixture.

    `check_start` is called for each page, `check_fall` for each that shows a new engine life. Both raise FailedTickError, with the reason
    `several_servers`, as long as there are too many signs; after WITHIN_INTERVALS without one, pages are believed again.
    """

    def __init__(self, interval_seconds: float) -> None:
        self._span_seconds = WITHIN_INTERVALS * interval_seconds
        # monotonic seconds of the last pages whose process had started before that of the page before
        self._went_back: tuple[float, ...] = ()
        # the same of pages whose counters had fallen, of servers that do not say when they started
        self._fell: tuple[float, ...] = ()
        # unix seconds, as the last page that has it says; None before
        self._last_start: float | None = None
        # all counters of the last page added up, and whether it was refused
        self._last_sum, self._refused = 0.0, False

    def check_start(self, snapshot: Snapshot, page: Page, several_workers: str) -> None:
        """Notes a process start that goes back: time does not, so that this is another server.

        `several_workers`: what to do where they may be workers of one server of this kind; "": its kind has none.
        """
        start, last = snapshot.process_start_unix_seconds, self._last_start
        self._last_start = start if start is not None else last
        if start is not None and last is not None and start < last - START_TOLERANCE_SECONDS:
            self._went_back = (*self._went_back, snapshot.monotonic_seconds)[-STARTS_THAT_GO_BACK:]
        self._go_on_counting(snapshot)
        self._refuse(self._went_back, STARTS_THAT_GO_BACK, snapshot, page, several_workers)
        self._refuse(self._fell, FALLS_OF_COUNTERS, snapshot, page, several_workers)

    def check_fall(self, snapshot: Snapshot, page: Page, several_workers: str, *, answered_before: bool) -> None:
        """Notes that counters fell. It counts only of a server that does not say when it started, and that answered at the tick before."""
        if snapshot.process_start_unix_seconds is None and answered_before:
            self._fell = (*self._fell, snapshot.monotonic_seconds)[-FALLS_OF_COUNTERS:]
            self._refuse(self._fell, FALLS_OF_COUNTERS, snapshot, page, several_workers)

    def _go_on_counting(self, snapshot: Snapshot) -> None:
        """Notes falls while pages are refused too, or after a while a mixture would be believed until it has fallen often enough again."""
        if snapshot.process_start_unix_seconds is not None:
            return
        counted = [getattr(engine, name) for engine in snapshot.engines for name in COUNTER_FIELDS]
        now = add_up([value for value in counted if isinstance(value, float)])
        if self._refused and now < self._last_sum:
            self._fell = (*self._fell, snapshot.monotonic_seconds)[-FALLS_OF_COUNTERS:]
        self._last_sum, self._refused = now, False

    def _refuse(
        self, signs: tuple[float, ...], most: int, snapshot: Snapshot, page: Page, several_workers: str
    ) -> None:
        if sum(snapshot.monotonic_seconds - seconds < self._span_seconds for seconds in signs) >= most:
            self._refused = True
            detail = f"{_WORKERS}: {several_workers}; or else {_DETAIL}" if several_workers else _DETAIL
            raise FailedTickError(Stage.NORMALISE, FailureReason.SEVERAL_SERVERS, detail, page.status, page)


# --- Two targets of one pod that are one engine: a proxy in the pod that passes the engine's page on at a port of its own.


_Counts = Mapping[tuple[str, ...], float]


class _Page(Struct, frozen=True):
    start_unix_seconds: float  # of the server's process
    monotonic_seconds: float  # when the page came
    counts: _Counts  # every counter


class SameEngines:
    """Compares the pages of targets that share a pod. Used by one thread at a time.

    Two are one engine where their processes started in the same instant, and every counter of the one, read between two readings of the
    other, lies between its two values; at least one of them has counted something.
    """

    def __init__(self) -> None:
        # the last two pages of each target that shares its pod, the older one first
        self._pages: dict[str, tuple[_Page, ...]] = {}
        # target -> the one that it repeats, and the uid of their pod
        self._repeats: dict[str, tuple[str, str]] = {}

    @property
    def repeats(self) -> dict[str, str]:
        """Names of targets that show another one's engine -> the name of that one."""
        return {name: other for name, (other, _) in self._repeats.items()}

    def update(self, readings: Iterable[TargetReading]) -> bool:
        """Looks at the latest readings; whether `repeats` has changed. A target that repeats another need not be read any more."""
        pods: dict[str, list[TargetReading]] = {}
        for reading in readings:
            if reading.target.identity.pod_uid:
                pods.setdefault(reading.target.identity.pod_uid, []).append(reading)
        names = {(reading.target.name, uid) for uid, in_pod in pods.items() for reading in in_pod}
        before = self._repeats
        self._repeats = {name: (kept, uid) for name, (kept, uid) in before.items() if (kept, uid) in names}
        shared = {uid: in_pod for uid, in_pod in pods.items() if len(in_pod) > 1}
        self._note_pages(reading for in_pod in shared.values() for reading in in_pod)
        for uid, in_pod in shared.items():
            ordered = sorted((reading.target for reading in in_pod), key=_rank)
            for place, kept in enumerate(ordered):
                for other in ordered[place + 1 :]:
                    if kept.name not in self._repeats and self._is_same(kept.name, other.name):
                        self._repeats.setdefault(other.name, (kept.name, uid))
        return self._repeats != before

    def _note_pages(self, readings: Iterable[TargetReading]) -> None:
        pages = {}
        for reading in readings:
            name, snapshot = reading.target.name, reading.page.snapshot
            last = self._pages.get(name, ())
            if snapshot is not None and snapshot.process_start_unix_seconds is not None:
                page = _Page(snapshot.process_start_unix_seconds, snapshot.monotonic_seconds, _flatten(snapshot))
                if not last or last[-1].monotonic_seconds != page.monotonic_seconds:
                    last = (*last, page)[-2:]
            pages[name] = last
        self._pages = pages

    def _is_same(self, one: str, other: str) -> bool:
        first, second = self._pages[one], self._pages[other]
        return any(
            _lies_between(page, around) for pages, around in ((first, second), (second, first)) for page in pages
        )


def _rank(target: Target) -> tuple[bool, str]:
    """The engine's own container asks for its GPUs; a proxy has none."""
    return target.gpu_count is None, target.name


def _flatten(snapshot: Snapshot) -> _Counts:
    counts: dict[tuple[str, ...], float] = {}
    for key, value in read_counts(snapshot).items():
        if isinstance(value, Mapping):
            counts |= {(*key, label): count for label, count in value.items()}
        elif isinstance(value, Histogram):
            counts[key] = value.count
        else:
            counts[key] = value
    return counts


def _lies_between(page: _Page, around: tuple[_Page, ...]) -> bool:
    if len(around) < 2 or {other.start_unix_seconds for other in around} != {page.start_unix_seconds}:
        return False
    low, high = around
    if not low.monotonic_seconds <= page.monotonic_seconds <= high.monotonic_seconds:
        return False
    if page.counts.keys() != high.counts.keys() or not any(page.counts.values()):
        return False
    return all(low.counts.get(key, 0.0) <= count <= high.counts[key] for key, count in page.counts.items())


# --- Targets that are ranks of one replica, and what their siblings are doing.


# replica, model and role, which its targets have in common
_Key = tuple[str, str, str]


class ReplicaBook:
    """The parts of replicas among the targets of one process. Ticks may ask and note side by side."""

    def __init__(self) -> None:
        # by the name of the target, of those alone that are part of a replica and answer
        self._keys: dict[str, _Key] = {}
        # by replica and target, what was last read of its ranks
        self._read: dict[_Key, dict[str, Siblings]] = {}

    def note(self, reading: TargetReading) -> ReplicaPart | None:
        """What a reading says of its target's place in a replica; None where the target is a replica by itself."""
        part, name = find_part(reading), reading.target.name
        if part is None or not part.replica or not reading.page.up or reading.page.snapshot is None:
            self.forget(name)
            return part
        key = (part.replica, reading.server.model_name, reading.role.value)
        if self._keys.get(name) != key:
            self.forget(name)
            self._keys[name] = key
        running = add_up(engine.requests_running or 0.0 for engine in reading.page.snapshot.engines if engine.is_engine)
        self._read.setdefault(key, {})[name] = Siblings(part.shown, running)
        read = part.shown + self._add_siblings(name, key).ranks
        return replace(part, read=min(part.ranks, read))

    def find_siblings(self, name: str) -> Siblings | None:
        """The other parts of a target's replica; None for a target that is none, or that does not answer."""
        key = self._keys.get(name)
        return None if key is None else self._add_siblings(name, key)

    def forget(self, name: str) -> None:
        """A target is gone, or does not answer."""
        key = self._keys.pop(name, None)
        if key is not None and (parts := self._read.get(key)) is not None:
            parts.pop(name, None)
            if not parts:
                self._read.pop(key, None)

    def keep_only(self, names: Collection[str]) -> None:
        """Forgets every other target."""
        for name in [*self._keys]:
            if name not in names:
                self.forget(name)

    def _add_siblings(self, name: str, key: _Key) -> Siblings:
        others = [read for other, read in [*self._read.get(key, {}).items()] if other != name]
        return Siblings(add_up([sibling.ranks for sibling in others]), add_up([sibling.requests for sibling in others]))


def find_part(reading: TargetReading) -> ReplicaPart | None:
    """A target's place in a replica of more ranks than its page shows: only where ranks share experts. Those of a dense model are whole
    copies, and each serves without the others."""
    target, facts = reading.target, reading.server.facts
    ranks = target.data_parallel_size or (None if facts.all_ranks_shown else facts.data_parallel_size)
    if not ranks or ranks == 1 or reading.page.snapshot is None:
        return None
    shown = add_up(engine.is_engine for engine in reading.page.snapshot.engines) or 1
    if shown >= ranks or not shares_experts(target, facts) or not _has_experts(reading, target, facts):
        return None
    return ReplicaPart(name_replica(target), ranks, shown, shown)


def name_replica(target: Target) -> str:
    """What the targets of a replica have in common; "" where nothing says it."""
    place = target.identity
    return target.group or target.replica or (f"{place.namespace}/{place.workload}" if place.workload else "")


def _has_experts(reading: TargetReading, target: Target, facts: ServerFacts) -> bool:
    models = [model for model in reading.server.models.values() if isinstance(model, ModelFacts)]
    if models:
        return any(model.geometry.experts for model in models)
    return bool(target.experts_shared or facts.experts_spread)
