"""What a drill (taking a replica away under load, on purpose) came to: nouns of the file that it leaves and of what is exported."""

from __future__ import annotations

from enum import StrEnum

from llm_serving_exporter.model.identity import Identity
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.target import Role


class Verdict(StrEnum):
    """`aborted`: broken off before it could tell."""

    PASSED = "passed"
    FAILED = "failed"
    ABORTED = "aborted"


class DrillResult(Struct, frozen=True):
    """The last drill of a model's replicas in a role."""

    model_name: str  # as served
    role: Role  # of the replicas
    last_run_unix_seconds: float  # when a drill last took a replica away
    last_success_unix_seconds: float | None  # None: none has passed yet
    last_verdict: Verdict  # of the last run
    # what tells these replicas from others of the same model and role, as far as the drill was told
    identity: Identity = field(default_factory=Identity)
