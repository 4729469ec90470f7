"""`gen_ai.server.*`: what the conventions ask for is always there, and what cannot be known is left out with its reason."""

from __future__ import annotations

import logging

import pytest

from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role, Target
from llm_serving_exporter.otlp.reading import SCHEMA_URL, Buckets, read_server_metrics
from llm_serving_exporter.otlp.sender import Sender
from llm_serving_exporter.settings.config import OtlpConfig
from tests.support.builders.recordings import recording
from tests.support.builders.snapshots import snapshot_of
from tests.support.builders.target_readings import change_reading, make_reading
from tests.support.rows import check_rows
from tests.support.servers.otlp_receiver import receive

DURATION, PER_TOKEN, FIRST = (
    f"gen_ai.server.{one}" for one in ("request.duration", "time_per_output_token", "time_to_first_token")
)
# semantic-conventions 1.41.1, gen-ai-metrics.md: Required, and Conditionally Required where the condition holds of a server that is asked
# by URL and names its model; error.type is not: no request of these ended in an error
REQUIRED = {
    "gen_ai.operation.name": {"chat"},
    "gen_ai.provider.name": {"vllm"},
    "gen_ai.request.model": {"tiny-llama"},
    "server.port": {"8000"},
}
RECOMMENDED = {"gen_ai.response.model": {"tiny-llama"}, "server.address": {"engine-1"}}
NOW = 1_795_148_000.0


@pytest.fixture(scope="module")
def page() -> str:
    return recording("vllm-0.32-mfu").pages[60].decode()


@pytest.fixture
def reading(page: str) -> TargetReading:
    target = Target("a", "http://engine-1:8000")
    snapshot = replace(snapshot_of(page), process_start_unix_seconds=NOW - 500.0)
    return make_reading(target, runtime="vllm", snapshot=snapshot, start_unix_seconds=NOW - 500.0)


def test_they_are_the_engines_own_histograms_with_what_is_required(reading: TargetReading, page: str) -> None:
    with receive() as receiver:
        config = OtlpConfig(receiver.url, gen_ai_operation="chat")
        sender = Sender(config, tuple, (), targets=lambda: [reading], wall=lambda: NOW)
        assert sender.send()
        received = receiver.take()
        assert sender._left_out == {}
        reading = change_reading(reading, snapshot=None)
        assert sender.send()
        assert {name for name, _ in receiver.take().ended} == {DURATION, PER_TOKEN, FIRST}
        sender.close()
    assert set(received.schemas) == {DURATION, PER_TOKEN, FIRST}
    assert set(received.schemas.values()) == {"https://opentelemetry.io/schemas/1.41.1"} == {SCHEMA_URL}
    assert set(received.units.values()) == {"s"}
    assert set(received.starts.values()) == {NOW - 500.0}
    assert received.kinds["server.port"] == {"int_value"}
    for _, labels in received.samples:
        said: dict[str, set[str]] = {}
        for name, text in labels:
            said.setdefault(name, set()).add(text)
        said.pop("le", None)
        assert said == {**REQUIRED, **RECOMMENDED, "target": {"a"}, "engine": {"0"}}
    for name, raw in (
        (DURATION, "e2e_request_latency_seconds"),
        (PER_TOKEN, "request_time_per_output_token_seconds"),
        (FIRST, "time_to_first_token_seconds"),
    ):
        published = {
            float(dict(labels)["le"]): value
            for (one, labels), value in received.samples.items()
            if one == f"{name}_bucket"
        }
        lines = [line.rpartition(" ") for line in page.splitlines() if line.startswith(f"vllm:{raw}_bucket")]
        assert published == {float(line.split('le="')[1].split('"')[0]): float(value) for line, _, value in lines}
        assert max(published.values()) > 0


def test_nothing_of_it_is_sent_unless_one_asks(reading: TargetReading) -> None:
    with receive() as receiver:
        sender = Sender(OtlpConfig(receiver.url), tuple, (), targets=lambda: [reading], wall=lambda: NOW)
        assert sender.send()
        assert receiver.bodies == []
        sender.close()


def finished(reading: TargetReading, **ends: float) -> TargetReading:
    assert reading.page.snapshot is not None
    engines = tuple(replace(one, requests_finished_total=ends or None) for one in reading.page.snapshot.engines)
    return change_reading(reading, snapshot=replace(reading.page.snapshot, engines=engines))


def approximate(reading: TargetReading) -> TargetReading:
    assert reading.page.snapshot is not None
    quality = {"time_per_output_token_seconds": Quality.APPROXIMATE}
    return change_reading(reading, snapshot=replace(reading.page.snapshot, quality=quality))


def uncounted(reading: TargetReading) -> TargetReading:
    assert reading.page.snapshot is not None
    return change_reading(reading, snapshot=replace(reading.page.snapshot, errors_counted=False))


def without(reading: TargetReading, field: str) -> TargetReading:
    assert reading.page.snapshot is not None
    engines = tuple(replace(one, **{field: None}) for one in reading.page.snapshot.engines)
    return change_reading(
        reading, snapshot=replace(reading.page.snapshot, engines=engines), missing={field: "no histogram"}
    )


@check_rows(
    ("change", "expected"),
    [
        (lambda one: finished(one, stop=9.0, length=1.0, abort=2.0), {}),
        (lambda one: finished(one, stop=9.0, error=1.0), {DURATION: "some requests ended in an error"}),
        (lambda one: finished(one, stop=9.0, failed=1.0), {DURATION: "some requests ended in an error"}),
        (finished, {DURATION: "does not count requests that ended in an error"}),
        (uncounted, {DURATION: "does not count requests that ended in an error"}),
        (approximate, {PER_TOKEN: "not quite this"}),
        (lambda one: without(one, "time_to_first_token_seconds"), {FIRST: "no histogram"}),
        (
            lambda one: replace(one, target=replace(one.target, role=Role.FRONTEND)),
            dict.fromkeys((DURATION, PER_TOKEN, FIRST), "a front door"),
        ),
        (
            lambda one: replace(one, target=replace(one.target, role=Role.DECODE)),
            dict.fromkeys((DURATION, PER_TOKEN, FIRST), "a part of a request"),
        ),
        (lambda one: change_reading(one, runtime=""), dict.fromkeys((DURATION, PER_TOKEN, FIRST), "gen_ai.provider.name")),
    ],
    shared=["reading"],
)  # fmt: skip
def test_what_cannot_be_known_is_left_out_and_why(reading: TargetReading, change, expected: dict[str, str]) -> None:
    found = read_server_metrics([change(reading)], "chat")
    assert {name for name, _ in found.left_out} == set(expected)
    assert {one.name for one in found.readings} == {DURATION, PER_TOKEN, FIRST} - set(expected)
    for (name, target), why in found.left_out.items():
        assert target == "a"
        assert expected[name] in why


def test_engines_of_one_server_and_targets_on_one_host_are_told_apart(reading: TargetReading) -> None:
    assert reading.page.snapshot is not None
    one = reading.page.snapshot.engines[0]
    both = change_reading(reading, snapshot=replace(reading.page.snapshot, engines=(one, replace(one, engine="1"))))
    other = replace(both, target=Target("b", "https://engine-1"))
    found = read_server_metrics([both, other], "chat")
    for metric in found.readings:
        assert len(metric.values) == 4
        assert {dict(labels)["server.port"] for labels in metric.values} == {"8000", "443"}
        assert all(isinstance(value, Buckets) for value in metric.values.values())


def test_each_reason_is_logged_once(reading: TargetReading, caplog: pytest.LogCaptureFixture) -> None:
    failed = finished(reading, error=1.0)
    with receive() as receiver:
        config = OtlpConfig(receiver.url, gen_ai_operation="chat")
        sender = Sender(config, tuple, (), targets=lambda: [failed], wall=lambda: NOW)
        with caplog.at_level(logging.INFO):
            sender.send()
            sender.send()
        sender.close()
    (record,) = caplog.records
    assert record.getMessage().startswith(f"target=a: {DURATION} is not sent over OTLP: error.type is not known")
