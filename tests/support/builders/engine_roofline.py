"""The roofline of one window, its model and its GPUs: the rows of the signal table that need no target around the engine."""

from collections.abc import Mapping
from dataclasses import dataclass

from llm_serving_exporter.derive.bandwidth import ROWS as BANDWIDTH_ROWS
from llm_serving_exporter.derive.busy import BUSY_RATIO
from llm_serving_exporter.derive.compute import (
    CAPACITY,
    CEILING,
    COMPUTE_RATIO,
    COMPUTE_ROWS,
    DECODE_RATIO,
    PREFILL_CAPACITY,
    RIDGE,
)
from llm_serving_exporter.derive.compute import DECODE_ROWS as DECODE_OTHER_ROWS
from llm_serving_exporter.derive.figures import (
    DEVICES,
    EARLIER,
    HARDWARE,
    MODEL,
    RANKS,
    TARGET_WINDOW,
    WINDOWS,
    Computed,
)
from llm_serving_exporter.derive.limiter import gather_roofline
from llm_serving_exporter.derive.signals import Shown
from llm_serving_exporter.model.derived import EngineDerived, Roofline
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.window import DeviceSample, EngineWindow, Window
from tests.support.builders.windows import all_live

ROWS = (
    *BANDWIDTH_ROWS, CEILING, DECODE_RATIO, CAPACITY, RIDGE, *DECODE_OTHER_ROWS,
    PREFILL_CAPACITY, COMPUTE_RATIO, *COMPUTE_ROWS, BUSY_RATIO,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rows came to."""

    # without a role that would silence a part of it
    roofline: Roofline
    # what each row itself says: AVAILABLE, or why it has no value
    signals: Mapping[str, Absence]
    # what the next tick is handed
    engine: EngineDerived


def roofline(
    window: EngineWindow,
    devices: tuple[DeviceSample, ...],
    model: ModelFacts | Absence,
    hardware: Hardware,
    *,
    at: float = 0.0,
    earlier: EngineDerived | None = None,
) -> Outcome:
    """Everything that the window, the facts and the GPUs allow. `at`: monotonic seconds of the newest page; `earlier`: the tick before."""
    page = Window((Snapshot((window.last,), "vllm", 1e9 + at, at),))
    computed = Computed(
        {
            WINDOWS: all_live(window),
            TARGET_WINDOW: page,
            DEVICES: devices,
            MODEL: model,
            HARDWARE: hardware,
            EARLIER: earlier,
            RANKS: None,
        }
    )
    shown, signals, causes = Shown(), {}, {}
    for row in ROWS:
        value = computed.value(row.figure)
        if value is not None and not isinstance(value, Absence):
            shown.figures[row] = value
        if row.name:
            signals[row.name] = value if isinstance(value, Absence) else Absence.AVAILABLE
        if row.cause is not None and (cause := computed.value(row.cause)) is not None:
            causes[row.name] = cause
    engine = EngineDerived(window.last.model_name, window.last.engine, figures=shown.figures)
    return Outcome(gather_roofline(shown, causes), signals, engine)
