"""The command line as its users meet it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from llm_serving_exporter import __version__
from llm_serving_exporter.cli import _COMMANDS, main
from tests.support.builders.recordings import recording
from tests.support.servers.faultbehaviours import page, silent
from tests.support.servers.faultserver import FaultServer
from tests.support.servers.stepped import SteppedServer
from tests.support.waiting import PATIENCE_SECONDS


def run(*words: str) -> subprocess.CompletedProcess[str]:
    """What a command says and how it ends, without a process of its own: the start of one takes longer than most of them."""
    said, complained = StringIO(), StringIO()
    status: object
    with redirect_stdout(said), redirect_stderr(complained):
        try:
            status = main(list(words))
        except SystemExit as ended:
            status = ended.code or 0
    assert isinstance(status, int)
    return subprocess.CompletedProcess(words, status, said.getvalue(), complained.getvalue())


def start(*words: str) -> subprocess.CompletedProcess[str]:
    """The same of a real process."""
    command = [sys.executable, "-m", "llm_serving_exporter", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False)


@pytest.mark.process
@pytest.mark.seam("commands")
def test_each_command_starts_as_a_program() -> None:
    """Status and text of all the rest are asked without one."""
    faults = []
    for command in _COMMANDS:
        done = start(command, "--help")
        if done.returncode or done.stderr or not done.stdout.startswith("usage: llm-serving-exporter"):
            faults.append((command, done.returncode, done.stdout[:80], done.stderr))
    assert faults == []


def test_help_names_every_command_and_flag() -> None:
    text = run("--help").stdout
    for word in (
        "once",
        "check-config",
        "demo",
        "--target",
        "--config.file",
        "--web.listen-address",
        "--scrape.interval",
        "--slo.ttft",
    ):
        assert word in text, word
    assert "LLM_SERVING_EXPORTER_" in text
    for command in ("once", "check-config"):
        assert run(command, "--help").returncode == 0


@pytest.mark.process
def test_version() -> None:
    expected = re.compile(
        rf"llm-serving-exporter {re.escape(__version__)} \(revision (unknown|[0-9a-f]{{7,40}}(-dirty)?)\)\n"
    )
    for command in ("", "once", "rules", "drill", "report", "page-test", "ceiling", "simulate"):
        assert expected.fullmatch(start(*command.split(), "--version").stdout), command


def test_an_unknown_command_is_refused_with_the_nearest_or_with_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chek-config"]) == 2
    assert capsys.readouterr().err == 'error: there is no command "chek-config". Did you mean check-config?\n'
    assert main(["xyzzy"]) == 2
    assert 'no command "xyzzy". The commands are run, once, check-config, ceiling, rules, ' in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "wrong", "near"),
    [
        (["--target", "http://a:1", "--scrape.intervall", "5s"], "--scrape.intervall", "--scrape.interval"),
        (["once", "--jsn"], "--jsn", "--json"),
        (["check-config", "--config-file=x"], "--config-file", "--config.file"),
        (["ceiling", "--contxt", "5"], "--contxt", "--context"),
        (["rules", "--conf", "x"], "--conf", "--config.file"),
        (["dashboards", "--output", "x"], "--output", "--output-dir"),
        (["drill", "--prometheus.uri", "http://p:9090"], "--prometheus.uri", "--prometheus.url"),
        (["report", "--prometheus-url", "http://p:9090"], "--prometheus-url", "--prometheus.url"),
        (["demo", "--grafana-prot", "1"], "--grafana-prot", "--grafana-port"),
        (["demo", "--recording", "--engine-prot", "1"], "--engine-prot", "--engine-port"),
        (["simulate", "--scenarios", "x"], "--scenarios", "--scenario"),
        (["page-test", "--alertmanager-url", "x"], "--alertmanager-url", "--alertmanager.url"),
    ],
)
def test_every_command_names_the_flag_that_is_near(
    words: list[str], wrong: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert f"there is no flag {wrong}. Did you mean {near}?" in capsys.readouterr().err


def test_help_of_a_command_begins_with_its_own_flags() -> None:
    once = run("once", "--help").stdout
    assert once.index("--wait") < once.index("configuration:") < once.index("--config.file")
    assert once.startswith("usage: llm-serving-exporter once [--wait 5s] [--json]")
    check = run("check-config", "--help").stdout
    assert check.startswith("usage: llm-serving-exporter check-config --config.file FILE")
    assert check.index("--version") < check.index("configuration:") < check.index("--config.file", 80)


def test_a_wait_without_a_unit_still_works_and_says_what_to_write() -> None:
    done = run("once", "--target", "http://127.0.0.1:9", "--wait", "0.5")
    assert done.stderr == 'warning: flag --wait: write 500ms instead of "0.5", which the next version refuses\n'
    refused = run("once", "--target", "http://127.0.0.1:9", "--wait", "soon")
    assert refused.returncode == 2
    assert '"soon" is not a duration' in refused.stderr


@pytest.mark.parametrize("wait", ["0", "99ms", "2h", "292y"])
def test_a_wait_within_which_nothing_can_be_seen_or_that_nobody_waits_is_refused(
    wait: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["once", "--target", "http://127.0.0.1:9", "--wait", wait])
    assert ended.value.code == 2
    assert f'flag --wait: "{wait}" is not within 100ms to 1h. Write a duration such as 5s.' in capsys.readouterr().err


def test_nothing_to_read_is_refused_with_what_to_do() -> None:
    done = run()
    assert done.returncode == 2
    assert "--target http://localhost:8000" in done.stderr


def test_check_config_says_good_and_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "exporter.yml"
    file.write_text("targets: [{url: 'http://localhost:8000'}]\nslo: {ttft: 3s}\n")
    assert main(["check-config", "--config.file", str(file)]) == 0
    said = capsys.readouterr()
    found, target = said.out.splitlines()
    assert found == f"{file}: good, 1 target"
    assert target.endswith(":8000  http://localhost:8000  found out from the page")
    # 3 s lies between two edges of vLLM's histogram: the strict one is counted
    assert "2.5" in said.err
    assert "5" in said.err


def test_check_config_shows_whose_pages_targets_have_and_the_tables_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sd.yml").write_text("- {targets: ['b:1'], labels: {name: found, runtime: acme}}\n")
    file = tmp_path / "exporter.yml"
    file.write_text(
        """
targets: [{name: set, url: 'http://a:1', runtime: fork}]
file_sd: [{files: [sd.yml]}]
runtimes:
- name: acme
  title: ACME Serve
  prefixes: [acme_]
  rows:
  - {field: requests_waiting, samples: acme_w, aggregate: max, quality: slow, refresh: 10s}
  - {field: requests_waiting, samples: [acme_a, acme_b], when: 'acme_info{queue="on"}', versions: ">=2"}
- name: fork
  based_on: vllm
  fingerprints: {all_of: [fork_a, {name: fork_b, label: c}], none_of: [fork_c]}
  rows: [{field: kv_cache_usage_ratio, samples: fork_kv, scale: 0.01, where: {gpu: ["0", ""]}}]
"""
    )
    assert main(["check-config", "--config.file", str(file)]) == 0
    said = capsys.readouterr()
    assert said.err == (
        f"warning: {file}: runtimes[0]: no row reads decode_tokens_total: "
        "decode throughput, the limiter and every rate of generated tokens stay absent\n"
        f"warning: {file}: runtimes[0]: no row reads requests_running: batch utilisation and the limiter stay absent\n"
    )
    lines = said.out.splitlines()
    assert lines[:10] == [
        f"{file}: good, 2 targets, 1 of them from file_sd",
        "  set    http://a:1  fork",
        "  found  http://b:1  acme",
        "",
        f"runtime acme (ACME Serve), {file}: runtimes[0]",
        "  page           /metrics",
        "  recognised by  nothing: only a target with runtime: acme is read by it",
        "  model_name     as the target is configured",
        "  engine         0",
        '  requests_waiting  largest acme_w, slow (10s); else acme_a + acme_b, when acme_info{queue="on"}, versions >=2',
    ]
    fork = lines[lines.index(f"runtime fork (fork), {file}: runtimes[1]") :]
    assert fork[2:6] == [
        "  recognised by  fork_a with fork_b{c} without fork_c",
        "  model_name     from the label model_name",
        "  engine         from the label engine",
        "  kv_cache_usage_ratio  fork_kv × 0.01, gpu none or 0; else as vLLM",
    ]
    assert fork[6].startswith("  as vLLM: prompt_tokens_total, ")


@pytest.mark.process
@pytest.mark.seam("once")
def test_once_prints_a_table_a_person_can_read() -> None:
    with SteppedServer(recording("vllm-0.32"), advance=True) as server:
        server.show(50)
        done = start("once", "--target", server.url, "--wait", "1s")
    assert done.returncode == 0, done.stderr
    for words in (
        "ready, vllm 0.32.0",
        "model tiny-llama, engine 0",
        "decode",
        "tokens/s",
        "KV cache in use",
        "of 8192 tokens",
        "p99",
    ):
        assert words in done.stdout, done.stdout
    assert "Which GPUs serve this target is not known" in done.stdout


def test_once_as_json_has_what_the_page_said() -> None:
    with SteppedServer(recording("vllm-0.32")) as server:
        server.show(60)
        done = run("once", "--target", server.url, "--wait", "200ms", "--json")
    document = json.loads(done.stdout)
    (engine,) = document["engines"]
    assert (document["runtime"], document["version"], document["state"]) == ("vllm", "0.32.0", "ready")
    assert (engine["kv_cache_capacity_tokens"], engine["batch_limit_requests"], engine["context_limit_tokens"]) == (
        8192,
        16,
        2048,
    )
    assert engine["derived"]["phase_tokens_per_second"] == {"decode": 0.0, "prefill": 0.0}
    assert document["signals"]["latency_ttft"] == "idle"


@pytest.mark.process
def test_once_reads_every_target_of_a_discovery_file(tmp_path: Path) -> None:
    file = tmp_path / "targets.json"
    with SteppedServer(recording("vllm-0.32")) as first, SteppedServer(recording("vllm-0.32-spec")) as second:
        file.write_text(json.dumps([{"targets": [server.url.removeprefix("http://") for server in (first, second)]}]))
        done = run("once", "--file-sd", str(file), "--wait", "100ms", "--json")
        assert [document["runtime"] for document in json.loads(done.stdout)] == ["vllm", "vllm"]
        assert "good, 2 targets, 2 of them from file_sd" in start("check-config", "--file-sd", str(file)).stdout
    file.write_text("[]")
    nothing = run("once", "--file-sd", str(file))
    assert (nothing.returncode, nothing.stderr) == (1, "error: file_sd has no target to read now\n")
    file.write_text("[{")
    broken = run("check-config", "--file-sd", str(file))
    assert broken.returncode == 1
    assert broken.stderr.startswith(f"error: {file}: this is not JSON at line 1, column 3")
    assert broken.stdout.startswith(f"flags and environment: good, but for {file}, 0 targets")
    nothing = run("once", "--file-sd", str(file))
    assert (nothing.returncode, nothing.stderr.splitlines()[0]) == (1, broken.stderr.splitlines()[0])
    file.unlink()
    assert run("check-config", "--file-sd", str(file)).returncode == 0, "it may be written later"


@pytest.mark.e2e
def test_once_and_check_config_read_what_a_server_lists(tmp_path: Path) -> None:
    file = tmp_path / "exporter.yml"
    with SteppedServer(recording("vllm-0.32")) as engine, FaultServer({}) as inventory:
        address = engine.url.removeprefix("http://")
        inventory.behave("/t", page(json.dumps([{"targets": [address]}]).encode(), "application/json"))
        file.write_text(f"http_sd: [{{url: '{inventory.url}/t', hosts: [127.0.0.1], timeout: 3s}}]\n")
        done = run("once", "--config.file", str(file), "--wait", "100ms", "--json")
        assert json.loads(done.stdout)["runtime"] == "vllm"
        assert "good, 1 target, 1 of them from http_sd" in run("check-config", "--config.file", str(file)).stdout
        inventory.behave("/t", silent())
        late = run("check-config", "--config.file", str(file))
        assert late.returncode == 0
        first, second, *rest = late.stderr.splitlines()
        assert first == f"waiting up to 12 s for {inventory.url}/t"
        assert second.startswith(f"warning: {inventory.url}/t: ")
        assert "3 s" in second
        assert rest == []
    nothing = run("once", "--config.file", str(file), "--shard", "2/3")
    assert nothing.returncode == 1
    assert nothing.stderr.endswith("error: http_sd has no target to read in shard 2/3 now\n")


def test_once_says_what_is_wrong_and_fails() -> None:
    done = run("once", "--target", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert "nothing listens on 127.0.0.1:9" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_metrics_path_is_found_and_a_wrong_one_is_said() -> None:
    with SteppedServer(recording("vllm-0.32")) as server:
        server.show(60)
        assert "/metrics" in run("once", "--target", server.url, "--wait", "100ms").stdout
        done = run("once", "--target", f"{server.url}/nothing-here", "--wait", "100ms")
    assert done.returncode == 1
    assert "404" in done.stdout


@pytest.mark.process
def test_help_does_not_wait_for_what_reads_a_configuration() -> None:
    code = (
        "import sys\n"
        "from llm_serving_exporter.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "late = {'llm_serving_exporter.settings.load', 'llm_serving_exporter.engines.registry', 'yaml', 'prometheus_client', 'pynvml'}\n"
        "print(sorted(late & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
