"""Why signals are absent and what is not live, gathered over the engines of one target."""

from __future__ import annotations

from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    Quality,
    Snapshot,
)

PASSED_THROUGH = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS)
# fields whose absence has a setting as its remedy
_CONFIGURABLE = frozenset({"batch_limit_requests", "context_limit_tokens"})
_WORSE = (Quality.LIVE, Quality.SLOW, Quality.LAGGING, Quality.CLIPPED, Quality.APPROXIMATE, Quality.SUSPECT)


class Notes:
    """`signals` and `quality` as `Derived` has them: available at any engine means available."""

    def __init__(self, later: Snapshot) -> None:
        self.signals: dict[str, Absence] = {}
        self.quality: dict[str, Quality] = dict(later.quality)
        self._later = later

    def take(self, signal: str, outcome: object, *inputs: str) -> bool:
        """Records one outcome; True where it is a value. An Absence INPUT_MISSING is explained by the first absent input."""
        if not isinstance(outcome, Absence):
            self.signals[signal] = Absence.AVAILABLE
            # no better than the worst of what it is made from
            worst = max(
                (self.quality.get(name, Quality.LIVE) for name in inputs), key=_WORSE.index, default=Quality.LIVE
            )
            if worst is not Quality.LIVE:
                self.quality.setdefault(signal, worst)
            return True
        if outcome is Absence.INPUT_MISSING:
            for name in inputs:
                if self.signals.get(name, Absence.AVAILABLE):
                    outcome = self.signals[name]
                    break
        if self.signals.get(signal, outcome):
            self.signals[signal] = outcome
        return False

    def passed_through(self) -> None:
        """Records every field of the snapshot."""
        engines = self._later.engines
        for name in PASSED_THROUGH:
            for engine in engines:
                if getattr(engine, name) is not None:
                    self.signals[name] = Absence.AVAILABLE
                    break
            else:
                self.signals[name] = self._why(name)
        if any((engine.kv_cache_usage_ratio or 0.0) > 1.0 for engine in engines):
            self.quality["kv_cache_usage_ratio"] = Quality.SUSPECT  # exported as it is: hiding it would hide the fault

    def _why(self, name: str) -> Absence:
        if name in _CONFIGURABLE:
            return Absence.NOT_CONFIGURED
        return self._later.absent.get(name, Absence.NOT_EXPORTED)
