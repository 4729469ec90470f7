"""The roofline of one window, its model and its GPUs: the rows of the signal table that need no target around the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llm_serving_exporter.derive import bandwidth, compute, decode
from llm_serving_exporter.derive.figures import Computed
from llm_serving_exporter.derive.inputs import DEVICES, EARLIER, HARDWARE, MODEL, RANKS, WINDOWS
from llm_serving_exporter.derive.roofline import gather_roofline
from llm_serving_exporter.derive.signals import Shown
from llm_serving_exporter.derive.ticks import BUSY_RATIO
from llm_serving_exporter.model.devices import DeviceSample
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.roofline import Roofline
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.weights import ModelFacts
from llm_serving_exporter.model.window import EngineWindow
from tests.support.builders.windows import all_live

ROWS = (
    *bandwidth.ROWS, decode.CEILING, decode.RATIO, decode.CAPACITY, decode.RIDGE, *decode.OTHER_ROWS,
    compute.PREFILL_CAPACITY, compute.RATIO, *compute.OTHER_ROWS, BUSY_RATIO,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the rows came to."""

    # without a role that would silence a part of it
    roofline: Roofline
    # what each row itself says: AVAILABLE, or why it has no value
    signals: Mapping[str, Absence]


def roofline(
    window: EngineWindow, devices: tuple[DeviceSample, ...], model: ModelFacts | Absence, hardware: Hardware
) -> Outcome:
    """Everything that the window, the facts and the GPUs allow."""
    computed = Computed(
        {WINDOWS: all_live(window), DEVICES: devices, MODEL: model, HARDWARE: hardware, EARLIER: None, RANKS: None}
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
    return Outcome(gather_roofline(shown, causes), signals)
