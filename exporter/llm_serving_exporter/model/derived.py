"""What is worked out from a window: every field optional, None with its reason in `signals`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from llm_serving_exporter.model.cost import TickWork
from llm_serving_exporter.model.histogram import Quantile
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.roofline import BusySeconds, Cause, Range, Roofline, Verdict
from llm_serving_exporter.model.snapshot import Absence, LeftOut, Quality


class Latency(Struct, frozen=True):
    """Events of one latency inside the window."""

    events: float
    # None where the engine's sum is no use
    mean_seconds: float | None
    # by rank, 0 to 1
    quantiles: Mapping[float, Quantile]
    # edges of the bucket in which all quantiles lie that so many events have; None: of several, or of one without two edges
    bucket: tuple[float, float] | None = None


class SloCount(Struct, frozen=True):
    """Good and bad events of one objective since the engine started."""

    # events that kept it
    good: float
    # events that did not
    bad: float
    # the threshold as configured; None for errors
    configured_seconds: float | None = None
    # the bucket edge that divides good from bad, the largest not above the configured threshold; None for errors
    counted_seconds: float | None = None


class ServerErrors(Struct, frozen=True):
    """HTTP 5xx answers that nothing else accounts for, counted by the exporter from 0 since it first saw the engine's life."""

    # answers that neither a rejection nor a finish by error covers
    uncovered_total: float
    # what was covered before its answer was booked
    spare: float
    # the engine's count of 5xx answers at this reading
    answered: float
    # the engine's count of rejections and of finishes by error at this reading
    covered: float


class Tail(Struct, frozen=True):
    """The long-context tail of the last finished requests, from the histograms of their lengths. None, or {}: not known."""

    # how many requests
    observed: float
    # share of them whose prompt is longer than the top finite bucket edge
    beyond_top_bucket_ratio: float | None = None
    # p99 prompt over mean prompt
    amplification_ratio: float | None = None
    # share of all tokens of context that the requests with the longest 1 % of prompts have
    kv_share_ratio: Range | None = None
    # requests of p99 prompt and mean output that the KV cache holds, by bound
    requests_fit: Mapping[str, float] = field(default_factory=dict)
    # the p99 prompt in tokens
    prompt_p99: Quantile | None = None
    # the mean prompt in tokens
    prompt_mean: float | None = None
    # what the KV cache holds, as it was used here
    capacity_tokens: float | None = None
    # the longest context, as it was used here
    context_limit_tokens: float | None = None


class PublishedSeries(Protocol):
    """How a row's value becomes the series of one metric, as far as the page needs it."""

    @property
    def metric(self) -> Any:
        """The catalogue's declaration."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Values of its own labels that are the same for the whole row."""

    @property
    def part(self) -> Callable[[Any], Any] | None:
        """The part of the row's value that is published; None: the value itself."""

    def samples(self, value: Any) -> dict[tuple[str, ...], float]:
        """Values by those of the metric's labels beyond every serving series'."""


class Publishes(Protocol):
    """A row of the signal table, as far as the page needs it."""

    @property
    def series(self) -> tuple[PublishedSeries, ...]:
        """The series that its value becomes."""

    def publish(self, value: Any) -> Iterable[tuple[str, dict[tuple[str, ...], float]]]:
        """The row's series: a metric's name without prefix, and values by those of its labels beyond every serving series'."""


class EngineDerived(Struct, frozen=True):
    """Derived figures of one engine over the window. None, or {}: absent, for the reason in `Derived.signals`.

    The fields are what pages, the limiter and the cost meter read by name; `figures` has all of it. Phases are "prefill" and "decode".
    """

    model_name: str
    # the engine's label, its data-parallel rank
    engine: str
    # tokens/s by phase
    phase_tokens_per_second: Mapping[str, float] = field(default_factory=dict)
    # the same for each GPU of the engine
    phase_tokens_per_second_per_gpu: Mapping[str, float] = field(default_factory=dict)
    # decoding sequences in a step
    batch_size_mean: float | None = None
    # running requests over the engine's limit, 0 to 1
    batch_utilization_ratio: float | None = None
    # tokens that live requests hold now
    kv_cache_used_tokens: float | None = None
    # tokens that they leave free now
    kv_cache_free_tokens: float | None = None
    # tokens found over tokens looked up
    prefix_cache_hit_ratio: float | None = None
    # tokens that attention looks at for each running request
    context_tokens_mean: float | None = None
    # tokens of the KV cache held for each of them, a shared prefix once
    kv_cache_tokens_per_request: float | None = None
    preemptions_per_second: float | None = None
    # by name, as in derive/latency.py
    latency: Mapping[str, Latency] = field(default_factory=dict)
    # since the engine's start, by name, as in derive/slo.py
    slo: Mapping[str, SloCount] = field(default_factory=dict)
    # for the next tick and the errors SLO
    server_errors: ServerErrors | None = None
    # how near the engine is to what its GPUs could do
    roofline: Roofline = field(default_factory=Roofline)
    # busy time by phase
    busy: BusySeconds | None = None
    # what it did since the page before the last; None where there is no engine to do anything
    tick: TickWork | None = None
    # seconds that a token of each phase needs at the ceilings, at a fixed batch and context
    phase_reference_seconds_per_token: Mapping[str, float] = field(default_factory=dict)
    # bytes by part: weights, kv, other
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


class Derived(Struct, frozen=True):
    """Everything derived for one target at one instant."""

    # in the order of the snapshot
    engines: tuple[EngineDerived, ...]
    # the longest span that a signal really covers
    window_seconds: float
    # why each signal, passed through or derived, is absent; AVAILABLE where it is there
    signals: Mapping[str, Absence]
    # of the signals that are less than live
    quality: Mapping[str, Quality]
    # what limits the target; None for a front end
    verdict: Verdict | None = None
    # the likely cause of each suspect signal
    causes: Mapping[str, Cause] = field(default_factory=dict)
    # the span that live signals really cover; None: the longest
    live_window_seconds: float | None = None
    # figures that cannot be true; their signals are absent
    left_out: tuple[LeftOut, ...] = ()

    @property
    def kept(self) -> tuple[EngineDerived, ...]:
        """As of `Derivation`."""
        return self.engines

    @property
    def kept_left_out(self) -> tuple[LeftOut, ...]:
        """As of `Derivation`."""
        return self.left_out

    @property
    def asked_left_out(self) -> tuple[LeftOut, ...]:
        """As of `Derivation`."""
        return self.left_out

    def why_absent(self, field_name: str) -> Absence:
        """As of `Derivation`."""
        return self.signals.get(field_name, Absence.AVAILABLE)

    def whole(self) -> Derived:
        """As of `Derivation`."""
        return self


class Derivation(Protocol):
    """What is derived at a tick: what is needed of every tick, and all of it for whoever asks. `Derived` is one that knows all."""

    @property
    def kept(self) -> tuple[EngineDerived, ...]:
        """The engines, as far as the next tick and the cost meter read them: without figures that only pages have."""
        ...

    @property
    def verdict(self) -> Verdict | None:
        """As of `Derived`."""
        ...

    @property
    def window_seconds(self) -> float:
        """As of `Derived`."""
        ...

    @property
    def kept_left_out(self) -> tuple[LeftOut, ...]:
        """As `Derived.left_out`, of `kept` alone: the same whether anybody asks for the whole or not."""
        ...

    @property
    def asked_left_out(self) -> tuple[LeftOut, ...]:
        """As `Derived.left_out`, as far as anybody has asked for the whole."""
        ...

    def why_absent(self, field_name: str) -> Absence:
        """Why a field of the page is absent, as `Derived.signals` has it; AVAILABLE where it is there."""
        ...

    def whole(self) -> Derived:
        """Everything. Worked out at the first call; threads may share it."""
        ...
