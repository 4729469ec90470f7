"""Whether several servers answer at one address in turn, as a Service or a load balancer in front of replicas makes them, or as the
workers of one server do that share no counters."""

from __future__ import annotations

from llm_serving_exporter.derive.window import START_TOLERANCE_SECONDS
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.sample import FailureReason, Page, Stage
from llm_serving_exporter.model.snapshot import COUNTER_FIELDS, Snapshot
from llm_serving_exporter.targets.page_source import FailedTickError

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
