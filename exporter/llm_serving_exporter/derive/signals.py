"""A row of the signal table: what a figure is called, when it is absent and why, how far it can be trusted, and which series it becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from llm_serving_exporter.catalogue.bounds import Bounds
from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.derive.figures import Figure
from llm_serving_exporter.model.derived import Cause, Range
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Absence, Quality
from llm_serving_exporter.model.target import Role

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
            return {(*labels, *key) if isinstance(key, tuple) else (*labels, key): one for key, one in part.items()}
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
    # the signal's name in signal_available; "" for a figure whose absence another signal explains
    name: str = ""
    # fields of the page, or signals, whose own absence explains INPUT_MISSING: the first absent one's reason is this signal's too
    fields: tuple[str, ...] = ()
    # the fields that were read, where that depends on the page; the figure is no better than the worst of them. None: all of `fields`
    fields_read: Figure[tuple[str, ...]] | None = None
    # the field whose entry in a runtime's `missing` says why this signal is absent there; "" where there is none
    explained_by: str = ""
    # the roles in which the figure means something else: it is neither computed nor published, and absent as OTHER_ROLE
    silent: frozenset[Role] = NEVER_SILENT
    # what to do, for the reasons of which this signal knows more than the reason's own sentence in render/sentences.py
    sentences: Mapping[Absence, str] = field(default_factory=lambda: NO_SENTENCES)
    # why the figure, where it is available, is less than live; None where it is as good as its fields
    quality: Figure[Quality | None] | None = None
    # the likely cause where the figure is wrong; such a figure is suspect. A row without one is suspect beyond its metric's edge
    cause: Figure[Cause | None] | None = None
    # whether it needs an engine: not computed for families that name no engine on a page of several
    of_an_engine: bool = False
    # whether it is read from the GPUs alone, so that a runtime that publishes nothing of its work still has it
    of_gpus: bool = False
    # the series that its value becomes
    series: tuple[Series, ...] = ()
    # whether the next tick, the bill or the limiter always reads it: worked out at every tick, everything else when somebody asks
    kept: bool = False
    # the range of its value, where that is all of one series; None: the series' values have to be looked at
    bounds: Bounds | None = field(init=False)

    def __post_init__(self) -> None:
        alone = len(self.series) == 1 and self.series[0].part is None
        object.__setattr__(self, "bounds", self.series[0].metric.bounds if alone else None)

    def find_implausible(self, value: Any) -> tuple[str, float] | None:
        """The first of its series' values that cannot be, with the metric's name; None where all can."""
        bounds = self.bounds
        if bounds is not None and type(value) is float:  # the most of them; NaN fails every comparison
            return None if bounds.least <= value <= bounds.most else (self.series[0].metric.name, value)
        for one in self.series:
            part, bounds = value if one.part is None else one.part(value), one.metric.bounds
            for number in _list_numbers(part):
                if not bounds.least <= number <= bounds.most:
                    return one.metric.name, number
        return None

    def is_suspect(self, value: Any) -> bool:
        """Whether a value that is one series' alone lies beyond an edge of which something is wrong."""
        bounds = self.bounds
        return (
            bounds is not None and bounds.suspect_above is not None and type(value) is float and bounds.suspects(value)
        )

    def publish(self, value: Any) -> list[tuple[str, dict[tuple[str, ...], float]]]:
        """The row's series for a value of it: each metric's name and its samples, as `Series.samples` has them."""
        return [(one.metric.name, one.samples(value)) for one in self.series] if self.series else []


def gauge(
    metric: Metric,
    computed: Figure[T | Absence | None],
    *,
    fields: tuple[str, ...] = (),
    fields_read: Figure[tuple[str, ...]] | None = None,
    explained_by: str = "",
    silent: frozenset[Role] = NEVER_SILENT,
    sentences: Mapping[Absence, str] = NO_SENTENCES,
    quality: Figure[Quality | None] | None = None,
    cause: Figure[Cause | None] | None = None,
    of_an_engine: bool = False,
    kept: bool = False,
) -> Row[T]:
    """The row of a signal that is one metric and has its name; the arguments are fields of `Row`."""
    return Row(
        computed,
        metric.name,
        fields,
        fields_read,
        explained_by=explained_by,
        silent=silent,
        sentences=sentences,
        quality=quality,
        cause=cause,
        of_an_engine=of_an_engine,
        series=(Series(metric),),
        kept=kept,
    )


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
