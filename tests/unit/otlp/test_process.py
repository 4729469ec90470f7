"""The exporter as a process beside a receiver: what it sends, what a reload changes, and that a receiver which hangs holds nothing up."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.servers.exporter_process import Exporter
from tests.support.servers.otlp_receiver import Received, Receiver, receive
from tests.support.servers.replica import Replica
from tests.support.waiting import wait_until

PAGE = b'vllm:num_requests_running{engine="0",model_name="m"} 3\n'


@pytest.mark.process
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


def wait_for(receiver: Receiver, meets: Callable[[Received], object], what: str) -> Received:
    """The first request that has what is looked for; those before it are forgotten."""

    def look() -> Received | None:
        while receiver.bodies:
            found = Received()
            found.add(receiver.bodies.pop(0))
            if meets(found):
                return found
        return None

    found = wait_until(look, what)
    assert found is not None
    return found


RUNNING = "llm_serving_requests_running"


def says(name: str) -> Callable[[Received], bool]:
    return lambda received: name in {metric for metric, _ in received.samples}


@pytest.mark.e2e
def test_a_reload_turns_it_on_changes_it_and_turns_it_off(tmp_path: Path) -> None:
    file, token = tmp_path / "config.yml", tmp_path / "token"
    token.write_text("first")

    def write(*lines: str) -> None:
        file.write_text("\n".join([f"targets: [{{url: {engine.url}}}]", "scrape: {interval: 1s}", *lines, ""]))

    def reload(expected: int = 200) -> None:
        assert exporter.http.post(f"{exporter.url}/-/reload").status_code == expected

    def write_receiver(receiver: Receiver, more: str = "") -> str:
        return f"otlp: {{url: {receiver.url}, interval: 1s, headers: {{X-Key: {{file: {token}}}}}{more}}}"

    with Replica({"/metrics": PAGE}) as engine, receive() as one, receive() as other:
        write()
        with Exporter("--config.file", str(file), "--web.enable-lifecycle") as exporter:
            exporter.until(lambda page: page.value("requests_running") == 3, "the engine")
            write(write_receiver(one))
            exporter.process.send_signal(signal.SIGHUP)
            wait_for(one, says(RUNNING), "series at the first receiver")
            assert one.requests[-1]["x-key"] == "first"
            token.write_text("second")  # no reload needs to say so
            wait_until(lambda: one.requests[-1]["x-key"] == "second", "the new secret")

            write(write_receiver(one, ", intervall: 2s"))
            reload(500)
            wait_until(lambda: any("intervall" in line for line in exporter.log), "the refusal")
            wait_for(one, says(RUNNING), "series at the first receiver all the same")

            write(write_receiver(other))
            reload()
            wait_for(other, says(RUNNING), "series at the second")

            write()
            reload()
            page = exporter.until(lambda page: not page.series("exporter_otlp_exports_total"), "the end of its own")
            assert page.value("requests_running") == 3
            assert not any("next start" in line for line in exporter.log)

            write("web: {telemetry_path: /other}")
            assert exporter.http.post(f"{exporter.url}/-/reload").text.endswith("wait for the next start.\n")
