"""The exporter as a process beside a receiver: what it sends, and that a receiver which never answers holds nothing up."""

from __future__ import annotations

import time

from tests.support.servers.exporter_process import Exporter
from tests.support.servers.otlp_receiver import receive
from tests.support.servers.replica import Replica
from tests.support.waiting import wait_until

PAGE = b'vllm:num_requests_running{engine="0",model_name="m"} 3\n'


def test_series_are_sent_and_a_receiver_that_hangs_holds_nothing_up() -> None:
    with Replica({"/metrics": PAGE}) as engine, receive() as receiver:
        flags = ("--target", engine.url, "--scrape.interval", "1s", "--otlp.url", receiver.url, "--otlp.interval", "1s")
        with Exporter(*flags) as exporter:
            wait_until(lambda: receiver.bodies, "a request")
            exporter.until(lambda page: page.value("exporter_otlp_exports_total", outcome="sent") >= 2, "two sendings")
            receiver.bodies = receiver.bodies[-1:]  # each sending is one
            received = receiver.take()
            names = {name for name, _ in received.samples}
            assert {"llm_serving_requests_running", "process_cpu_seconds_total"} <= names
            assert received.resource["service.name"] == "llm-serving-exporter"
            assert received.resource["service.instance.id"].endswith(f":{exporter.url.rpartition(':')[2]}")
            receiver.held.clear()
            before = len(receiver.requests)
            wait_until(lambda: len(receiver.requests) > before, "a request that is not answered")
            exporter.after_ticks()
            exporter.process.terminate()
            began = time.monotonic()
            assert exporter.process.wait(10) == 0
            assert time.monotonic() - began < 2.0
