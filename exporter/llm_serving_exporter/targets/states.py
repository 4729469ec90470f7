"""What a target is doing and who it is, by its last attempt and page, and by what Kubernetes says of its pod."""

from __future__ import annotations

from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Snapshot
from llm_serving_exporter.model.target import PodFault, PodState, Role

_ANSWERED = frozenset(
    {
        FailureReason.UNAUTHORIZED, FailureReason.REDIRECT, FailureReason.CONTENT_TYPE, FailureReason.ENCODING, FailureReason.TOO_LARGE,
        FailureReason.EMPTY, FailureReason.CREDENTIALS, FailureReason.MALFORMED, FailureReason.TRUNCATED, FailureReason.TOO_MANY_SERIES,
        FailureReason.UNKNOWN_RUNTIME, FailureReason.NOT_AN_ENGINE, FailureReason.SEVERAL_SERVERS, FailureReason.INTERNAL,
        FailureReason.SPEAKS_TLS, FailureReason.PAGE_FAILS,
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


def list_identities(snapshot: Snapshot | None) -> tuple[tuple[str, str], ...]:
    """Model name and label of each engine; () without a page."""
    return tuple((engine.model_name, engine.engine) for engine in snapshot.engines) if snapshot else ()


def find_page_role(snapshot: Snapshot) -> Role | None:
    """The role that the page says, where all its engines have the same."""
    said = {engine.role for engine in snapshot.engines if engine.role in set(Role)}
    return Role(said.pop() or "") if len(said) == 1 else None


def choose_model_name(snapshot: Snapshot, role: Role, configured: str, before: str) -> str:
    """The model that a target is known by: the page's, else as configured, else that of the page before; "" where none is known.

    Of several models an engine is known by the first. A front door is known by none of them: it is not that model's more than another's.
    """
    names = sorted({engine.model_name for engine in snapshot.engines if engine.model_name})
    if len(names) > 1 and role is Role.FRONTEND:
        return configured
    return names[0] if names else configured or before


def find_engine_start(snapshot: Snapshot, before: float | None, *, restarted: bool) -> float:
    """When the engine started, in Unix seconds: as the page says it, else when it was first seen. `before`: so far."""
    if snapshot.process_start_unix_seconds is not None:
        return snapshot.process_start_unix_seconds
    return snapshot.unix_seconds if restarted or before is None else before
