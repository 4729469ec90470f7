"""A drill whose alert goes from a real Prometheus to a real Alertmanager: for whom it is there, and that a silence keeps it from them."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import requests

from llm_serving_exporter.drill.command import run
from llm_serving_exporter.sim.ports import require_free
from tests.drillbed import Bed, Fleet
from tests.unit.drill.test_drill import words

pytestmark = pytest.mark.e2e

ROUTES = """
route:
  receiver: nobody
  group_wait: 1s
  routes: [{receiver: tickets, matchers: ['severity="warning"']}]
receivers: [{name: nobody}, {name: tickets}]
"""


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        pytest.skip("no alertmanager on PATH (Debian: apt-get install prometheus-alertmanager)")
    folder: Path = tmp_path_factory.mktemp("alertmanager")
    (folder / "alertmanager.yml").write_text(ROUTES)
    address = f"127.0.0.1:{require_free('127.0.0.1', 0)}"
    command = [
        program,
        f"--config.file={folder}/alertmanager.yml",
        f"--storage.path={folder}/data",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 20
            while True:
                try:
                    if requests.get(f"http://{address}/-/ready", timeout=2).status_code == 200:
                        break
                except requests.ConnectionError:
                    pass
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.1)
            yield address
        finally:
            process.terminate()


def test_it_is_known_for_whom_the_alert_was_and_that_a_silence_kept_it_from_them(
    alertmanager: str, tmp_path: Path
) -> None:
    silence = {
        "matchers": [{"name": "model_name", "value": "silenced", "isRegex": False}],
        "startsAt": datetime.now(UTC).isoformat(),
        "endsAt": (datetime.now(UTC) + timedelta(hours=1)).isoformat(),
        "createdBy": "test",
        "comment": "test",
    }
    answer = requests.post(f"http://{alertmanager}/api/v2/silences", json=silence, timeout=5)
    assert answer.status_code == 200, answer.text
    asked = ["--alertmanager-url", f"http://{alertmanager}", "--hold", "4s", "--page-slack", "3s"]
    with Bed(tmp_path, Fleet("told"), Fleet("silenced"), alertmanager=alertmanager) as bed:
        status = {model: run(words(bed, bed[model], tmp_path / model, *asked)) for model in ("told", "silenced")}
    assert status == {"told": 0, "silenced": 1}
    reports = {}
    for model in status:
        (report,) = (tmp_path / model).glob("*.json")
        reports[model] = json.loads(report.read_text())
    told = next(one for one in reports["told"]["alerts"] if one["name"] == "LLMServingReplicaLost")
    assert (told["receivers"], told["silenced"], told["arrival"]) == (["tickets"], False, "in time")
    assert reports["told"]["lost_unix_seconds"] < told["firing_unix_seconds"] <= told["received_unix_seconds"]
    assert reports["silenced"]["reasons"] == [
        "LLMServingReplicaLost reached Alertmanager and was silenced: nobody was told"
    ]
