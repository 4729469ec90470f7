"""What can be checked of deploy/ without a container engine or an init system."""

from __future__ import annotations

import re
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.daemon.schedule import MAX_THREADS
from llm_serving_exporter.fetch.connect import MOST_THREADS
from llm_serving_exporter.web.crowd import Limits, fit_connections
from llm_serving_simulator.fleet.scenario import load
from llm_serving_simulator.fleet.server import exporter_config
from tests.support.builders.configuration import load_flags
from tests.support.paths import ROOT
from tests.support.servers.server_process import program
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

COMPOSE = ROOT / "deploy/compose"
FILES = ("compose.yml", "beside-engine.yml")
DOCKERFILE = ROOT / "deploy/container/Dockerfile"
UNIT = ROOT / "deploy/systemd/llm-serving-exporter.service"
# of systemd-analyze security, from 0 (closed) to 10 (open): above this something that is closed now was opened
MOST_EXPOSED = 2.0


def test_the_unit_allows_every_thread_and_socket_that_the_exporter_makes() -> None:
    text = UNIT.read_text()
    numbers = {name: int(value) for name, value in re.findall(r"^(LimitNOFILE|TasksMax)=(\d+)$", text, re.MULTILINE)}
    assert numbers["TasksMax"] == MAX_THREADS + MOST_THREADS + 64
    assert fit_connections(Limits(), numbers["LimitNOFILE"]) == Limits().connections


def services(file: str) -> dict[str, Any]:
    """Those of a file and of what it includes."""
    document = load_yaml((COMPOSE / file).read_text())
    found = dict(document["services"])
    for included in document.get("include", ()):
        found |= services(included)
    return found


@pytest.mark.parametrize("file", FILES)
def test_what_is_mounted_is_there_and_cannot_be_written(file: str) -> None:
    mounted = [volume for one in services(file).values() for volume in one.get("volumes", ()) if volume.startswith(".")]
    assert len(mounted) >= 5
    for volume in mounted:
        source, _, mode = volume.split(":")
        assert (COMPOSE / source).exists(), volume
        assert mode == "ro", volume


@pytest.mark.parametrize("file", FILES)
def test_every_image_has_a_version_and_every_port_is_this_machines(file: str) -> None:
    for name, service in services(file).items():
        if "build" in service:
            assert (COMPOSE / service["build"]["context"] / service["build"]["dockerfile"]).resolve() == DOCKERFILE
            assert service["read_only"] is True, name
            assert service["cap_drop"] == ["ALL"]
        else:
            assert re.fullmatch(r"\S+:v?\d+\.\d+\.\d+", service["image"]), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))


@pytest.mark.process
def test_prometheus_finds_the_exporter_alertmanager_and_the_rules(tmp_path: Path) -> None:
    text = (COMPOSE / "prometheus.yml").read_text()
    document = load_yaml(text)
    hosts = {
        target.partition(":")[0]
        for one in (*document["scrape_configs"], *document["alerting"]["alertmanagers"])
        for target in (one.get("static_configs") or [one])[0]["targets"]
    }
    assert hosts == {"exporter", "alertmanager"}
    found = services("compose.yml")
    # one network for the fleet and the exporter, under the exporter's name
    assert found["exporter"]["network_mode"] == "service:fleet"
    assert found["fleet"]["networks"]["default"]["aliases"] == ["exporter"]
    (rules,) = document["rule_files"]
    (mounted,) = (one for one in found["prometheus"]["volumes"] if one.startswith("../../alerts/rendered:"))
    assert rules.startswith(mounted.split(":")[1])
    (tmp_path / "prometheus.yml").write_text(text.replace(rules, str(ROOT / "alerts/rendered/*.yml")))
    checked(program("promtool"), "check", "config", str(tmp_path / "prometheus.yml"))
    checked(program("amtool"), "check-config", str(COMPOSE / "alertmanager.yml"))


def test_grafana_is_provisioned_from_where_the_files_are_mounted() -> None:
    volumes = dict(one.split(":")[:2] for one in services("compose.yml")["grafana"]["volumes"])
    (provider,) = (ROOT / "dashboards/provisioning/dashboards").glob("*.yml")
    path = load_yaml(provider.read_text())["providers"][0]["options"]["path"]
    assert volumes["../../dashboards/rendered"] == path
    assert volumes["../../dashboards/provisioning"] == "/etc/grafana/provisioning"
    (source,) = (ROOT / "dashboards/provisioning/datasources").glob("*.yml")
    assert load_yaml(source.read_text())["datasources"][0]["url"] == "http://prometheus:9090"
    home = services("compose.yml")["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (ROOT / "dashboards/rendered" / Path(home).name).exists()


def test_the_exporter_reads_the_fleet_that_is_simulated() -> None:
    scenario = load(str(COMPOSE / "fleet.yml"))
    command = services("compose.yml")["fleet"]["command"]
    first = int(command[command.index("--port") + 1])
    urls = {one.name: f"http://127.0.0.1:{first + number}" for number, one in enumerate(scenario.replicas)}
    written = load_yaml(exporter_config(scenario, urls))
    configured = load_yaml((COMPOSE / "exporter.yml").read_text())
    assert {key: configured[key] for key in written} == written
    config = load_flags("--config.file", str(COMPOSE / "exporter.yml"))
    assert config.prices is not None


def checked(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def stages() -> list[str]:
    return re.split(r"^FROM ", DOCKERFILE.read_text(), flags=re.MULTILINE)[1:]


def test_the_image_copies_what_is_there_and_not_ignored() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [line.split()[1:-1] for line in stages()[0].splitlines() if line.startswith("COPY ")]
    for source in (one for line in copied for one in line):
        assert (ROOT / source).exists(), source
        assert any(fnmatch(source, pattern) for pattern in allowed), source


def test_the_image_runs_as_nobody_in_particular_and_says_how_it_is() -> None:
    last = stages()[-1]
    user = re.search(r"^USER (\d+):(\d+)$", last, re.MULTILINE)
    assert user
    assert int(user[1]) > 0
    assert "/-/healthy" in last.partition("HEALTHCHECK")[2]
    assert 'ENTRYPOINT ["llm-serving-exporter"]' in last


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze on PATH")
    # systemd looks whether the program is there
    text = re.sub(r"/opt/llm-serving-exporter/bin/llm-serving-exporter", "/bin/true", UNIT.read_text())
    path = tmp_path / UNIT.name
    path.write_text(text)
    return path


@pytest.mark.process
def test_the_drop_in_for_engines_of_other_users_opens_one_capability_and_nothing_else(unit: Path) -> None:
    drop_in = (ROOT / "deploy/systemd/engines-of-other-users.conf").read_text()
    settings = [line for line in drop_in.splitlines() if line and not line.startswith(("#", "["))]
    assert settings == ["PrivateUsers=no", "CapabilityBoundingSet=CAP_SYS_PTRACE", "AmbientCapabilities=CAP_SYS_PTRACE"]
    # as systemd reads it: after the unit's own settings
    text = unit.read_text()
    assert text.count("[Install]") == 1
    unit.write_text(text.replace("[Install]", "\n".join([*settings, "", "[Install]"])))
    checked("systemd-analyze", "verify", str(unit))
    said = checked("systemd-analyze", "security", "--offline=true", "--no-pager", str(unit))
    exposed = {line.split()[1].rstrip("=") for line in said.splitlines() if line.startswith("✗")}
    assert {one for one in exposed if "PTRACE" in one} == {"CapabilityBoundingSet=~CAP_SYS_PTRACE"}
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert level
    assert float(level[1]) <= MOST_EXPOSED + 0.5


@pytest.mark.process
@pytest.mark.seam("systemd")
def test_systemd_takes_the_unit_without_a_word(unit: Path) -> None:
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    own = [line for line in (done.stdout + done.stderr).splitlines() if UNIT.name in line]
    assert (done.returncode, own) == (0, [])


@pytest.mark.process
def test_the_unit_is_sandboxed(unit: Path) -> None:
    said = checked("systemd-analyze", "security", "--offline=true", str(unit))
    level = re.search(r"Overall exposure level for \S+: ([\d.]+)", said)
    assert level
    assert float(level[1]) <= MOST_EXPOSED
