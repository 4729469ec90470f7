"""A row of the signal table: what a figure is called, when it is absent and why, how far it can be trusted.

And the signals that a page has itself, and why signals are absent over the engines of a target.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypedDict, TypeVar, Unpack

from llm_serving_exporter.catalogue.serving import GAUGES
from llm_serving_exporter.catalogue.spec import Bounds, Metric
from llm_serving_exporter.derive.figures import Figure
from llm_serving_exporter.model.derived import Cause, Range
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.snapshot import (
    COUNTER_FIELDS,
    GAUGE_FIELDS,
    HISTOGRAM_FIELDS,
    LABELLED_COUNTER_FIELDS,
    Absence,
    EngineSnapshot,
    Quality,
    Snapshot,
)
from llm_serving_exporter.model.target import Role

# --- A row, and the series that it becomes.


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
K = TypeVar("K", bound=str)

NO_SENTENCES: Mapping[Absence, str] = MappingProxyType({})
NEVER_SILENT: frozenset[Role] = frozenset()
# a front end runs no model itself: it has no batch, no KV cache and no GPU
NOT_ON_A_FRONT_END = frozenset({Role.FRONTEND})

# what a figure's value may be published as: one series, one a key (the value of one label, or of several), or an estimate and its bounds
SeriesValue = float | dict[str, float] | dict[tuple[str, ...], float] | Range | None


class Series(Struct, frozen=True, eq=False):
    """How a row's value becomes the series of one metric."""

    # the catalogue's declaration; its labels beyond those of every serving series are filled from `labels` and the value's keys
    metric: Metric
    # values of the metric's own labels that are the same for the whole row, in the order of the declaration
    labels: tuple[str, ...] = ()
    # the part of the row's value that is published, of which None publishes nothing; None: the value itself
    part: Callable[[Any], SeriesValue] | None = None

    def samples(self, value: Any) -> dict[tuple[str, ...], float]:
        """Values by those of the metric's own labels; {} where there is nothing to publish."""
        labels = self.labels
        part = value if self.part is None else self.part(value)
        if type(part) is float:  # the most of them
            return {labels: part}
        if part is None:
            return {}
        if isinstance(part, Range):
            part = {"lower": part.lower, "expected": part.expected, "upper": part.upper}
        if isinstance(part, dict):
            return {
                (*labels, *key) if isinstance(key, tuple) else (*labels, key): number for key, number in part.items()
            }
        return {labels: part}


def _list_numbers(part: SeriesValue) -> Iterable[float]:
    if part is None:
        return ()
    if isinstance(part, dict):
        return part.values()
    return (part.lower, part.expected, part.upper) if isinstance(part, Range) else (part,)


@dataclass(frozen=True, slots=True, eq=False)
class Row(Generic[T_co]):
    """One row: a figure with everything that others need to know about it."""

    # what is computed: a value, or why there is none; None too is no value, for rows without a name
    figure: Figure[T_co | Absence | None]
    name: str = ""  # the signal's name in signal_available; "" for a figure whose absence another signal explains
    # fields of the page, or signals, whose own absence explains INPUT_MISSING: the first absent one's reason is this signal's too
    fields: tuple[str, ...] = ()
    # the fields that were read, where that depends on the page; the figure is no better than the worst of them. None: all of `fields`
    fields_read: Figure[tuple[str, ...]] | None = None
    explained_by: str = ""  # the field whose entry in a runtime's `missing` says why this signal is absent there; "" where there is none
    # the roles in which the figure means something else: it is neither computed nor published, and absent as OTHER_ROLE
    silent: frozenset[Role] = NEVER_SILENT
    # what to do, for the reasons of which this signal knows more than the reason's own sentence in render/sentences.py
    sentences: Mapping[Absence, str] = dataclasses.field(default_factory=lambda: NO_SENTENCES)
    # why the figure, where it is available, is less than live; None where it is as good as its fields
    quality: Figure[Quality | None] | None = None
    # the likely cause where the figure is wrong; such a figure is suspect. A row without one is suspect beyond its metric's edge
    cause: Figure[Cause | None] | None = None
    # whether it needs an engine: not computed for families that name no engine on a page of several
    of_an_engine: bool = False
    of_gpus: bool = False  # whether it is read from the GPUs alone, so that a runtime that publishes nothing of its work still has it
    series: tuple[Series, ...] = ()  # the series that its value becomes
    # whether the next tick, the bill or the limiter always reads it: worked out at every tick, everything else when somebody asks
    every_tick: bool = False
    # the range of its value, where that is all of one series; None: the series' values have to be looked at
    bounds: Bounds | None = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        alone = len(self.series) == 1 and self.series[0].part is None
        object.__setattr__(self, "bounds", self.series[0].metric.bounds if alone else None)

    def find_implausible(self, value: Any) -> tuple[str, float] | None:
        """The first of its series' values that cannot be, with the metric's name; None where all can."""
        bounds = self.bounds
        if bounds is not None and type(value) is float:  # the most of them; NaN fails every comparison
            return None if bounds.least <= value <= bounds.most else (self.series[0].metric.name, value)
        for series in self.series:
            part, bounds = value if series.part is None else series.part(value), series.metric.bounds
            for number in _list_numbers(part):
                if not bounds.least <= number <= bounds.most:
                    return series.metric.name, number
        return None

    def is_suspect(self, value: Any) -> bool:
        """Whether a value that is one series' alone lies beyond an edge of which something is wrong."""
        bounds = self.bounds
        return (
            bounds is not None and bounds.suspect_above is not None and type(value) is float and bounds.suspects(value)
        )

    def publish(self, value: Any) -> list[tuple[str, dict[tuple[str, ...], float]]]:
        """The row's series for a value of it: each metric's name and its samples, as `Series.samples` has them."""
        return [(series.metric.name, series.samples(value)) for series in self.series] if self.series else []


class RowDetails(TypedDict, total=False):
    """Fields of `Row`, as they are handed on."""

    fields: tuple[str, ...]
    fields_read: Figure[tuple[str, ...]] | None
    explained_by: str
    silent: frozenset[Role]
    sentences: Mapping[Absence, str]
    quality: Figure[Quality | None] | None
    cause: Figure[Cause | None] | None
    of_an_engine: bool
    every_tick: bool


class _OfAnEngine(TypedDict):
    silent: frozenset[Role]
    of_an_engine: bool


# what an engine's own work or GPUs give
OF_AN_ENGINE: _OfAnEngine = {"silent": NOT_ON_A_FRONT_END, "of_an_engine": True}


def gauge(metric: Metric, computed: Figure[T | Absence | None], **details: Unpack[RowDetails]) -> Row[T]:
    """The row of a signal that is one metric and has its name."""
    return Row(computed, metric.name, series=(Series(metric),), **details)


class Shown:
    """The values of one engine that its target's role has, by row."""

    def __init__(self) -> None:
        # in the order of the table
        self.figures: dict[Row[Any], Any] = {}

    def get(self, row: Row[T]) -> T | None:
        """The row's value; None where there is none."""
        value: T | None = self.figures.get(row)
        return value

    def by_key(self, rows: Mapping[K, Row[T]]) -> dict[str, T]:
        """The values of several rows under their keys, without those that are not there."""
        return {str(key): self.figures[row] for key, row in rows.items() if row in self.figures}


# --- The signals that are passed through: a field of the page under its own name, its reason where it is absent.


PASSED_THROUGH = (*COUNTER_FIELDS, *LABELLED_COUNTER_FIELDS, *HISTOGRAM_FIELDS, *GAUGE_FIELDS)
# its absence shows that the runtime publishes nothing of its work
WORK_FIELD = "decode_tokens_total"

SET_THE_BATCH_LIMIT = (
    "Set targets[].batch_limit_requests to the most requests that the engine runs at once; it does not say so itself "
    "(vLLM does with VLLM_SERVER_DEV_MODE=1, in /server_info)."
)
_SPECULATION = {Absence.NOT_EXPORTED: "Engines show it only with speculative decoding on."}


class PageField(Struct, frozen=True):
    """What is to know about a field of the page beside its value."""

    # whether a setting gives the field where the page lacks it: then it is absent as NOT_CONFIGURED
    has_setting: bool = False
    # the roles in which the field means something else: it is absent as OTHER_ROLE
    silent: frozenset[Role] = NEVER_SILENT
    # what to do, for the reasons of which this field knows more than the reason's own sentence
    sentences: Mapping[Absence, str] = field(default_factory=lambda: NO_SENTENCES)


PAGE_FIELDS: Mapping[str, PageField] = {
    **dict.fromkeys(PASSED_THROUGH, PageField()),
    "speculative_draft_tokens_total": PageField(sentences=_SPECULATION),
    "speculative_accepted_tokens_total": PageField(sentences=_SPECULATION),
    "requests_running": PageField(silent=NOT_ON_A_FRONT_END),
    "batch_limit_requests": PageField(
        has_setting=True, silent=NOT_ON_A_FRONT_END, sentences={Absence.NOT_CONFIGURED: SET_THE_BATCH_LIMIT}
    ),
    "kv_cache_usage_ratio": PageField(silent=NOT_ON_A_FRONT_END),
    "kv_cache_capacity_tokens": PageField(silent=NOT_ON_A_FRONT_END),
    "context_limit_tokens": PageField(
        has_setting=True,
        sentences={
            Absence.NOT_CONFIGURED: (
                "Set targets[].context_limit_tokens to the engine's longest context; its /v1/models does not say it."
            )
        },
    ),
}


# --- Why signals are absent and what is not live, gathered over the engines of one target.


# from the best to the worst
_WORSE = (Quality.LIVE, Quality.SLOW, Quality.LAGGING, Quality.CLIPPED, Quality.APPROXIMATE, Quality.SUSPECT)
# fields of the page beyond an edge of which something is wrong
_WITH_AN_EDGE = [(metric.name, metric.bounds) for metric in GAUGES if metric.suspect_above is not None]
# what stays as it is where a runtime publishes nothing of its work
_SAID_ALL_THE_SAME = (Absence.AVAILABLE, Absence.IDLE)


class Reasons:
    """`signals` and `quality` as `Derived` has them: a signal that any engine has is available."""

    def __init__(self, page: Snapshot, role: Role) -> None:
        """Begins with the fields of the newest page, under the target's role."""
        # by signal, in the order in which they were recorded
        self.signals: dict[str, Absence] = {}
        # of the signals that are less than live
        self.quality: dict[str, Quality] = dict(page.quality)
        self._no_metrics = False
        self._record_page(page, role)

    def _record_page(self, page: Snapshot, role: Role) -> None:
        engines = page.engines
        self._no_metrics = _has_no_metrics(page)
        for name in PAGE_FIELDS:
            self.signals[name] = _explain_field(page, role, name, no_metrics=self._no_metrics)
        for name, bounds in _WITH_AN_EDGE:  # exported as it is: hiding it would hide the fault
            if any(bounds.suspects(getattr(engine, name) or 0.0) for engine in engines):
                self.quality[name] = Quality.SUSPECT

    def record_available(self, signal: str, fields_read: Sequence[str], quality: Quality | None) -> None:
        """An engine has the signal. It is no better than the worst of the fields that it was read from; `quality` is its own."""
        self.signals[signal] = Absence.AVAILABLE
        if quality is not None:
            self.quality[signal] = quality
            return
        qualities = self.quality
        marked = [qualities[name] for name in fields_read if name in qualities]
        if marked:
            qualities.setdefault(signal, max(marked, key=_WORSE.index))

    def record_absent(self, signal: str, why: Absence, fields: Sequence[str], *, of_gpus: bool = False) -> None:
        """An engine does not have the signal; another that has it, or a later one's reason, comes before this one.

        INPUT_MISSING is explained by the first of `fields` that is absent. `of_gpus`: it is read from the GPUs alone.
        """
        reasons = [self.signals.get(name, Absence.AVAILABLE) for name in fields]
        if Absence.NO_METRICS in reasons:
            why = Absence.NO_METRICS
        elif why is Absence.INPUT_MISSING:
            why = next((reason for reason in reasons if reason), why)
        if self.signals.get(signal, why):
            self._set(signal, why, of_gpus=of_gpus)

    def record_silent(self, signal: str, *, of_gpus: bool = False) -> None:
        """The target's role does not have the signal."""
        self._set(signal, Absence.OTHER_ROLE, of_gpus=of_gpus)

    def _set(self, signal: str, why: Absence, *, of_gpus: bool = False) -> None:
        """Where a runtime publishes nothing of its work, no setting and no model would help."""
        self.signals[signal] = why if of_gpus else _say_helpless(why, no_metrics=self._no_metrics)


def explain_field(page: Snapshot, role: Role, name: str) -> Absence:
    """Why a field is absent on the page of a target in this role; AVAILABLE where an engine has it."""
    return _explain_field(page, role, name, no_metrics=_has_no_metrics(page))


def _explain_field(page: Snapshot, role: Role, name: str, *, no_metrics: bool) -> Absence:
    if role in PAGE_FIELDS[name].silent:
        return _say_helpless(Absence.OTHER_ROLE, no_metrics=no_metrics)
    if getattr(page.engines[0], name) is not None or _shown(page.engines, name):
        return Absence.AVAILABLE
    return _say_helpless(_why_not_on_page(page, name), no_metrics=no_metrics)


def _has_no_metrics(page: Snapshot) -> bool:
    """Whether the runtime publishes nothing of its work."""
    return _why_not_on_page(page, WORK_FIELD) is Absence.NO_METRICS and not _shown(page.engines, WORK_FIELD)


def _say_helpless(why: Absence, *, no_metrics: bool) -> Absence:
    return Absence.NO_METRICS if no_metrics and why not in _SAID_ALL_THE_SAME else why


def _shown(engines: Sequence[EngineSnapshot], name: str) -> bool:
    return any(getattr(engine, name) is not None for engine in engines)


def _why_not_on_page(page: Snapshot, name: str) -> Absence:
    why = page.absent.get(name, Absence.NOT_EXPORTED)
    if PAGE_FIELDS[name].has_setting and why not in (Absence.NO_METRICS, Absence.IDLE):
        return Absence.NOT_CONFIGURED
    return why
