"""What is worked out from a window: every field optional, None with its reason in `signals`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.histogram import Quantile
from llm_serving_exporter.model.roofline import BusySeconds, Cause, Range, Roofline, Verdict
from llm_serving_exporter.model.snapshot import Absence, Quality


@dataclass(frozen=True, slots=True)
class Latency:
    """Events of one latency inside the window: how many, their mean (seconds, None where the sums are no use), and quantiles."""

    events: float
    mean_seconds: float | None
    quantiles: Mapping[float, Quantile]


@dataclass(frozen=True, slots=True)
class SloCount:
    """Good and bad events since the engine started; `configured_seconds` and `counted_seconds` are None for errors.

    `counted_seconds` is the bucket edge that really divides good from bad: the largest one not above the configured threshold.
    """

    good: float
    bad: float
    configured_seconds: float | None = None
    counted_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class ServerErrors:
    """HTTP 5xx answers that nothing else accounts for, counted by the exporter from 0 since it first saw the engine's life.

    `answered` and `covered` are the engine's counts at this reading, `spare` what was covered before its answer was booked.
    """

    uncovered_total: float
    spare: float
    answered: float
    covered: float


@dataclass(frozen=True, slots=True)
class Tail:
    """The long-context tail of the last finished requests, from the histograms of their lengths.

    `observed` requests. `beyond_top_bucket_ratio`: share of them whose prompt lies above the top finite bucket edge. `amplification_ratio`:
    p99 prompt over mean prompt. `kv_share_ratio`: share of the tokens of context that the longest 1 % have. `requests_fit`: requests of
    p99 prompt and mean output that the KV cache holds, by bound. `capacity_tokens` and `context_limit_tokens`: what it was
    worked out with.
    """

    observed: float
    beyond_top_bucket_ratio: float | None = None
    amplification_ratio: float | None = None
    kv_share_ratio: Range | None = None
    requests_fit: Mapping[str, float] = field(default_factory=dict)
    prompt_p99: Quantile | None = None
    capacity_tokens: float | None = None
    context_limit_tokens: float | None = None


class Publishes(Protocol):
    """A row of the signal table, as far as the page needs it."""

    def publish(self, value: Any) -> Iterable[tuple[str, dict[tuple[str, ...], float]]]:
        """The row's series: a metric's name without prefix, and values by those of its labels beyond every serving series'."""


@dataclass(frozen=True, slots=True)
class EngineDerived:
    """Derived figures of one engine over the window. Phases are keyed "prefill" and "decode". `tick`: since the page before the last, None
    where there is no engine to do anything."""

    model_name: str
    engine: str
    phase_tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    phase_tokens_per_second_per_gpu: Mapping[str, float] = field(default_factory=dict)
    batch_size_mean: float | None = None
    batch_utilization_ratio: float | None = None
    kv_cache_used_tokens: float | None = None
    kv_cache_free_tokens: float | None = None
    prefix_cache_hit_ratio: float | None = None
    context_tokens_mean: float | None = None
    preemptions_per_second: float | None = None
    latency: Mapping[str, Latency] = field(default_factory=dict)
    slo: Mapping[str, SloCount] = field(default_factory=dict)
    server_errors: ServerErrors | None = None
    roofline: Roofline = field(default_factory=Roofline)
    busy: BusySeconds | None = None
    tick: TickWork | None = None
    phase_reference_seconds_per_token: Mapping[str, float] = field(default_factory=dict)
    gpu_memory_bytes: Mapping[str, float] = field(default_factory=dict)
    tail: Tail | None = None
    # every figure that the role has, by its row of the signal table
    figures: Mapping[Any, Any] = field(default_factory=dict)

    @property
    def series(self) -> dict[str, dict[tuple[str, ...], float]]:
        """What is published: by metric's name without prefix, then by the values of its labels beyond those of every serving series.

        Put together when somebody asks, at a scrape: most ticks are never scraped.
        """
        found: dict[str, dict[tuple[str, ...], float]] = {}
        for row, value in self.figures.items():
            for metric, samples in row.publish(value):
                if metric in found:
                    found[metric].update(samples)
                else:
                    found[metric] = samples
        return found


@dataclass(frozen=True, slots=True)
class Derived:
    """Everything derived for one target at one instant.

    `signals`: every signal, passed through or derived -> why it is absent ("" = available). `quality`: the signals whose
    quality is not live. `window_seconds`: the span really covered. `verdict`: what limits the target. `causes`: the likely reason
    of each suspect signal.
    """

    engines: tuple[EngineDerived, ...]
    window_seconds: float
    signals: Mapping[str, Absence]
    quality: Mapping[str, Quality]
    verdict: Verdict | None = None
    causes: Mapping[str, Cause] = field(default_factory=dict)
