"""Why signals are absent and what is not live, gathered over the engines of one target."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.catalogue.serving import GAUGES
from llm_serving_exporter.derive.page_fields import PAGE_FIELDS, WORK_FIELD
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, Quality, Snapshot
from llm_serving_exporter.model.target import Role

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
        known = self.quality
        marked = [known[name] for name in fields_read if name in known]
        if marked:
            known.setdefault(signal, max(marked, key=_WORSE.index))

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
