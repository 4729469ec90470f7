"""What a window's work is held against: the engine's roof, the work, and the context that its decode read."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.derive.context import estimate_context
from llm_serving_exporter.derive.figures import figure
from llm_serving_exporter.derive.inputs import EARLIER, HARDWARE, MODEL, RANKS, WINDOW, Settings, window_by
from llm_serving_exporter.derive.roof import Roof
from llm_serving_exporter.derive.signals import NOT_ON_A_FRONT_END, Row
from llm_serving_exporter.derive.steps import list_step_fields
from llm_serving_exporter.derive.traffic import Work, measure_work
from llm_serving_exporter.model.derived import EngineDerived, Range
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Siblings
from llm_serving_exporter.model.window import EngineWindow, EngineWindows

# what work is counted from: what is wrong with these fields is wrong with every figure of it
WORK_FIELDS = ("inter_token_latency_seconds", "prefill_tokens_total")
# so much more or less of the other ranks' work changes no roof: what follows from it would be worked out again at each tick
_SAME_RANKS = 0.05
_NO_CONTEXT = Range(0.0, 0.0, 0.0)  # prefill alone needs no context length


class Task(Struct, frozen=True):
    """Work with the roof that it was done under."""

    # the ceilings of the engine's GPUs for its model
    roof: Roof
    # what the engine did in the window
    done: Work


class Load(Struct, frozen=True):
    """A task with the context that its decode read."""

    # the ceilings of the engine's GPUs for its model
    roof: Roof
    # what the engine did in the window
    done: Work
    # tokens of context a decoding sequence; zeros where nothing was decoded
    context: Range
    # where the context comes from, "" where nothing was decoded
    context_source: str


def make_roof(model: ModelFacts | Absence, hardware: Hardware) -> Roof | Absence:
    """The roof of one engine, or what it lacks."""
    if isinstance(model, Absence):
        return model
    if model.geometry.reads_unknown:
        return Absence.ARCHITECTURE_UNKNOWN
    if isinstance(hardware.peaks, Absence):
        return hardware.peaks
    if hardware.parallel is None:
        return Absence.LAYOUT_UNREAD if hardware.layout_unread else Absence.GPUS_UNKNOWN
    if not hardware.peaks.bandwidth_bytes_per_second:
        return Absence.PEAK_UNKNOWN
    return Roof(model, hardware.peaks, hardware.parallel)


def _roof(
    model: ModelFacts | Absence, hardware: Hardware, earlier: EngineDerived | None, busy_ranks: float | None
) -> Roof | Absence:
    """That of the tick before where nothing has changed: it has worked out what follows from it alone."""
    known: Roof | None = earlier.figures.get(ROOF_ROW) if earlier is not None else None
    if busy_ranks is not None and hardware.parallel is not None:
        hardware = replace(hardware, parallel=replace(hardware.parallel, busy_ranks=_keep_ranks(busy_ranks, known)))
    if known is not None and known.model is model and known.parallel == hardware.parallel:
        peaks = hardware.peaks
        if known.peaks is peaks or known.peaks == peaks:
            return known
    return make_roof(model, hardware)


def average_ranks(windows: Sequence[EngineWindows], settings: Settings) -> Siblings | None:
    """All ranks that share the engines' experts, as far as they are read: how many, and the mean of the requests that run on them.

    None where they share none, and where a page does not say what runs. To be asked once for all engines of a page.
    """
    parallel = settings.hardware.parallel
    # with fewer, nothing says which of the ranks they are
    if parallel is None or parallel.data == 1 or parallel.sharing_ranks != parallel.data:
        return None
    page = [one.configured for one in windows if one.configured.last.is_engine]
    running = [mean for one in page if (mean := one.mean("requests_running")) is not None]
    # engines of several models are no ranks of one replica
    if not page or len(running) < len(page) or len({one.last.model_name for one in page}) > 1:
        return None
    others = settings.siblings or Siblings()
    return Siblings(len(page) + others.ranks, add_up(running) + others.requests)


def _busy_ranks(
    model: ModelFacts | Absence, hardware: Hardware, window: EngineWindow, ranks: Siblings | None
) -> float | None:
    """Requests of all ranks over those of this one; None where it shares no experts, or nothing runs on it.

    Those that nobody reads are taken for as busy as those that are read: of one rank alone, that is as many times its own as there are.
    """
    if ranks is None or hardware.parallel is None or isinstance(model, Absence) or not model.geometry.experts:
        return None
    own = window.mean("requests_running")
    if not own:
        return None
    data = hardware.parallel.data
    busy = max(1.0, ranks.requests / own * max(1.0, data / ranks.ranks))
    return None if abs(busy / data - 1) <= _SAME_RANKS else busy


def _keep_ranks(busy_ranks: float, known: Roof | None) -> float:
    """What was taken before, where that is as good as the same: a roof is not worked out again for every request more or less."""
    before = known.parallel.busy_ranks if known is not None else None
    return before if before is not None and abs(busy_ranks / before - 1) <= _SAME_RANKS else busy_ranks


def _is_encoder(model: ModelFacts | Absence) -> bool:
    return isinstance(model, ModelFacts) and model.geometry.encoder


def _work_window(windows: EngineWindows) -> EngineWindow:
    return windows.cover(
        (*list_step_fields(windows.configured.last), "prefill_tokens_total", "cached_prompt_tokens_total")
    )


def _work(window: EngineWindow, encoder: bool) -> Work | Absence:  # a figure's inputs go by place
    return measure_work(window, encoder=encoder)


def _task(roof: Roof | Absence, done: Work | Absence) -> Task | Absence:
    if isinstance(roof, Absence):
        return roof
    return done if isinstance(done, Absence) else Task(roof, done)


def _load(window: EngineWindow, task: Task | Absence) -> Load | Absence:
    if isinstance(task, Absence):
        return task
    if not task.done.sequence_steps:
        return Load(task.roof, task.done, _NO_CONTEXT, "")
    length = estimate_context(window, task.roof.model.geometry)
    return length if isinstance(length, Absence) else Load(task.roof, task.done, *length)


def _same_roof(roof: Roof | Absence, earlier: EngineDerived | None) -> bool:
    return earlier is not None and earlier.figures.get(ROOF_ROW) is roof


_BUSY_RANKS = figure(_busy_ranks, MODEL, HARDWARE, WINDOW, RANKS)
ROOF = figure(_roof, MODEL, HARDWARE, EARLIER, _BUSY_RANKS)
# for the next tick; not published
ROOF_ROW: Row[Roof] = Row(ROOF, silent=NOT_ON_A_FRONT_END, of_an_engine=True, kept=True)
# whether the roof is that of the tick before: what depends on the roof alone is taken from there
SAME_ROOF = figure(_same_roof, ROOF, EARLIER)
ENCODER = figure(_is_encoder, MODEL)
# what the whole of the work is counted over
WORK_WINDOW = window_by(_work_window)
WORK = figure(_work, WORK_WINDOW, ENCODER)
TASK = figure(_task, ROOF, WORK)
LOAD = figure(_load, WORK_WINDOW, TASK)
