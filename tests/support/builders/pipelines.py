"""The one place of the tests that makes a `TargetPipeline`; a test of a whole tick, with GPUs and cost, takes a `TargetHost` instead."""

from collections.abc import Callable
from functools import partial
from typing import Any

from llm_serving_exporter.derive.derive import DeriveSettings
from llm_serving_exporter.gpus.attribution import GpuFacts, Gpus, SettingsBuilder
from llm_serving_exporter.model.snapshot import ServerFacts
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.targets.pipeline import TargetPipeline

# when a hand clock shows 0
UNIX_START = 1_795_147_700.0


def settings_without_gpus(config: Config, target: Target, facts: ServerFacts, engines: int) -> DeriveSettings:
    """What derive needs for a target of whose GPUs only the configuration is known."""
    return SettingsBuilder().build(config, target, (), Gpus(), GpuFacts(), facts, engines)


def make_pipeline(
    target: Target,
    now: list[float] | None = None,
    *,
    settings: Callable[[ServerFacts, int], DeriveSettings] | None = None,
    window_seconds: float = 60.0,
    unix_start: float = UNIX_START,
    **more: Any,
) -> TargetPipeline:
    """A pipeline of one target without GPUs. `now[0]`: its monotonic clock, which the test moves; None = the system's clocks."""
    clocks = {"monotonic": lambda: now[0], "wall": lambda: unix_start + now[0]} if now is not None else {}
    without_gpus = partial(settings_without_gpus, Config(targets=()), target)
    return TargetPipeline(target, settings or without_gpus, window_seconds, **clocks, **more)
