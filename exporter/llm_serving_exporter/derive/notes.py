"""Why signals are absent and what is not live, gathered over the engines of one target."""

from __future__ import annotations

from llm_serving_exporter.derive.latency import LATENCIES
from llm_serving_exporter.derive.slo import LATENCY_FIELDS
from llm_serving_exporter.derive.tail import SIGNALS
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
# the order in which signals are told, whatever the page has and in whichever order it was worked out
_ORDER = (
    *PASSED_THROUGH,
    "phase_tokens_per_second_prefill",
    "phase_tokens_per_second_decode",
    "phase_tokens_per_second_per_gpu",
    "batch_size_mean",
    "batch_utilization_ratio",
    "kv_cache_used_tokens",
    "prefix_cache_hit_ratio",
    "context_tokens_mean",
    "preemptions_per_second",
    *(f"latency_{name}" for name in LATENCIES),
    *SIGNALS,
    *(f"slo_{name}" for name in LATENCY_FIELDS),
    "slo_errors",
    "bandwidth_ceiling_bytes_per_second",
    "bandwidth_ceiling_ratio_gpm",
    "bandwidth_ceiling_ratio_dcgm",
    "bandwidth_ceiling_ratio_runtime",
    "bandwidth_ceiling_ratio_model",
    "decode_ceiling_tokens_per_second",
    "decode_ceiling_ratio",
    "phase_ceiling_tokens_per_second_prefill",
    "phase_ceiling_tokens_per_second_decode",
    "compute_ceiling_ratio",
    "batch_ridge_size",
    "phase_busy_ratio",
    "phase_busy_seconds_total",
    "phase_reference_seconds_per_token",
    "gpu_memory_bytes_estimate",
    "limiter",
)
# fields whose absence has a setting as its remedy
_CONFIGURABLE = frozenset({"batch_limit_requests", "context_limit_tokens"})
# what is taken from the GPUs alone, whatever runs on them
_OF_GPUS = frozenset(
    {"bandwidth_ceiling_bytes_per_second", "bandwidth_ceiling_ratio_gpm", "bandwidth_ceiling_ratio_dcgm"}
)
_WORSE = (Quality.LIVE, Quality.SLOW, Quality.LAGGING, Quality.CLIPPED, Quality.APPROXIMATE, Quality.SUSPECT)


class Notes:
    """`signals` and `quality` as `Derived` has them: available at any engine means available. `silent`: signals that the target's role
    does not have."""

    def __init__(self, later: Snapshot, silent: frozenset[str] = frozenset()) -> None:
        self.signals: dict[str, Absence] = {}
        self.quality: dict[str, Quality] = dict(later.quality)
        self._later, self._silent = later, silent

    def take(self, signal: str, outcome: object, *inputs: str) -> bool:
        """Records one outcome; True where it is a value. An Absence INPUT_MISSING is explained by the first absent input."""
        if signal in self._silent:
            self.signals[signal] = Absence.OTHER_ROLE
            return False
        if not isinstance(outcome, Absence):
            self.signals[signal] = Absence.AVAILABLE
            marked = [self.quality[name] for name in inputs if name in self.quality]
            if marked:  # no better than the worst of what it is made from
                self.quality.setdefault(signal, max(marked, key=_WORSE.index))
            return True
        if any(self.signals.get(name) is Absence.NO_METRICS for name in inputs):
            outcome = Absence.NO_METRICS
        elif outcome is Absence.INPUT_MISSING:
            for name in inputs:
                if self.signals.get(name, Absence.AVAILABLE):
                    outcome = self.signals[name]
                    break
        if self.signals.get(signal, outcome):
            self.signals[signal] = outcome
        return False

    def silent(self, signal: str) -> bool:
        """Whether the target's role does not have the signal."""
        return signal in self._silent

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

    def in_order(self) -> dict[str, Absence]:
        """The signals in the order in which they are told."""
        return {name: self.signals[name] for name in _ORDER if name in self.signals}

    def settle(self) -> None:
        """Once all is taken: where a runtime publishes nothing of its work, no setting and no model would help."""
        if self.signals.get("decode_tokens_total") is Absence.NO_METRICS:
            for signal, why in self.signals.items():
                if why not in (Absence.AVAILABLE, Absence.IDLE) and signal not in _OF_GPUS:
                    self.signals[signal] = Absence.NO_METRICS

    def _why(self, name: str) -> Absence:
        if name in self._silent:
            return Absence.OTHER_ROLE
        why = self._later.absent.get(name, Absence.NOT_EXPORTED)
        if name in _CONFIGURABLE and why not in (Absence.NO_METRICS, Absence.IDLE):
            return Absence.NOT_CONFIGURED
        return why
