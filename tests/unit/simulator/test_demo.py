"""The demo as a user runs it: it starts, says what it is, finds free ports, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pytest

from llm_serving_exporter.errors import ListenError
from llm_serving_simulator.demo import ReplayGpuSource, run
from llm_serving_simulator.options import on_next_free_port, require_free
from llm_serving_simulator.programs import ChildError, Prometheus
from llm_serving_simulator.replay import ReplayServer, demo_recording, split_address
from tests.support.paths import ROOT
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers.stepped import SteppedServer
from tests.support.waiting import PATIENCE_SECONDS

REPO = ROOT
ANY_PORTS = ["--web.listen-address", "127.0.0.1:0", "--engine-port", "0", "--prometheus-port", "0"]
needs_prometheus = pytest.mark.skipif(shutil.which("prometheus") is None, reason="`make test` installs prometheus")


def stand_in(target_url: str, gpu_source: ReplayGpuSource, listen: tuple[str, ...]) -> ReplayServer:
    """An exporter's place taken by a page server: the demo's own work is what is tested here."""
    assert gpu_source.read().gpus
    with urllib.request.urlopen(f"{target_url}/metrics", timeout=PATIENCE_SECONDS) as answer:
        assert answer.status == 200
    host, port = split_address(listen[0])
    return SteppedServer(demo_recording(), host=host, port=port)


def test_it_ends_by_itself_and_says_what_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    assert run([*ANY_PORTS, "--no-prometheus", "--duration", "0.2s"], stand_in) == 0
    said = capsys.readouterr().out
    assert "This is a replay, not a live model" in said
    assert "GPUs are simulated" in said
    for url in re.findall(r"http://127\.0\.0\.1:(\d+)", said):
        require_free("127.0.0.1", int(url))
    assert signal.getsignal(signal.SIGTERM) is handler


def test_a_taken_port_moves_it_to_the_next_and_that_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        arguments = [
            "--web.listen-address",
            f"127.0.0.1:{port}",
            "--engine-port",
            str(port),
            "--no-prometheus",
            "--duration",
            "0",
        ]
        assert run(arguments, stand_in) == 0
    said = capsys.readouterr().out
    assert f"port {port} is in use: the engine takes " in said
    assert f"port {port} is in use: the exporter takes " in said


def test_an_exporter_that_cannot_start_is_a_message_and_ends_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    urls = []

    def refuse(target_url: str, gpu_source: ReplayGpuSource, listen: tuple[str, ...]) -> ReplayServer:
        urls.append(target_url)
        raise ListenError("cannot listen on 127.0.0.1:1: no")

    assert run([*ANY_PORTS, "--no-prometheus"], refuse) == 1
    assert capsys.readouterr().err == "error: cannot listen on 127.0.0.1:1: no\n"
    require_free("127.0.0.1", int(urls[0].rpartition(":")[2]))


@check_rows(
    ("arguments", "message"),
    [
        (["--duration", "soon"], '"soon" is not a duration. Use y, w'),
        (["--engine-port", "70000"], "'70000' is not a port"),
        (["--web.listen-address", "here"], '"here" is not an address to listen on'),
        (["--speed", "0"], "'0' is not a number from 0.01 to 1000"),
    ],
)
def test_bad_arguments(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        run(arguments, stand_in)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.process
@pytest.mark.seam("demo")
@needs_prometheus
@pytest.mark.parametrize(
    "number", keep_quick([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], lambda number: number is signal.SIGINT)
)
def test_a_signal_ends_everything(number: signal.Signals, tmp_path: Path) -> None:
    script = (
        "import sys; from tests.unit.simulator.test_demo import ANY_PORTS, stand_in\n"
        "from llm_serving_simulator.demo import run\n"
        "sys.exit(run(ANY_PORTS, stand_in))"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=REPO) as process:
        try:
            assert process.stdout is not None
            said = ""
            while "Ctrl-C ends it." not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            prometheus = re.search(r"Prometheus +(http://\S+)/", said)
            assert prometheus, said
            with urllib.request.urlopen(f"{prometheus[1]}/api/v1/status/config", timeout=PATIENCE_SECONDS) as answer:
                assert b"job_name: llm-serving-exporter" in answer.read()
            process.send_signal(number)
            assert process.wait(timeout=PATIENCE_SECONDS) == 0
        finally:
            process.terminate()  # nothing where it has ended
    assert list(tmp_path.iterdir()) == [], "temporary folders are removed"
    require_free("127.0.0.1", int(prometheus[1].rpartition(":")[2]))


@pytest.mark.process
@needs_prometheus
def test_graph_links_lead_to_the_expression() -> None:
    program = shutil.which("prometheus")
    assert program is not None
    prometheus = Prometheus(program, "127.0.0.1:1", port=0)
    try:
        url = prometheus.graph_url('up{job="x"}')
        assert url.endswith("/graph?g0.expr=up%7Bjob%3D%22x%22%7D&g0.tab=0&g0.range_input=15m")
        with urllib.request.urlopen(url, timeout=PATIENCE_SECONDS) as answer:
            assert answer.status == 200
    finally:
        prometheus.close()
    assert prometheus.pid is None


@pytest.mark.process
def test_a_prometheus_that_dies_is_an_error_with_its_last_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "prometheus"
    program.write_text("#!/bin/sh\necho first; echo no space left; exit 1\n")
    program.chmod(0o755)
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with pytest.raises(ChildError, match="no space left"):
        Prometheus(str(program), "127.0.0.1:1", port=0)
    assert list(folder.iterdir()) == []


def test_ports_run_out() -> None:
    tried = []

    def never(port: int) -> int:
        tried.append(port)
        raise OSError(98, "Address already in use")

    with pytest.raises(OSError, match="in use"):
        on_next_free_port(never, 65534)
    assert tried == [65534, 65535]
    with pytest.raises(PermissionError):
        on_next_free_port(lambda port: (_ for _ in ()).throw(PermissionError(13, "no")), 80)
