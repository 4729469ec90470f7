"""What can be checked of deploy/ and its pages without a container engine or an init system: units, examples, scrapes, commands."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.cli import _OWN_ARGUMENTS
from llm_serving_exporter.daemon.schedule import MAX_THREADS
from llm_serving_exporter.fetch.connect import MOST_THREADS
from llm_serving_exporter.web.crowd import Limits, fit_connections
from llm_serving_review.settings.arguments import parser
from llm_serving_simulator.fleet.scenario import load
from llm_serving_simulator.fleet.server import exporter_config
from llm_serving_simulator.programs import Pace, Rules, prometheus_config
from tests.support.builders.configuration import load_flags
from tests.support.helm import NAME, STACKS, find_tool, render, template
from tests.support.paths import ROOT
from tests.support.servers.server_process import program
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_all_yaml, load_yaml
from tests.unit.deploy.test_autoscaling import STEPS

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


# --- the examples of deploy/ say what the program takes ---


DEPLOY = ROOT / "deploy"


def test_the_cronjob_calls_the_review_as_it_wants_to_be_called() -> None:
    job = load_yaml((DEPLOY / "report-cronjob.example.yml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    command, *words = container["args"]
    assert command in _OWN_ARGUMENTS
    found = parser().parse_args(words)
    assert (found.config_file, found.deliver) == ("/etc/llm-serving/report.yml", True)
    # every folder that it names is mounted, and nothing else is writable
    mounted = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert mounted["/etc/llm-serving"] is True
    assert {path for path, read_only in mounted.items() if not read_only} == {
        "/tmp",
        "/var/lib/llm-serving-exporter/reviews",
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True


# --- every scrape of the exporter that is shipped or shown keeps the exporter's own labels ---


# folders of what is shipped or shown; tests scrape as they like
ROOTS = ("deploy", "docs", "alerts", "dashboards", "exporter")
_BLOCK = re.compile(r"^```ya?ml\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PORT = "10077"
# objects of prometheus-operator that say how to scrape, and the field of their endpoints
_ENDPOINTS = {"PodMonitor": "podMetricsEndpoints", "ServiceMonitor": "endpoints"}


def texts() -> Iterator[tuple[str, str]]:
    """YAML of files and of documents' examples, with where it stands. Templates are no YAML before they are rendered."""
    pages = [ROOT / "README.md", *(path for root in ROOTS for path in (ROOT / root).rglob("*.md"))]
    for path in pages:
        for number, text in enumerate(_BLOCK.findall(path.read_text())):
            yield f"{path.relative_to(ROOT)} example {number}", text
    for path in (path for root in ROOTS for path in (ROOT / root).rglob("*.y*ml")):
        text = path.read_text()
        if "{{" not in text:
            yield str(path.relative_to(ROOT)), text


def scrapes_of(document: Any) -> Iterator[tuple[str, bool]]:
    """Scrapes of the exporter in a document, each with whether our labels are kept."""
    if not isinstance(document, dict):
        return
    for job in document.get("scrape_configs") or ():
        if _PORT in str(job) or "llm-serving" in job.get("job_name", ""):
            yield job["job_name"], job.get("honor_labels") is True
    kind = document.get("kind")
    spec = document.get("spec") or {}
    for endpoint in spec.get(_ENDPOINTS.get(kind, ""), ()):
        yield str(kind), endpoint.get("honorLabels") is True
    if kind == "ScrapeConfig":
        yield kind, spec.get("honorLabels") is True


def scrapes() -> Iterator[tuple[str, bool]]:
    for where, text in texts():
        for document in load_all_yaml(text):
            for name, honors in scrapes_of(document):
                yield f"{where}: {name}", honors


def test_every_scrape_honors_the_exporters_labels() -> None:
    found = dict(scrapes())
    assert [where for where, honors in found.items() if not honors] == []
    assert {
        "deploy/compose/prometheus.yml: llm-serving",
        "alerts/alertmanager/prometheus.example.yml: llm-serving-exporter",
    } <= {*found}


def test_templates_of_scrapes_say_so_too() -> None:
    kinds = re.compile(r"^kind: (PodMonitor|ServiceMonitor|ScrapeConfig)$", re.MULTILINE)
    templates = [
        path for path in (ROOT / "deploy").rglob("*") if path.is_file() and path.suffix in (".yaml", ".yml", ".tpl")
    ]
    found = [path for path in templates if "{{" in path.read_text() and kinds.search(path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in found if "honorLabels" not in path.read_text()] == []


def test_the_demos_prometheus_does(tmp_path: Path) -> None:
    document = load_yaml(prometheus_config("127.0.0.1:1", Pace(), Rules()))
    assert [honors for _, honors in scrapes_of(document)] == [True]


def test_one_that_does_not_is_seen() -> None:
    job = {"job_name": "a", "static_configs": [{"targets": ["b:10077"]}]}
    monitor = {"kind": "PodMonitor", "spec": {"podMetricsEndpoints": [{"port": "metrics"}]}}
    assert [*scrapes_of({"scrape_configs": [job]}), *scrapes_of(monitor)] == [("a", False), ("PodMonitor", False)]


# --- docs/kubernetes.md: its commands are what the chart takes, its YAML parses ---


PAGE = (ROOT / "docs/kubernetes.md").read_text()
README = (ROOT / "deploy/helm/llm-serving-exporter/README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
# files of values that it shows
PAGE_VALUES = [text for language, text in BLOCKS if language == "yaml" and re.match(r"# (my-values|values for)", text)]


def commands(page: str) -> list[list[str]]:
    """Words of each command, continuation lines joined."""
    texts = (text for language, text in re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL) if language == "sh")
    lines = (line for text in texts for line in re.sub(r"\\\n\s*", "", text).splitlines() if line)
    return [shlex.split(line) for line in lines]


HELM = [words for words in (*commands(PAGE), *commands(README)) if words[:1] == ["helm"]]


def rendered_with(words: list[str]) -> list[str]:
    """What of `helm install` or `helm upgrade` also means something to `helm template`."""
    _, verb, release, chart, *rest = words
    assert (verb in ("install", "upgrade"), release, chart) == (True, NAME, "deploy/helm/llm-serving-exporter")
    where = rest.index("--namespace")
    found = [word for word in rest[:where] + rest[where + 2 :] if word != "--reset-then-reuse-values"]
    return [str(ROOT / word) if word.startswith("deploy/") else word for word in found]


@pytest.mark.packages
@pytest.mark.parametrize("words", HELM, ids=lambda words: " ".join(words)[:60])
def test_helm_takes_each_command(words: list[str]) -> None:
    done = template(*rendered_with(words))
    assert done.returncode == 0, done.stderr


@pytest.mark.packages
def test_the_first_command_makes_what_is_waited_for() -> None:
    waited = [words[-1] for words in commands(PAGE) if "rollout" in words]
    for words, name in zip(HELM, waited, strict=False):
        kind = name.partition("/")[0]
        (workload,) = (one for one in render(*rendered_with(words)) if one["kind"].lower() == kind)
        assert workload["metadata"]["name"] == name.partition("/")[2]
        if kind == "daemonset":
            assert workload["spec"]["template"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert waited == [f"daemonset/{NAME}", f"statefulset/{NAME}"]


def test_there_are_commands_for_each_mode() -> None:
    modes = {word.partition("=")[2] for words in HELM for word in words if word.startswith("mode=")}
    assert modes == {"daemonset", "statefulset", "sidecar"}


def test_the_yaml_of_the_page_parses() -> None:
    found = [load_yaml(text) for language, text in BLOCKS if language == "yaml"]
    assert len(found) >= 4
    assert all(isinstance(one, dict) for one in found)


@pytest.mark.packages
@pytest.mark.parametrize("values", PAGE_VALUES)
def test_the_values_of_the_page_are_taken(values: str, tmp_path: object) -> None:
    path = f"{tmp_path}/values.yaml"
    with open(path, "w") as file:
        file.write(values)
    mode = "sidecar" if "mode sidecar" in values else "daemonset"
    done = template("--values", path, f"--set=mode={mode}")
    assert done.returncode == 0, done.stderr


def test_what_is_linked_or_applied_is_there() -> None:
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", PAGE)
    missing = {path for path in linked if not (ROOT / "docs" / path).exists()}
    assert missing == set()
    applied = {word for words in commands(PAGE) for word in words if word.startswith("deploy/")}
    assert len(applied) >= 5
    assert [path for path in applied if not (ROOT / path).exists()] == []
    assert all(f"stacks/{path.name}" in PAGE for path in STACKS.glob("*.yaml"))


def test_headings_that_are_linked_are_there() -> None:
    headings = {
        re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in re.findall(r"^#+ (.+)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= headings
    assert "autoscaling" in headings


def test_values_that_are_named_exist() -> None:
    known = set(re.findall(r"^\| `([\w.]+)` \|", README, re.MULTILINE))
    named = set(
        re.findall(
            r"`((?:discovery|gpu|daemonset|statefulset|sidecar|scrape|networkPolicy|rbac|kubelet|dashboards|rules)\.[\w.]+)",
            PAGE,
        )
    )
    assert len(named) > 10
    assert {name for name in named if not any(name == one or name.startswith(f"{one}.") for one in known)} == set()


def test_the_steps_and_what_they_cost_are_said() -> None:
    said = re.search(r"in steps: 1 to 8, ([\d, ]+) and so on", PAGE)
    assert said
    assert (*range(1, 9), *map(int, said[1].split(", "))) == STEPS
    worst = {
        most: max(next(step for step in STEPS if step >= number) - number for number in range(1, most + 1))
        for most in (16, 32, 64)
    }
    assert worst == {16: 1, 32: 3, 64: 7}
    assert "at most 1 up to 16 replicas, 3 up to 32, 7 up to 64" in PAGE
    assert max((next(step for step in STEPS if step >= number) - number) / number for number in range(1, 65)) < 0.25


# --- the workflow of the forge ---


FILE = ROOT / ".github/workflows/ci.yml"
WORKFLOW: dict[Any, Any] = load_yaml(FILE.read_text())
# of the job that has never run here
UNPROVEN = "image"


def test_every_step_is_a_target_of_ours_but_of_the_one_job_that_says_that_it_is_unproven() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    ran = [(name, step["run"]) for name, job in WORKFLOW["jobs"].items() for step in job["steps"] if "run" in step]
    assert {run.removeprefix("make ") for name, run in ran if name != UNPROVEN} <= targets
    assert [run.split(" ")[0] for name, run in ran if name == UNPROVEN] == [".ci/release"]
    assert re.search(rf"# unproven: .*\n  {UNPROVEN}:\n", FILE.read_text())


def test_it_does_what_a_clean_machine_must_pass() -> None:
    done = {step.get("run") for job in WORKFLOW["jobs"].values() for step in job["steps"]}
    listed = re.findall(r"^make_all (.*)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert len(listed) == 4
    assert {f"make {target}" for target in " ".join(listed[1:]).split()} <= done
    assert {"make audit", "make dist", "make deb", "make sbom"} <= done


def test_only_the_release_may_write_and_each_job_ends() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for name, job in WORKFLOW["jobs"].items():
        assert "permissions" not in job or name == UNPROVEN
        assert 0 < job["timeout-minutes"] <= 60
    assert set(WORKFLOW["jobs"][UNPROVEN]["needs"]) == set(WORKFLOW["jobs"]) - {UNPROVEN}


def test_it_tests_the_pythons_that_the_package_names() -> None:
    classifiers = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text())
    assert WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"] == classifiers


@pytest.mark.packages
def test_actionlint_finds_nothing() -> None:
    actionlint = find_tool("actionlint")
    if actionlint is None:
        pytest.skip("no actionlint on PATH; `make test-packages` builds it where Go is installed")
    done = subprocess.run(
        [actionlint, str(FILE)], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
