"""kill -9 at random moments under a real Prometheus: what it adds up of GPU time and money is what the wall clock says."""

import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from llm_serving_simulator.replay import demo_model_config
from tests.support.builders.recordings import recording
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.server_process import free_port
from tests.support.servers.stepped import SteppedServer
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.e2e

KILLS, SEED = 3, 20
# of the recording: an engine with nothing to do from then on
LAST_PAGE = 210
# what one life lasts once Prometheus has KNOWN_SECONDS of it: a start takes seconds where others work too. And what passes until the next
LIFE, PAUSE = (0.0, 1.5), (0.2, 1.0)
KNOWN_SECONDS = 1.0
# of a GPU of 3600 USD an hour, a USD a second. A process that is young takes a snapshot every second; a tick and a scrape come after it
BEHIND_SECONDS = 4.0


def add_up(samples: list[list[object]]) -> float:
    """What increase() adds up of raw samples, before it extrapolates: a value below the one before it began at 0."""
    values = [float(str(value)) for _, value in samples]
    return sum(now - before if now >= before else now for before, now in pairwise(values))


def count_known(prometheus: PrometheusServer) -> float:
    """GPU seconds of which somebody knew what the GPU did, from the first sample until now."""
    series = prometheus.query('llm_serving_gpu_seconds_total{state!="unknown"}[5m]')
    return sum(add_up(one["values"]) for one in series)


def crash(folder: Path, *arguments: str) -> tuple[float, dict[str, float], dict[str, float]]:
    """Seconds between Prometheus' first and last sample, then GPU seconds by state and USD by phase that it has of them."""
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
        number = 40
        for life in range(KILLS + 1):
            known = count_known(prometheus)
            process = subprocess.Popen(words, stderr=subprocess.DEVNULL)
            deadline, end = time.monotonic() + PATIENCE_SECONDS, None
            while end is None or time.monotonic() < end:
                assert time.monotonic() < deadline, f"life {life} did not come about"
                engine.show(number)
                number = min(number + 1, LAST_PAGE)
                time.sleep(0.5)
                if end is None and count_known(prometheus) >= known + KNOWN_SECONDS:
                    end = time.monotonic() + chance.uniform(*LIFE)
            if life < KILLS:
                process.send_signal(signal.SIGKILL)
                process.wait()
                time.sleep(chance.uniform(*PAUSE))
        found, times = {}, set()
        for name, label in (("gpu_seconds", "state"), ("cost_usd", "phase")):
            series = prometheus.query(f"llm_serving_{name}_total[5m]")
            found[name] = {one["metric"][label]: add_up(one["values"]) for one in series}
            times |= {at for one in series for at, _ in one["values"]}
        process.terminate()
        process.wait()
    return max(times) - min(times), found["gpu_seconds"], found["cost_usd"]


def test_money_survives_the_process(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    elapsed, seconds, usd = crash(tmp_path, "--state-dir", str(tmp_path / "state"))
    assert elapsed - BEHIND_SECONDS <= sum(seconds.values()) <= elapsed + 2.0
    assert elapsed - BEHIND_SECONDS <= sum(usd.values()) <= elapsed + 2.0
    # nobody saw what the GPUs did between a snapshot and the next start, and nothing else of it is made up
    assert usd["unattributed"] >= seconds["unknown"] - 1.0
    assert 0 < seconds["unknown"] < sum(seconds.values()) - 2.0
    assert usd["down"] == 0
