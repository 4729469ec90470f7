"""Flags, environment variables and YAML keys: one table, one order of precedence."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from llm_serving_exporter.model.cost import Method
from llm_serving_exporter.model.target import Shard
from llm_serving_exporter.model.tenants import TenantKind
from llm_serving_exporter.settings.config import Config, GpuConfig, LogConfig, SloConfig, WebConfig
from llm_serving_exporter.settings.sources import OPTIONS, add_flags
from tests.support.builders.configuration import load_flags, load_text, problems_of, problems_of_flags
from tests.support.paths import ROOT
from tests.support.rows import check_rows

TARGET = ("--target", "http://localhost:8000")
PREFIX = "LLM_SERVING_EXPORTER_"


def test_a_target_alone_gives_the_defaults_of_the_types() -> None:
    config = load_flags(*TARGET)
    assert (config.web, config.log, config.gpu, config.slo) == (WebConfig(), LogConfig(), GpuConfig(), SloConfig())
    blank = Config(targets=())
    assert config.window_seconds == blank.window_seconds
    assert config.interval_seconds == blank.interval_seconds
    assert config.stale_after_seconds == blank.stale_after_seconds
    assert config.state_file is None
    assert config.file is None
    assert config.warnings == ()


def test_flag_wins_over_environment_over_file_over_default(tmp_path: Path) -> None:
    text = "targets: ['http://a:1']\nwindow: 40s\n"
    environ = {PREFIX + "WINDOW": "50s"}
    assert load_text(tmp_path, "targets: ['http://a:1']\n").window_seconds == 60
    assert load_text(tmp_path, text).window_seconds == 40
    assert load_text(tmp_path, text, environ=environ).window_seconds == 50
    assert load_text(tmp_path, text, "--window", "55s", environ=environ).window_seconds == 55


RULES = Path(__file__).parent / "rules.yml"

# a value other than the default for each option: as text, and where it ends up in the Config
MODELS = str(Path(__file__).parent / "models.toml")
# any file that is long enough to be a key
KEY = str(Path(__file__).parent / "rules.yml")
PRICES = str(ROOT / "deploy/prices.example.yml")
SAMPLES = {
    "report.settings-file": ("/r.yml", lambda config: config.report_settings_file, "/r.yml"),
    "report.run": ("false", lambda config: config.report_run, False),
    "cost.price-file": (PRICES, lambda config: config.price_file, PRICES),
    "limiter.stalled-after": ("10m", lambda config: config.limiter.stalled_after_seconds, 600.0),
    "cost.method": ("flat", lambda config: config.attribution.method, Method.FLAT),
    "cost.decode-to-prefill-ratio": ("2.5", lambda config: config.attribution.decode_to_prefill_ratio, 2.5),
    "cost.compute-efficiency": ("0.5", lambda config: config.attribution.efficiency.compute, 0.5),
    "cost.bandwidth-efficiency": ("0.7", lambda config: config.attribution.efficiency.bandwidth, 0.7),
    "cost.gap-limit": ("30s", lambda config: config.cost.gap_limit_seconds, 30.0),
    "web.listen-address": ("127.0.0.1:9000", lambda config: config.web.listen_addresses, ("127.0.0.1:9000",)),
    "web.telemetry-path": ("/m", lambda config: config.web.telemetry_path, "/m"),
    "web.enable-lifecycle": ("true", lambda config: config.web.enable_lifecycle, True),
    "tenants.by": ("key", lambda config: config.tenants.by, TenantKind.KEY),
    "tenants.label": ("x_org", lambda config: config.tenants.label, "x_org"),
    "tenants.hmac-key-file": (KEY, lambda config: config.tenants.hmac_key_file, KEY),
    "tenants.limit": ("7", lambda config: config.tenants.limit, 7),
    "web.runbooks": ("true", lambda config: config.web.runbooks, True),
    "all-buckets": ("true", lambda config: config.all_buckets, True),
    "web.config.file": ("/dev/null", lambda config: config.web.config_file, "/dev/null"),
    "log.level": ("debug", lambda config: config.log.level, "debug"),
    "log.format": ("json", lambda config: config.log.format, "json"),
    "scrape.interval": ("2s", lambda config: config.targets[0].interval_seconds, 2.0),
    "scrape.timeout": ("3s", lambda config: config.targets[0].http.timeout_seconds, 3.0),
    "scrape.max-body-bytes": ("1MB", lambda config: config.targets[0].http.max_body_bytes, 1_000_000),
    "scrape.max-series": ("1000", lambda config: config.targets[0].max_series, 1000),
    "scrape.stale-after": ("20s", lambda config: config.stale_after_seconds, 20.0),
    "target-labels": ("team", lambda config: config.target_labels, ("team",)),
    "window": ("2m", lambda config: config.window_seconds, 120.0),
    "gpu.enabled": ("false", lambda config: config.gpu.enabled, False),
    "gpu.gpm": ("false", lambda config: config.gpu.gpm, False),
    "gpu.pod-resources-socket": ("off", lambda config: config.gpu.pod_resources_socket, "off"),
    # true wants a section of kubernetes: test_kubernetes.py
    "gpu.dra": ("false", lambda config: config.gpu.dra, False),
    "gpu.interval": ("10s", lambda config: config.gpu.interval_seconds, 10.0),
    "dcgm.url": ("http://gpu-1:9400/m", lambda config: config.dcgm.url, "http://gpu-1:9400"),
    "dcgm.interval": ("1m", lambda config: config.dcgm.interval_seconds, 60.0),
    "dcgm.timeout": ("5s", lambda config: config.dcgm.http.timeout_seconds, 5.0),
    "device-exporter.url": (
        "http://gpu-1:5000/m",
        lambda config: config.device_exporter and config.device_exporter.metrics_path,
        "/m",
    ),
    "device-exporter.timeout": ("3s", lambda config: config.device_exporter.http.timeout_seconds, 3.0),
    "otlp.url": ("http://otel-1:4318/in", lambda config: config.otlp and config.otlp.path, "/in"),
    "otlp.interval": ("1m", lambda config: config.otlp.interval_seconds, 60.0),
    "otlp.timeout": ("3s", lambda config: config.otlp.http.timeout_seconds, 3.0),
    "otlp.gen-ai.operation": ("chat", lambda config: config.otlp.gen_ai_operation, "chat"),
    "slo.file": (str(RULES), lambda config: config.slo.e2e_seconds, 30.0),
    "slo.ttft": ("off", lambda config: config.slo.ttft_seconds, None),
    "slo.itl": ("200ms", lambda config: config.slo.itl_seconds, 0.2),
    "slo.e2e": ("1m", lambda config: config.slo.e2e_seconds, 60.0),
    "slo.errors": ("off", lambda config: config.slo.errors, False),
    "model-catalogue": (MODELS, lambda config: config.model_catalogue, MODELS),
    "hf-cache": ("/tmp/hub", lambda config: config.hf_cache, "/tmp/hub"),
    "drill.result-file": ("/tmp/drills.json", lambda config: config.drill_result_file, "/tmp/drills.json"),
    "state-dir": ("/tmp/kept", lambda config: config.state_dir, "/tmp/kept"),
    "state-file": ("/tmp/state", lambda config: config.state_file, "/tmp/state"),
    "shard": ("2/4", lambda config: config.shard, Shard(2, 4)),
    "gpu-model": ("H100 SXM", lambda config: config.targets[0].gpu_model, "H100 SXM"),
    "gpu-count": ("4", lambda config: config.targets[0].gpu_count, 4),
    "gpu-price": ("2.5", lambda config: config.prices.statements[0].usd_per_gpu_hour, 2.5),
    "file-sd": ("/tmp/*.yml", lambda config: config.discovery[0].files, ("/tmp/*.yml",)),
}


# what else must be set for an option to end up anywhere
BESIDE = dict.fromkeys(("dcgm.interval", "dcgm.timeout"), ("--dcgm.url", "http://gpu-1:9400"))
BESIDE |= dict.fromkeys(
    ("otlp.interval", "otlp.timeout", "otlp.gen-ai.operation"), ("--otlp.url", "http://otel-1:4318")
)
BESIDE["tenants.label"] = ("--tenants.by", "header")
BESIDE["device-exporter.timeout"] = ("--device-exporter.url", "http://gpu-1:5000")


def test_every_option_has_a_sample() -> None:
    assert {option.name for option in OPTIONS} - set(SAMPLES) == {"config.file", "target"}


@check_rows("option", [option for option in OPTIONS if option.name in SAMPLES], ids=lambda option: option.name)
def test_every_option_works_as_flag_variable_and_key(option: object, tmp_path: Path) -> None:
    text, find, expected = SAMPLES[option.name]
    beside = (*TARGET, *BESIDE.get(option.name, ()))
    assert find(load_flags(*beside, f"{option.flag}={text}")) == expected
    assert find(load_flags(*beside, environ={option.variable: text})) == expected
    if option.in_file:
        depth = len(option.keys) - 1
        content = "".join(f"{'  ' * level}{key}:\n" for level, key in enumerate(option.keys[:-1]))
        content += f"{'  ' * depth}{option.keys[-1]}: {text}\n"
        assert find(load_text(tmp_path, content, *beside)) == expected


@check_rows(
    ("flags", "expected"),
    [
        ((), True),
        (("--gpu.gpm",), True),
        (("--no-gpu.gpm",), False),
        (("--gpu.gpm=false",), False),
        (("--gpu.gpm=TRUE",), True),
        (("--no-gpu.gpm", "--gpu.gpm"), True),
        (("--gpu.gpm=1",), True),
    ],
)
def test_booleans(flags: tuple[str, ...], expected: bool) -> None:
    assert load_flags(*TARGET, *flags).gpu.gpm is expected


def test_addresses_to_listen_on_by_flag_variable_and_file(tmp_path: Path) -> None:
    both = ("127.0.0.1:1", "[::1]:2")
    assert (
        load_flags(*TARGET, "--web.listen-address", both[0], "--web.listen-address", both[1]).web.listen_addresses
        == both
    )
    assert load_flags(*TARGET, environ={PREFIX + "WEB_LISTEN_ADDRESS": ", ".join(both)}).web.listen_addresses == both
    in_file = "targets: ['http://a:1']\nweb: {listen_address: ['127.0.0.1:1', '[::1]:2']}\n"
    assert load_text(tmp_path, in_file).web.listen_addresses == both
    assert load_text(tmp_path, in_file, "--web.listen-address", ":3").web.listen_addresses == (":3",)
    assert load_flags(*TARGET, *(["--web.listen-address", ":3"] * 2)).web.listen_addresses == (":3",)


def test_targets_by_flag_and_by_variable() -> None:
    by_flag = load_flags("--target", "http://a:1", "--target", "b:2")
    by_variable = load_flags(environ={PREFIX + "TARGET": "http://a:1, b:2,"})
    assert [target.url for target in by_flag.targets] == ["http://a:1", "http://b:2"]
    assert by_variable.targets == by_flag.targets


def test_a_target_flag_takes_the_place_of_the_files_targets_and_has_its_defaults(tmp_path: Path) -> None:
    text = "targets: ['http://a:1']\ntarget_defaults: {role: decode}\n"
    config = load_text(tmp_path, text, "--target", "http://b:2")
    assert [(target.url, target.role) for target in config.targets] == [("http://b:2", "decode")]
    expected = f"{tmp_path}/config.yml: targets: not used, because flag --target takes its place"
    assert config.warnings == (expected,)


def test_an_empty_variable_sets_nothing() -> None:
    assert load_flags(*TARGET, environ={PREFIX + "WINDOW": "", PREFIX + "TARGET": ""}).window_seconds == 60


def test_the_file_may_come_from_the_environment(tmp_path: Path) -> None:
    path = tmp_path / "c.yml"
    path.write_text("targets: ['http://a:1']\n")
    config = load_flags(environ={PREFIX + "CONFIG_FILE": str(path)})
    assert config.file == str(path)
    assert config.targets[0].name == "a:1"


def test_problems_of_flags_variables_and_file_come_together(tmp_path: Path) -> None:
    environ = {PREFIX + "LOG_LEVEL": "loud", PREFIX + "WINDO": "30s"}
    messages = problems_of(tmp_path, "targets: ['http://a:1']\nscrap: 1\n", "--window", "30", environ=environ)
    assert messages == [
        f'environment variable {PREFIX}LOG_LEVEL: "loud" is not a log level. Write debug, info, warn or error.',
        'flag --window: the duration "30" has no unit. Write 30s for seconds, 30ms for milliseconds.',
        "scrap: this key is not known. Did you mean scrape?",
        f"environment variable {PREFIX}WINDO: no option has this name. Did you mean {PREFIX}WINDOW?",
    ]


def test_a_variable_unlike_any_option_is_refused_without_a_guess() -> None:
    (message,) = problems_of_flags(*TARGET, environ={PREFIX + "ZZZZZZZZZZZZZZZZZZZZZZZZZZZZ": "1"})
    assert message.endswith("no option has this name. Unset it, or see --help for the variables there are.")


def test_variables_that_kubernetes_makes_for_a_service_of_our_name_are_no_typos() -> None:
    names = [
        "SERVICE_HOST",
        "SERVICE_PORT",
        "SERVICE_PORT_METRICS",
        "PORT",
        "PORT_10077_TCP",
        "PORT_10077_TCP_PROTO",
        "PORT_10077_TCP_PORT",
        "PORT_10077_TCP_ADDR",
        "METRICS_SERVICE_HOST",
        "METRICS_PORT_10077_TCP_ADDR",
    ]
    assert load_flags(*TARGET, environ=dict.fromkeys((PREFIX + name for name in names), "tcp://10.0.0.1:1")).targets


def test_a_variable_named_for_a_secret_is_no_typo(tmp_path: Path) -> None:
    name = PREFIX + "VLLM_TOKEN"
    text = f"targets: [{{url: 'http://a:1', auth: {{bearer_token_env: {name}}}}}]\n"
    assert load_text(tmp_path, text, environ={name: "s"}).targets[0].http.bearer_token.env == name


def test_nothing_at_all_says_what_to_give() -> None:
    expected = (
        "there is no server to read. Give --target http://localhost:8000, or targets: in a file named by --config.file."
    )
    assert problems_of_flags() == [f"configuration: {expected}"]


def test_a_bad_target_is_not_also_a_missing_one() -> None:
    (message,) = problems_of_flags("--target", "ftp://a")
    assert message == 'flag --target: "ftp://a" has the scheme "ftp". Only http and https can be read.'


def test_a_missing_file_is_one_problem() -> None:
    assert problems_of_flags("--config.file", "/no/such.yml") == [
        "/no/such.yml: the file does not exist. Check the path."
    ]


def test_a_time_that_cannot_be_read_is_not_compared_with_others(tmp_path: Path) -> None:
    text = "targets: ['http://a:1']\nscrape: {interval: 10, timeout: 8s}\n"
    assert len(problems_of(tmp_path, text)) == 1


def test_defaults_may_be_shown_in_help(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser(prog="x", allow_abbrev=False)
    add_flags(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["--help"])
    shown = capsys.readouterr().out
    for option in OPTIONS:
        assert option.flag in shown
        assert option.variable in shown.replace("\n", "").replace(" ", "")


def test_without_arguments_the_environment_is_enough() -> None:
    from llm_serving_exporter.settings.load import load

    config = load(None, {PREFIX + "TARGET": "http://a:1"})
    assert config.targets[0].url == "http://a:1"


def test_what_cannot_have_an_effect_is_warned_of(tmp_path: Path) -> None:
    config = load_flags("--target", "http://a:1", "--report.run", "true", "--hf-cache", str(tmp_path / "hub"))
    assert config.warnings == (
        "flag --report.run: has no effect without report.settings-file",
        f"flag --hf-cache: {tmp_path}/hub is not a folder, so that no model is found in it",
    )
    (tmp_path / "hub").mkdir()
    assert load_flags("--target", "http://a:1", "--hf-cache", str(tmp_path / "hub")).warnings == ()
