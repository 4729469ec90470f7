"""What the page says of targets that do not serve beyond their state, and of where the exporter stands."""

from __future__ import annotations

from llm_serving_exporter.expose import serving
from llm_serving_exporter.expose.families import Families
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.target import Mode, PodFault, PodState, Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.discovery import choose_mode
from tests.support.builders.target_readings import make_reading
from tests.support.rows import check_rows

TARGET = Target("chat-0", "http://10.0.0.1:8000", nodes=("node-a", "node-b"))


def faults(reading: TargetReading) -> list[dict[str, str]]:
    families = Families()
    serving.add_target_health(families, reading, fresh=False, now_monotonic_seconds=0.0)
    return [
        {name: sample.labels[name] for name in ("target", "fault", "node")}
        for family in families
        for sample in family.samples
        if sample.name == "llm_serving_target_fault_info"
    ]


def attempt(reason: FailureReason | None) -> Attempt:
    return Attempt(Stage.SCRAPE, reason, "", 0.0, 1.0)


@check_rows("reason", [None, FailureReason.REFUSED, FailureReason.TIMEOUT, FailureReason.LOADING])
def test_a_server_whose_host_answers_has_no_fault(reason: FailureReason | None) -> None:
    assert faults(make_reading(TARGET, last=attempt(reason))) == []


def test_a_host_that_takes_no_connection_is_silent_and_named_by_the_node_of_the_address() -> None:
    silent = {"target": "chat-0", "fault": "silent", "node": "node-a"}
    assert faults(make_reading(TARGET, last=attempt(FailureReason.UNREACHABLE))) == [silent]
    nowhere = make_reading(replace(TARGET, nodes=()), last=attempt(FailureReason.UNREACHABLE))
    assert faults(nowhere) == [{**silent, "node": ""}]


def test_what_kubernetes_knows_is_said_too() -> None:
    reading = make_reading(TARGET, last=attempt(FailureReason.UNREACHABLE), pod=PodState(fault=PodFault.NODE_LOST))
    assert [found["fault"] for found in faults(reading)] == ["silent", "node_lost"]


IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}


@check_rows(
    ("urls", "environ", "mode"),
    [
        (["http://localhost:8000"], IN_A_POD, Mode.SIDECAR),
        (["http://127.0.0.1:8000", "http://127.0.0.1:8001"], {}, Mode.NODE),
        (["http://127.0.0.1:8000", "http://other:8000"], IN_A_POD, Mode.CENTRAL),
        ([], IN_A_POD, Mode.CENTRAL),
    ],
)
def test_the_mode_follows_from_what_is_read_and_where(urls: list[str], environ: dict[str, str], mode: Mode) -> None:
    config = Config(targets=tuple(Target(f"t-{number}", url) for number, url in enumerate(urls)))
    assert choose_mode(config, environ) is mode
