"""What a target is doing, by its last attempt and by what Kubernetes says of its pod."""

from __future__ import annotations

from llm_serving_exporter.model.attempt import FailureReason
from llm_serving_exporter.model.pod import PodFault, PodState
from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.snapshot import Snapshot

_ANSWERED = frozenset(
    {
        FailureReason.UNAUTHORIZED, FailureReason.REDIRECT, FailureReason.CONTENT_TYPE, FailureReason.ENCODING, FailureReason.TOO_LARGE,
        FailureReason.EMPTY, FailureReason.CREDENTIALS, FailureReason.MALFORMED, FailureReason.TRUNCATED, FailureReason.TOO_MANY_SERIES,
        FailureReason.UNKNOWN_RUNTIME, FailureReason.NOT_AN_ENGINE, FailureReason.SEVERAL_SERVERS, FailureReason.INTERNAL,
    }
)  # fmt: skip


def choose_good_state(snapshot: Snapshot, pod: PodState | None) -> State:
    """The state of a target whose page could be read. `pod`: None where it has none that is known."""
    if pod is not None and pod.fault is PodFault.WORKER_LOST:
        # the leader still answers, and no request gets through all of the layers
        return State.DOWN
    return State.SLEEPING if snapshot.sleeping else State.READY


def choose_failed_state(reason: FailureReason, status: int | None, pod: PodState | None, now_seconds: float) -> State:
    """The state of a target whose page could not be read. `status`: of HTTP, None without an answer. `now_seconds`: monotonic."""
    # an answer that cannot be used says nothing about the engine: missing data is not down
    is_answered = reason in _ANSWERED or (
        reason is FailureReason.STATUS and status is not None and (status < 500 or status == 501)
    )
    if pod is None:
        if reason is FailureReason.LOADING:
            return State.LOADING
        return State.UNKNOWN if is_answered else State.DOWN
    if pod.fault is None and is_answered:
        return State.UNKNOWN
    return State.LOADING if pod.may_load(now_seconds) else State.DOWN
