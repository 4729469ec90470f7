"""Targets with a roofline, as a minute of one kind of work leaves them: by `derive`, for tests of what is shown of it."""

from typing import Any

from llm_serving_exporter.derive.derive import DeriveSettings, derive
from llm_serving_exporter.model.hardware import Hardware, Parallel
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.window import DeviceSample, Window
from tests.support.builders import views
from tests.support.builders.target_readings import change_reading
from tests.support.builders.windows import engine, held, pages
from tests.support.models.roofs import H100, LLAMA_8B, served

LLAMA = served(LLAMA_8B)
DEVICE = DeviceSample(views.NOW_MONOTONIC - 2, 1, gpm_ratio=0.63, memory_used_bytes=70e9)
DECODING = {"decoded": 320_000.0, "steps": 5000.0, "prompts": 300.0, "prefill": 60_000.0, **held(100, 64)}


def reading(
    *done: dict[str, Any],
    model: ModelFacts = LLAMA,
    hardware: Hardware | None = None,
    device: DeviceSample | None = DEVICE,
) -> TargetReading:
    """A target with an engine for each of `done` (what `tests.support.builders.windows.engine` takes), after a minute of it."""

    def at(share: float) -> tuple[EngineSnapshot, ...]:
        counted = ("decoded", "steps", "prompts", "prefill", "cached", "finished")
        return tuple(
            engine(
                engine=str(rank),
                **{
                    key: value * share if key in counted and value is not None else value for key, value in told.items()
                },
            )
            for rank, told in enumerate(done)
        )

    settings = DeriveSettings(hardware=hardware or Hardware(H100, Parallel(), 1.0), models={"m": model}, device=device)
    window = pages(at(0.0), at(1.0), seconds=60.0)
    begun = derive(Window(window.snapshots[:1]), settings, None)
    derived = derive(replace(window, devices=(device,) if device else ()), settings, begun)
    shown = [(one, derived.engines[rank]) for rank, one in enumerate(window.later.engines)]
    return change_reading(views.reading("chat-0", shown), derivation=derived, models={"m": model})
