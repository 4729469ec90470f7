"""One answer of a metrics endpoint."""

from __future__ import annotations

from dataclasses import dataclass

from llm_serving_exporter.model.attempt import FailureReason


@dataclass(frozen=True, slots=True)
class Page:
    """The body of a 200 answer, decompressed.

    `content_type` as the server sent it ("" where it sent none); `received_unix_seconds` and
    `received_monotonic_seconds` are the instant the last byte came, on the wall clock and on a clock that never steps;
    `duration_seconds` from before connecting to the last byte; `wire_bytes` the body's size before decompression.
    """

    body: bytes
    content_type: str
    received_unix_seconds: float
    received_monotonic_seconds: float
    duration_seconds: float
    wire_bytes: int
    status: int = 200


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why there is no page: one named reason, a sentence for a person without secrets, the HTTP status where one came."""

    reason: FailureReason
    detail: str
    status: int | None
    at_unix_seconds: float
    duration_seconds: float
