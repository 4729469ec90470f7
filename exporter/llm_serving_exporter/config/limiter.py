"""What the limiter goes by."""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_exporter.catalogue.standstill import SPAN_SECONDS
from llm_serving_exporter.config.option import option
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.duration import format_duration


@dataclass(frozen=True, slots=True)
class LimiterConfig:
    """What the limiter goes by."""

    stalled_after_seconds: float = option(
        "limiter.stalled-after",
        kinds.INTERVAL,
        "How long nothing may move while requests run or wait before an engine is called stalled; longer than the longest prefill, as the "
        "range of LLMServingStalled.",
        default=format_duration(SPAN_SECONDS),
    )
