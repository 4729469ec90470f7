"""Since when a counter counts, which a data point of OTLP says: nanoseconds of the Unix time."""

from __future__ import annotations

from collections.abc import Iterable

from llm_serving_exporter.catalogue import PUBLISHED
from llm_serving_exporter.catalogue.spec import Group
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.otlp.gen_ai import GEN_AI_PREFIX
from llm_serving_exporter.otlp.reading import Labels

_FROM_ENGINE = (Group.COUNTERS, Group.HISTOGRAMS)
_FROM_EXPORTER = (Group.HEALTH, Group.EXPORTER)


class Starts:
    """Start times of series. One that counts since its engine's start has that of its target; one of the exporter's own, the exporter's.

    Of others (cost that goes on after a restart, a GPU's energy) the start is not known: theirs is the first time that they are sent, as
    OpenTelemetry's data model has it ("cumulative streams: handling unknown start time"). After a fall a series starts at the point before.
    """

    def __init__(self, process_start_nanos: int) -> None:
        self._process = process_start_nanos
        # by metric and labels: what no rule knows
        self._own: dict[tuple[str, Labels], int] = {}
        # by target
        self._targets: dict[str, int] = {}
        # of targets whose start is not known: the first sending
        self._first_sent: dict[str, int] = {}

    def note_targets(self, targets: Iterable[TargetReading], now_nanos: int) -> None:
        """Takes the start times of targets that are sent now. One that was seen first while it ran counts from a time that nobody knows."""
        known = {one.target.name: find_known_start(one) for one in targets}
        self._first_sent = {
            name: self._first_sent.get(name, now_nanos) for name, start in known.items() if start is None
        }
        self._targets = self._first_sent | {
            name: int(start * 1e9) for name, start in known.items() if start is not None
        }

    def find_start(
        self, name: str, labels: Labels, count: float, earlier: float | None, now_nanos: int, before_nanos: int
    ) -> int:
        """Of one series, at most `now_nanos`. `count`: how far it is, of a histogram its events.

        `earlier`: how far it was when it was sent last, at `before_nanos`; None: it was not.
        """
        key = name, labels
        metric = PUBLISHED.get(name)
        group = metric.group if metric is not None else Group.EXPORTER
        known: int | None = None
        if group in _FROM_ENGINE or name.startswith(GEN_AI_PREFIX):
            known = self._targets.get(dict(labels).get("target", ""))
        elif group in _FROM_EXPORTER:
            known = self._process
        if earlier is not None and count < earlier and (known is None or known <= before_nanos):
            self._own[key] = before_nanos
        elif known is None:
            self._own.setdefault(key, now_nanos)
        return min(now_nanos, max(known or 0, self._own.get(key, 0)))

    def forget(self, name: str, labels: Labels) -> None:
        """Forgets a series that has ended."""
        self._own.pop((name, labels), None)

    def forget_all(self) -> None:
        """Forgets every series: all have ended."""
        self._own.clear()
        self._first_sent.clear()


def find_known_start(reading: TargetReading) -> float | None:
    """When a target's engine started, in Unix seconds, as its page says it or as its counters fell; None: it ran when it was seen first."""
    says = reading.snapshot is not None and reading.snapshot.process_start_unix_seconds is not None
    return reading.start_unix_seconds if says or reading.restarts_total > 0 else None
