"""What a receiver of OTLP gets is the page of the same moment; what has gone ends; what counts says since when."""

from __future__ import annotations

import logging
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_exporter.catalogue import METRICS
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import HttpSettings, Secret, Target
from llm_serving_exporter.otlp import messages
from llm_serving_exporter.otlp.messages import find_unit
from llm_serving_exporter.otlp.sender import Sender
from llm_serving_exporter.settings.config import OtlpConfig
from tests.support.builders.golden_cases import MAIN
from tests.support.builders.golden_pages import golden_registry
from tests.support.builders.snapshots import snapshot_of
from tests.support.builders.target_readings import change_reading
from tests.support.servers.otlp_receiver import Labels, Received, Receiver, receive
from tests.support.waiting import PATIENCE_SECONDS, wait_until

NOW = 1_795_000_000.0
# points of a request, in a test of several
MOST = 100
PAGE = """\
# TYPE vllm:time_to_first_token_seconds histogram
vllm:time_to_first_token_seconds_bucket{{engine="0",le="0.5",model_name="m"}} {early}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="1",model_name="m"}} {all}
vllm:time_to_first_token_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} {all}
vllm:time_to_first_token_seconds_sum{{engine="0",model_name="m"}} 7.5
vllm:time_to_first_token_seconds_count{{engine="0",model_name="m"}} {all}
vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens}
vllm:num_requests_running{{engine="0",model_name="m"}} 3
"""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receive() as found:
        yield found


@pytest.fixture(autouse=True)
def close_senders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    made: list[Sender] = []
    begin = Sender.__init__

    def note(sender: Sender, *args: Any, **more: Any) -> None:
        begin(sender, *args, **more)
        made.append(sender)

    monkeypatch.setattr(Sender, "__init__", note)
    yield
    for sender in made:
        sender.close()


def read_page(text: str) -> dict[tuple[str, Labels], float]:
    """Every sample but those of `_created`; a label that is "" is none."""
    return {
        (sample.name, frozenset((name, label) for name, label in sample.labels.items() if label)): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def canonical(samples: dict[tuple[str, Labels], float]) -> dict[tuple[str, Labels], float]:
    """With the edges of buckets as numbers."""
    found = {}
    for (name, labels), value in samples.items():
        edges = {(label, str(float(text))) if label == "le" else (label, text) for label, text in labels}
        found[name, frozenset(edges)] = value
    return found


class Bed:
    """One target in a store, whose page and start a test sets, and what sends its series."""

    def __init__(self, receiver: Receiver, **http: object) -> None:
        self.store, self.now, self.receiver = Store(), 100.0, receiver
        self.registry = CollectorRegistry()
        setup = Setup(15.0, 20.0, "node-a")
        self.registry.register(ViewCollector(self.store.view, lambda: setup, lambda: self.now))
        config = OtlpConfig(receiver.url, http=HttpSettings(**http))
        resource = {"service.name": "llm-serving-exporter"}
        self.sender = Sender(
            config, self.registry.collect, resource.items(), targets=self.list_targets, wall=lambda: NOW + self.now
        )
        self.reading = self.store.add_target(Target("a", "http://127.0.0.1:9"))

    def list_targets(self) -> list[TargetReading]:
        return [one for one in self.store.view().targets if one.page.is_fresh(self.now, 15.0)]

    def show(
        self, *, started: float = NOW - 500.0, early: int = 2, all: int = 6, tokens: int = 1000, **more: Any
    ) -> None:
        """`more`: of the reading, in which the page says nothing of its process's start; without, it does."""
        page = PAGE.format(early=early, all=all, tokens=tokens)
        snapshot = replace(snapshot_of(page, at=self.now), process_start_unix_seconds=None if more else started)
        reading = change_reading(self.reading, snapshot=snapshot, start_unix_seconds=started, runtime="vllm")
        self.store.put_target(change_reading(reading, **more))

    def send(self) -> Received:
        assert self.sender.send()
        return self.receiver.take()


def start_of(received: Received, name: str) -> float:
    (found,) = {value for (metric, _), value in received.starts.items() if metric == f"llm_serving_{name}"}
    return found


def test_the_main_recording_arrives_value_for_value(receiver: Receiver) -> None:
    registry = golden_registry(MAIN)
    sender = Sender(OtlpConfig(receiver.url), registry.collect, (), wall=lambda: NOW)
    assert sender.send()
    expected = canonical(read_page(encode(registry, "text/plain")[0].decode()))
    assert len(expected) > 400
    assert canonical(receiver.take().samples) == expected


def test_what_the_collector_makes_arrives_as_its_page_has_it(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show()
    received = bed.send()
    assert canonical(received.samples) == canonical(read_page(encode(bed.registry, "text/plain")[0].decode()))
    assert ("llm_serving_time_to_first_token_seconds_bucket", "0.5") in {
        (name, dict(labels).get("le")) for name, labels in received.samples
    }
    assert received.times == {int((NOW + 100.0) * 1e9)}
    assert received.resource == {"service.name": "llm-serving-exporter"}
    assert received.units["llm_serving_time_to_first_token_seconds"] == "s"


def test_a_counter_says_since_when_it_counts(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show(started=NOW - 500.0)
    first = bed.send()
    assert start_of(first, "decode_tokens_total") == NOW - 500.0
    assert start_of(first, "time_to_first_token_seconds") == NOW - 500.0
    assert start_of(first, "scrape_attempts_total") == NOW + 100.0  # of the exporter
    bed.now = 110.0
    bed.show(started=NOW + 105.0, tokens=10, early=0, all=1)  # it was restarted
    second = bed.send()
    assert start_of(second, "decode_tokens_total") == NOW + 105.0
    assert start_of(second, "time_to_first_token_seconds") == NOW + 105.0
    assert start_of(second, "scrape_attempts_total") == NOW + 100.0


def test_what_counted_before_it_was_seen_first_does_not_say_that_it_began_then(receiver: Receiver) -> None:
    """A million tokens of days would be one of the seconds since the exporter began."""
    bed = Bed(receiver)
    bed.show(started=NOW + 99.0, tokens=1_000_000, restarts_total=0)
    assert start_of(bed.send(), "decode_tokens_total") == NOW + 100.0  # of the point itself: not known
    bed.now = 110.0
    bed.show(started=NOW + 99.0, tokens=1_000_100, restarts_total=0)
    second = bed.send()
    assert start_of(second, "decode_tokens_total") == start_of(second, "time_to_first_token_seconds") == NOW + 100.0
    bed.now = 120.0
    bed.show(started=NOW + 118.0, tokens=5, all=3, restarts_total=1)  # its counters fell, which was seen
    assert start_of(bed.send(), "decode_tokens_total") == NOW + 118.0


def test_a_target_that_is_removed_and_comes_again_is_a_new_one(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show(restarts_total=0)
    bed.send()
    bed.store.remove_target("a")
    bed.now = 110.0
    ended = bed.send().ended
    assert {"llm_serving_decode_tokens_total", "llm_serving_target_info", "llm_serving_scrape_attempts_total"} <= {
        name for name, _ in ended
    }
    bed.store.add_target(bed.reading.target)
    bed.now = 120.0
    bed.show(restarts_total=0)
    again = bed.send()
    assert start_of(again, "decode_tokens_total") == NOW + 120.0
    assert again.ended == set()


def test_an_exporter_that_begins_again_goes_on_with_the_engines_starts(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show()
    bed.send()
    other = Bed(receiver)
    other.now = 150.0
    other.sender.close()
    config = OtlpConfig(receiver.url)
    other.sender = Sender(config, other.registry.collect, (), targets=other.list_targets, wall=lambda: NOW + other.now)
    other.show()
    found = other.send()
    assert start_of(found, "decode_tokens_total") == NOW - 500.0
    assert start_of(found, "scrape_attempts_total") == NOW + 150.0


def test_a_counter_that_fell_unexplained_starts_where_it_was_last_seen(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show()
    bed.send()
    bed.now = 110.0
    bed.show(tokens=10)
    assert start_of(bed.send(), "decode_tokens_total") == NOW + 100.0
    bed.now = 120.0
    bed.show(tokens=20)
    assert start_of(bed.send(), "decode_tokens_total") == NOW + 100.0


def test_series_that_have_gone_end_once(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show()
    assert bed.send().ended == set()
    bed.now = 200.0  # the last good page is no longer shown
    ended = bed.send().ended
    gone = {name for name, _ in ended}
    assert {"llm_serving_decode_tokens_total", "llm_serving_requests_running"} <= gone
    assert "llm_serving_time_to_first_token_seconds" in gone
    assert "llm_serving_scrape_attempts_total" not in gone
    assert bed.send().ended == set()


def test_the_end_of_a_series_is_said_until_it_is_received(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show()
    bed.send()
    bed.now, receiver.status = 200.0, 503
    assert not bed.sender.send()
    receiver.status = 200
    assert ("llm_serving_requests_running") in {name for name, _ in bed.send().ended}


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """To close waits as long as a busy machine needs."""
    monkeypatch.setattr("llm_serving_exporter.otlp.sender._CLOSE_SECONDS", PATIENCE_SECONDS)


def list_gauge() -> list[Metric]:
    return list(text_string_to_metric_families('# TYPE x gauge\nx{a="b"} 1\n'))


def start_sender(receiver: Receiver, **more: Any) -> Sender:
    """One that has sent a series, and goes on to."""
    config = OtlpConfig(
        receiver.url, interval_seconds=0.05, http=HttpSettings(timeout_seconds=PATIENCE_SECONDS), **more
    )
    sender = Sender(config, list_gauge, ())
    sender.start()
    wait_until(lambda: receiver.bodies, "the first sending")
    return sender


def read_each(receiver: Receiver) -> list[Received]:
    """What each request had, in their order."""
    found = []
    for body in list(receiver.bodies):
        found.append(Received())
        found[-1].add(body)
    return found


SERIES = ("x", frozenset({("a", "b")}))


def test_whoever_closes_ends_its_series(receiver: Receiver, patient: None) -> None:
    start_sender(receiver).close()
    *before, last = read_each(receiver)
    assert all((set(one.samples), one.ended) == ({SERIES}, set()) for one in before)
    assert (last.samples, last.ended) == ({}, {SERIES})
    assert min(last.times) > max(before[-1].times)


def test_a_receiver_that_hangs_at_the_end_is_left_behind(receiver: Receiver) -> None:
    sender = start_sender(receiver)
    receiver.held.clear()
    before = time.monotonic()
    sender.close()  # its requests may take as long as PATIENCE_SECONDS
    assert time.monotonic() - before < PATIENCE_SECONDS / 2


def test_nothing_is_kept_for_a_receiver_that_is_gone(receiver: Receiver) -> None:
    bed = Bed(receiver)
    bed.show()
    bed.send()

    def weigh() -> tuple[int, int]:
        return sum(kept.size_bytes for kept in bed.sender._received.values()), len(bed.sender._starts._own)

    before, receiver.status = weigh(), 503
    for tokens in range(1000, 1050):
        bed.now += 0.1
        bed.show(tokens=tokens)
        assert not bed.sender.send()
    assert weigh() == before
    receiver.status = 200
    assert bed.send().ended == set()


@pytest.mark.parametrize(
    ("change", "ends"),
    [
        ({"path": "/elsewhere"}, True),
        ({"resource": (("service.name", "renamed"),)}, True),
        ({"http": HttpSettings(headers=(("X-Scope-OrgID", "other"),))}, True),
        ({"interval_seconds": 0.04}, False),
        ({"http": HttpSettings(timeout_seconds=60.0)}, False),
        ({"gen_ai_operation": "chat"}, False),
    ],
)
def test_settings_that_make_other_series_end_the_earlier(
    receiver: Receiver, patient: None, change: dict[str, Any], ends: bool
) -> None:
    sender = start_sender(receiver)
    sender.change(replace(sender._config, **change))
    wait_until(lambda: sender._next is None, "the change")
    already = len(receiver.bodies)
    # one of them may have been made before
    wait_until(lambda: len(receiver.bodies) > already + 2, "sendings under the new settings")
    found = read_each(receiver)
    places = [number for number, one in enumerate(found) if one.ended]
    assert len(places) == ends
    for place in places:
        assert (found[place].samples, found[place].ended) == ({}, {SERIES})
        assert found[place].resource == found[place - 1].resource == {}
    assert all(set(one.samples) == {SERIES} for number, one in enumerate(found) if number not in places)
    assert found[-1].resource == dict(change.get("resource", ()))


def test_a_change_that_cannot_be_leaves_everything_as_it_is(receiver: Receiver, patient: None) -> None:
    sender = start_sender(receiver)
    with pytest.raises(ConfigError):
        sender.change(replace(sender._config, http=HttpSettings(bearer_token=Secret())))
    already = len(receiver.bodies)
    wait_until(lambda: len(receiver.bodies) > already, "another sending")


def test_a_large_page_comes_in_bounded_requests_and_is_kept_in_little(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "MOST_POINTS", MOST)
    text = "# TYPE x gauge\n" + "".join(
        f'x{{model_name="some/long-model-name",pod="engine-{one}"}} {one}\n' for one in range(3 * MOST)
    )
    families = list(text_string_to_metric_families(text))
    sender = Sender(OtlpConfig(receiver.url), lambda: families, ())
    sender.send()
    assert len(receiver.bodies) == 3
    assert len(receiver.take().samples) == 3 * MOST
    assert sum(kept.size_bytes for kept in sender._received.values()) < len(text) / 5

    def send_often() -> int:
        for _ in range(8):
            sender.send()
            receiver.bodies.clear()
            receiver.requests.clear()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = send_often()
    grown = send_often() - before
    tracemalloc.stop()
    assert grown < 3 * len(text)  # to keep each page would be eight


def test_a_receiver_that_is_not_there_costs_one_line_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    families = list(text_string_to_metric_families("# TYPE x gauge\nx 1\n"))
    sender = Sender(OtlpConfig("http://127.0.0.1:9", interval_seconds=15.0), lambda: families, ())
    with caplog.at_level(logging.INFO):
        assert not sender.send()
        assert not sender.send()
    (record,) = caplog.records
    assert record.getMessage().startswith("otlp.url http://127.0.0.1:9/v1/metrics: ")
    assert record.getMessage().endswith("All series are sent again in 15 s.")
    report = sender.report()
    assert (report.exports_total, report.last_success_unix_seconds) == ({"sent": 0, "failed": 2}, None)


def test_points_that_are_not_taken_are_counted_and_said(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    answer = ExportMetricsServiceResponse()
    answer.partial_success.rejected_data_points, answer.partial_success.error_message = 7, "too\nold"
    receiver.answer = answer.SerializeToString()
    bed = Bed(receiver)
    bed.send()
    assert bed.sender.report().rejected_points_total == 7
    assert "did not take some data points: too old" in caplog.text


@pytest.mark.parametrize("status", [200, 401, 500])
def test_a_secret_goes_to_the_receiver_and_nowhere_else(
    receiver: Receiver, status: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "token"
    secret.write_text("s3cr3t-t0ken\n")
    receiver.status, receiver.answer = status, b"you sent Bearer s3cr3t-t0ken"
    bed = Bed(receiver, bearer_token=Secret(file=str(secret)))
    with caplog.at_level(logging.DEBUG):
        assert bed.sender.send() is (status == 200)
    assert receiver.requests[0]["authorization"] == "Bearer s3cr3t-t0ken"
    assert receiver.requests[0]["path"] == "/v1/metrics"
    assert "s3cr3t" not in caplog.text


def test_no_unit_makes_a_receiver_rename_a_metric() -> None:
    """Prometheus adds the word of a unit, and `ratio` for 1, where the name does not end with it; what is in braces it never adds."""
    words = {"s": "seconds", "By": "bytes", "J": "joules", "g": "grams", "W": "watts", "Cel": "celsius", "Hz": "hertz"}
    renamed = []
    for metric in METRICS:
        unit = find_unit(metric.full_name)
        if unit and not (unit.startswith("{") and unit.endswith("}")):
            stem = metric.full_name.removesuffix("_total")
            renamed += [] if stem.endswith(f"_{words[unit]}") else [metric.full_name]
    assert renamed == []


def test_most_seconds_and_bytes_have_their_unit() -> None:
    assert find_unit("llm_serving_e2e_request_latency_seconds") == "s"
    assert find_unit("llm_serving_gpu_memory_used_bytes") == "By"
    assert find_unit("process_cpu_seconds_total") == ""
