"""Whether two targets of one pod are one engine: a proxy in the pod that passes the engine's page on at a port of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from llm_serving_exporter.derive.window import read_counts
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Snapshot
from llm_serving_exporter.model.target import Target

_Counts = Mapping[tuple[str, ...], float]


class _Page(Struct, frozen=True):
    """What a page said of its engine."""

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
        return {name: kept for name, (kept, _) in self._repeats.items()}

    def update(self, readings: Iterable[TargetReading]) -> bool:
        """Looks at the latest readings; whether `repeats` has changed. A target that repeats another need not be read any more."""
        pods: dict[str, list[TargetReading]] = {}
        for reading in readings:
            if reading.target.identity.pod_uid:
                pods.setdefault(reading.target.identity.pod_uid, []).append(reading)
        names = {(reading.target.name, uid) for uid, own in pods.items() for reading in own}
        before = self._repeats
        self._repeats = {name: (kept, uid) for name, (kept, uid) in before.items() if (kept, uid) in names}
        shared = {uid: own for uid, own in pods.items() if len(own) > 1}
        self._note_pages(reading for own in shared.values() for reading in own)
        for uid, own in shared.items():
            ordered = sorted((reading.target for reading in own), key=_rank)
            for place, kept in enumerate(ordered):
                for other in ordered[place + 1 :]:
                    if kept.name not in self._repeats and self._is_same(kept.name, other.name):
                        self._repeats.setdefault(other.name, (kept.name, uid))
        return self._repeats != before

    def _note_pages(self, readings: Iterable[TargetReading]) -> None:
        pages = {}
        for reading in readings:
            name, snapshot = reading.target.name, reading.page.snapshot
            known = self._pages.get(name, ())
            if snapshot is not None and snapshot.process_start_unix_seconds is not None:
                page = _Page(snapshot.process_start_unix_seconds, snapshot.monotonic_seconds, _flatten(snapshot))
                if not known or known[-1].monotonic_seconds != page.monotonic_seconds:
                    known = (*known, page)[-2:]
            pages[name] = known
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
    found: dict[tuple[str, ...], float] = {}
    for key, value in read_counts(snapshot).items():
        if isinstance(value, Mapping):
            found |= {(*key, label): count for label, count in value.items()}
        elif isinstance(value, Histogram):
            found[key] = value.count
        else:
            found[key] = value
    return found


def _lies_between(page: _Page, around: tuple[_Page, ...]) -> bool:
    if len(around) < 2 or {one.start_unix_seconds for one in around} != {page.start_unix_seconds}:
        return False
    low, high = around
    if not low.monotonic_seconds <= page.monotonic_seconds <= high.monotonic_seconds:
        return False
    if page.counts.keys() != high.counts.keys() or not any(page.counts.values()):
        return False
    return all(low.counts.get(key, 0.0) <= count <= high.counts[key] for key, count in page.counts.items())
