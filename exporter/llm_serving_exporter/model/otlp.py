"""How sending all series over OTLP goes."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.record import Struct


class OtlpReport(Struct, frozen=True):
    """What became of it since the exporter's start."""

    exports_total: Mapping[str, int]  # by outcome: sent, failed
    rejected_points_total: int  # data points that the receiver said it did not take
    last_success_unix_seconds: float | None = None  # None: none has succeeded yet
