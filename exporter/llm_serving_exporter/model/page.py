"""One answer of a metrics endpoint."""

from __future__ import annotations

from llm_serving_exporter.model.attempt import FailureReason
from llm_serving_exporter.model.record import Struct


class Page(Struct, frozen=True):
    """An answer with status 200 to a request for a metrics page."""

    body: bytes  # decompressed
    content_type: str  # header as the server sent it; "": it sent none
    received_unix_seconds: float  # when the last byte came, on the wall clock
    received_monotonic_seconds: float  # the same instant on a clock that never steps
    duration_seconds: float  # from before connecting to the last byte
    wire_bytes: int  # size of the body before decompression
    status: int = 200  # HTTP status


class Refusal(Struct, frozen=True):
    """Why there is no page."""

    reason: FailureReason  # one of the closed set, for a metric's label
    detail: str  # a sentence for a person, without secrets
    status: int | None  # the HTTP status; None: no answer came
    at_unix_seconds: float  # when the attempt ended
    duration_seconds: float  # from before connecting until then
