"""What a target is doing, by its last attempt and by its pod."""

from llm_serving_exporter.model.reading import State
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot
from llm_serving_exporter.model.target import PodFault, PodState
from llm_serving_exporter.targets.server import choose_failed_state, choose_good_state
from tests.support.rows import check_rows

START = 1_700_000_000.0
NEW = PodState(loading_since_seconds=START, loading_limit_seconds=600.0)
SERVED = PodState(was_ready=True, loading_since_seconds=START, loading_limit_seconds=600.0)
CRASHING = PodState(loading_since_seconds=START, fault=PodFault.CRASH_LOOP)
LOST = PodState(was_ready=True, loading_since_seconds=START, fault=PodFault.NODE_LOST)
REFUSED, LOADING, STATUS = FailureReason.REFUSED, FailureReason.LOADING, FailureReason.STATUS


@check_rows(
    ("pod", "reason", "status", "state"),
    [
        # without Kubernetes the page alone decides
        (None, REFUSED, None, State.DOWN),
        (None, LOADING, 503, State.LOADING),
        (None, STATUS, 500, State.DOWN),
        (None, STATUS, 404, State.UNKNOWN),
        (None, FailureReason.MALFORMED, 200, State.UNKNOWN),
        # before it was Ready for the first time
        (NEW, REFUSED, None, State.LOADING),
        (NEW, FailureReason.TIMEOUT, None, State.LOADING),
        (NEW, LOADING, 503, State.LOADING),
        (NEW, STATUS, 503, State.LOADING),
        (NEW, STATUS, 404, State.UNKNOWN),
        (NEW, FailureReason.UNKNOWN_RUNTIME, 200, State.UNKNOWN),
        # afterwards
        (SERVED, REFUSED, None, State.DOWN),
        (SERVED, LOADING, 503, State.DOWN),
        (SERVED, FailureReason.UNAUTHORIZED, 401, State.UNKNOWN),
        # Kubernetes knows better, whoever answers at the address
        (CRASHING, REFUSED, None, State.DOWN),
        (CRASHING, LOADING, 503, State.DOWN),
        (LOST, FailureReason.TIMEOUT, None, State.DOWN),
        (LOST, FailureReason.UNAUTHORIZED, 401, State.DOWN),
    ],
)
def test_the_state_of_a_target_that_could_not_be_read(
    pod: PodState | None, reason: FailureReason, status: int | None, state: State
) -> None:
    assert choose_failed_state(reason, status, pod, START + 600) is state


def test_loading_has_a_limit() -> None:
    assert choose_failed_state(REFUSED, None, NEW, START + 601) is State.DOWN
    assert choose_failed_state(LOADING, 503, NEW, START + 601) is State.DOWN


def test_a_good_page_is_believed_whatever_kubernetes_says_of_the_pod() -> None:
    awake, asleep = (Snapshot((EngineSnapshot("m", "0", awake=awake),), "vllm", START, 1.0) for awake in (1.0, 0.0))
    for pod in (None, NEW, SERVED, CRASHING, LOST):
        assert choose_good_state(awake, pod) is State.READY
        assert choose_good_state(asleep, pod) is State.SLEEPING
    # but for a replica that has lost a part of itself, which its leader's page does not show
    assert choose_good_state(awake, PodState(was_ready=True, fault=PodFault.WORKER_LOST)) is State.DOWN
