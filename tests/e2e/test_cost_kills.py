"""kill -9 at random moments under a real Prometheus: what it adds up of GPU time and money is what the wall clock says."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from llm_serving_exporter.sim.recording import demo_model_config
from llm_serving_exporter.sim.replay import SteppedServer
from tests.support.builders.recordings import recording
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.server_process import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.e2e

KILLS, SEED = 3, 20
# what one life lasts before it is killed, and what passes until the next one
LIFE, PAUSE = (1.0, 2.5), (0.2, 1.0)
# of a GPU of 3600 USD an hour, a USD a second. A process that is young takes a snapshot every second; a tick and a scrape come after it
BEHIND_SECONDS = 4.0


def add_up(samples: list[list[object]]) -> float:
    """What increase() adds up of raw samples, before it extrapolates: a value below the one before it began at 0."""
    values = [float(str(value)) for _, value in samples]
    return sum(now - before if now >= before else now for before, now in pairwise(values))


def crash(folder: Path, *arguments: str) -> tuple[float, dict[str, float], dict[str, float]]:
    """Seconds that the target was watched, then GPU seconds by state and USD by phase as Prometheus has them."""
    port, chance = free_port(), random.Random(SEED)
    (folder / "prices.yml").write_text(yaml.safe_dump({"prices": [{"target": "chat", "usd_per_gpu_hour": 3600.0}]}))
    scrape = {"job_name": "llm-serving", "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}
    config = yaml.safe_dump({"global": {"scrape_interval": "500ms"}, "scrape_configs": [scrape]})
    with SteppedServer(recording("vllm-0.32")) as engine, PrometheusServer(folder / "prometheus", config) as prometheus:
        chat = {"name": "chat", "url": engine.url, "gpu_count": 1, "gpu_model": "H100 SXM", "node": "a"}
        chat |= {"interval": "500ms", "model": {"config": str(demo_model_config())}}
        settings = {"targets": [chat], "cost": {"price_file": "prices.yml"}}
        (folder / "exporter.yml").write_text(yaml.safe_dump(settings))
        words = [sys.executable, "-m", "llm_serving_exporter", "--config.file", str(folder / "exporter.yml")]
        words += ["--web.listen-address", f"127.0.0.1:{port}", "--no-gpu.enabled", *arguments]
        number, begun = 40, 0.0
        for life in range(KILLS + 1):
            process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            if not life:
                wait_until(lambda: prometheus.query("llm_serving_cost_usd_total"), "the first sample")
                begun = time.monotonic()
            end = time.monotonic() + chance.uniform(*LIFE)
            while time.monotonic() < end:
                engine.show(number)
                number += 1
                time.sleep(0.5)
            if life < KILLS:
                process.send_signal(signal.SIGKILL)
                process.wait()
                time.sleep(chance.uniform(*PAUSE))
        time.sleep(2.0)
        elapsed = time.monotonic() - begun
        found = {}
        for name, label in (("gpu_seconds", "state"), ("cost_usd", "phase")):
            series = prometheus.query(f"llm_serving_{name}_total[5m]")
            found[name] = {one["metric"][label]: add_up(one["values"]) for one in series}
        process.terminate()
        process.wait()
    return elapsed, found["gpu_seconds"], found["cost_usd"]


def test_money_survives_the_process(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    elapsed, seconds, usd = crash(tmp_path, "--state-dir", str(tmp_path / "state"))
    assert elapsed - BEHIND_SECONDS <= sum(seconds.values()) <= elapsed + 2.0
    assert elapsed - BEHIND_SECONDS <= sum(usd.values()) <= elapsed + 2.0
    # nobody saw what the GPUs did between a snapshot and the next start, and nothing else of it is made up
    assert usd["unattributed"] >= seconds["unknown"] - 1.0
    assert 0 < seconds["unknown"] < sum(seconds.values()) - 2.0
    assert usd["down"] == 0
