"""Flags, environment variables and YAML keys: one table, one order of precedence; how each is written, and what argparse says."""

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_alerts.command import _arguments as rules_arguments
from llm_serving_dashboards.command import _parse_arguments as dashboards_arguments
from llm_serving_drill.command import parser as drill_parser
from llm_serving_exporter.cli import main
from llm_serving_exporter.commands.page_test import _parser as page_test_parser
from llm_serving_exporter.model.cost import Method
from llm_serving_exporter.model.target import Shard
from llm_serving_exporter.model.tenants import TenantKind
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.config import Config, GpuConfig, LogConfig, SloConfig, WebConfig
from llm_serving_exporter.settings.flags import (
    RENAMED,
    CommandParser,
    FlagReader,
    attribute,
    duration,
    duration_once_bare,
    explain_usage_error,
)
from llm_serving_exporter.settings.kinds import format_duration, parse_duration, parse_url
from llm_serving_exporter.settings.problems import InvalidValueError
from llm_serving_exporter.settings.sources import OPTIONS, add_flags
from llm_serving_review.settings.arguments import parser as report_parser
from llm_serving_simulator.demo import _arguments as demo_arguments
from llm_serving_simulator.drill_demo import _arguments as drill_demo_arguments
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
    # true wants a section of kubernetes: test_sections.py
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
        ((), True), (("--gpu.gpm",), True), (("--no-gpu.gpm",), False), (("--gpu.gpm=false",), False),
        (("--gpu.gpm=TRUE",), True), (("--no-gpu.gpm", "--gpu.gpm"), True), (("--gpu.gpm=1",), True),
    ],
)  # fmt: skip
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
        "SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_METRICS", "PORT", "PORT_10077_TCP", "PORT_10077_TCP_PROTO",
        "PORT_10077_TCP_PORT", "PORT_10077_TCP_ADDR", "METRICS_SERVICE_HOST", "METRICS_PORT_10077_TCP_ADDR",
    ]  # fmt: skip
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


# --- the flags of every command: old names, durations, and texts read to values ---


Said = pytest.CaptureFixture[str]

# each command's own way from words to a namespace, and what it cannot do without
READ = {
    "rules": (rules_arguments, []),
    "dashboards": (dashboards_arguments, ["--output-dir", "d"]),
    "drill": (lambda words: drill_parser().parse_args(words), ["--model", "m", "--prometheus.url", "http://p:9090"]),
    "report": (lambda words: report_parser().parse_args(words), []),
    "demo": (demo_arguments, []),
    "drill_demo": (drill_demo_arguments, []),
    "page-test": (lambda words: page_test_parser().parse_args(words), []),
}
OLD = [(command, old, new) for command, names in RENAMED.items() for old, new in names.items()]


@check_rows(("command", "old", "new"), OLD, ids=lambda one: str(one))
@check_rows("form", ["two words", "one word"])
def test_an_old_name_still_works_with_a_warning(command: str, old: str, new: str, form: str, capsys: Said) -> None:
    read, needed = READ[command]
    text = ":1234" if "listen" in new else "value"
    words = [old, text] if form == "two words" else [f"{old}={text}"]
    by_old = vars(read([*needed, *words]))
    assert capsys.readouterr().err == f"warning: flag {old} is now {new}; the next version knows the new name only\n"
    by_new = vars(read([*needed, new, text]))
    assert by_old == by_new
    assert text.removeprefix(":") in str(list(by_new.values()))
    assert capsys.readouterr().err == ""


def test_the_table_is_about_commands_that_are_tried_here() -> None:
    assert set(RENAMED) == set(READ)


@check_rows("command", [name for name in READ if name != "drill_demo"])
def test_help_shows_no_old_name(command: str, capsys: Said) -> None:
    with pytest.raises(SystemExit):
        main([command, "--help"])
    shown = set(capsys.readouterr().out.replace("[", " ").replace("]", " ").replace("=", " ").split())
    assert shown.isdisjoint(RENAMED[command])
    assert shown.issuperset(RENAMED[command].values())


def test_a_value_that_looks_like_an_old_flag_is_left_alone(capsys: Said) -> None:
    parser = CommandParser("report", description="")
    parser.add_argument("--by-label")
    parser.add_argument("rest", nargs="*")
    assert parser.parse_args(["--by-label=--out"]).by_label == "--out"
    assert parser.parse_args(["--", "--out"]).rest == ["--out"]
    assert capsys.readouterr().err == ""


@check_rows("word", ["-5", "-.5", "-", "--no such flag"])
def test_words_that_are_no_flags_are_not_taken_for_ones(word: str) -> None:
    parser = CommandParser("report", description="")
    parser.add_argument("rest")
    assert parser.parse_args([word]).rest == word


def test_durations_need_a_unit() -> None:
    assert duration("1m30s") == 90.0
    with pytest.raises(argparse.ArgumentTypeError, match="Write 5s for seconds"):
        duration("5")


@check_rows(
    ("text", "seconds", "written"),
    [("5", 5.0, "5s"), ("0.2", 0.2, "200ms"), ("90", 90.0, "1m30s"), ("0.5m", 30.0, "30s"), ("1.5h", 5400.0, "1h30m")],
)
def test_what_a_flag_once_took_still_works_with_a_warning(
    text: str, seconds: float, written: str, capsys: Said
) -> None:
    assert duration_once_bare("--wait")(text) == seconds
    said = f'warning: flag --wait: write {written} instead of "{text}", which the next version refuses\n'
    assert capsys.readouterr().err == said


@check_rows("text", ["", "-5", "5x", "5 s", "1e3", "nan"])
def test_what_it_never_took_is_refused(text: str, capsys: Said) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration_once_bare("--wait")(text)
    assert capsys.readouterr().err == ""


def test_values_are_read_by_flag_and_every_fault_is_kept() -> None:
    namespace = argparse.Namespace(query_timeout="5", config_file="a.yml", by_label=["a", "b", "a"], ca_file=None)
    flags = FlagReader(namespace)
    assert flags.value("--config.file", kinds.PATH) == "a.yml"
    assert flags.value("--ca-file", kinds.PATH) is None
    assert flags.values("--by-label", kinds.text("label")) == ("a", "b")
    assert not flags.problems
    assert flags.value("--query-timeout", kinds.DURATION) is None
    flags.refuse("--ca-file", "it is wrong")
    assert [str(problem) for problem in flags.problems] == [
        'flag --query-timeout: the duration "5" has no unit. Write 5s for seconds, 5ms for milliseconds.',
        "flag --ca-file: it is wrong.",
    ]
    assert attribute("--web.listen-address") == "web_listen_address"


def test_no_document_shows_an_old_name() -> None:
    """Old names stand in the CHANGELOG alone."""
    root = Path(__file__).parents[3]
    documents = [
        *root.glob("*.md"),
        *root.glob("docs/*.md"),
        *root.glob("deploy/**/*.yml"),
        *root.glob("alerts/**/*.md"),
    ]
    assert len(documents) > 40
    for path in documents:
        if path.name == "CHANGELOG.md":
            continue
        for line in path.read_text().splitlines():
            for command, names in RENAMED.items():
                used = {word.strip("`(),;.[]") for word in line.replace("=", " ").split()}
                assert f" {command} " not in line or used.isdisjoint(names), (path.name, line)


@check_rows(("command", "old", "new"), OLD, ids=lambda one: str(one))
def test_the_changelog_says_what_each_old_name_is_now(command: str, old: str, new: str) -> None:
    shown = "python -m llm_serving_simulator.drill_demo" if command == "drill_demo" else command
    assert f"| `{shown}` | `{old}` | `{new}` |\n" in (Path(__file__).parents[3] / "CHANGELOG.md").read_text()


# --- what argparse says, in the words of each Python that we run on, and what becomes of it ---


@check_rows(
    ("said", "told"),
    [
        (
            "argument --wait: expected one argument",
            "flag --wait: its value is missing. Write --wait VALUE, or --wait=VALUE where it begins with a dash.",
        ),
        # up to 3.11, and from 3.12 on without quotes
        (
            "argument --role: invalid choice: 'dcode' (choose from 'decode', 'prefill')",
            'flag --role: "dcode" is none of its values. Did you mean decode?',
        ),
        (
            "argument --role: invalid choice: 'x, y (z)' (choose from decode, prefill)",
            'flag --role: "x, y (z)" is none of its values. Known here: decode, prefill.',
        ),
        ("argument --seed: invalid int value: 'x'", 'flag --seed: "x" is not a whole number. See PROGRAM --help.'),
        ("argument -f/--flag: invalid float value: 'x'", 'flag --flag: "x" is not a value of it. See PROGRAM --help.'),
        ("argument --json: ignored explicit argument 'yes'", "flag --json: it takes no value. Write --json alone."),
        (
            "argument --watch: not allowed with argument --plan",
            "flag --watch: it does not go with --plan. Leave one of them away.",
        ),
        ("the following arguments are required: --a", "flag --a: missing. See PROGRAM --help for an example."),
        (
            "the following arguments are required: --a, --b",
            "flags --a and --b: missing. See PROGRAM --help for an example.",
        ),
        (
            "unrecognized arguments: a b",
            '"a b" is no flag, and this command takes no more words. Leave it away, or see PROGRAM --help.',
        ),
        ("argument --port: 'x' is not a port", "flag --port: 'x' is not a port."),
        ("argument --port: too large. Write 8000.", "flag --port: too large. Write 8000."),
        ("something else", "something else"),
    ],
)
def test_a_fault_is_told_with_its_flag_and_what_to_write(said: str, told: str) -> None:
    assert explain_usage_error(said, "PROGRAM") == told


@check_rows(
    ("words", "told"),
    [
        (["--choice", "c"], "is none of its values"),
        (["--number", "c"], "is not a whole number"),
        (["--number"], "its value is missing"),
        (["--switch=1"], "it takes no value"),
        (["--one", "--other"], "it does not go with"),
        ([], "flag --needed: missing"),
        (["--needed", "x", "more"], "is no flag"),
    ],
)
def test_this_pythons_argparse_is_understood(words: list[str], told: str) -> None:
    class Parser(argparse.ArgumentParser):
        def error(self, message: str) -> None:
            raise ValueError(explain_usage_error(message, "PROGRAM"))

    parser = Parser()
    parser.add_argument("--choice", choices=("a", "b"))
    parser.add_argument("--number", type=int)
    parser.add_argument("--switch", action="store_true")
    parser.add_argument("--needed", required=True)
    either = parser.add_mutually_exclusive_group()
    either.add_argument("--one", action="store_true")
    either.add_argument("--other", action="store_true")
    with pytest.raises(ValueError, match=told):
        parser.parse_args(words)


# ---  ---


@check_rows(
    ("text", "seconds"),
    [
        ("0", 0.0),
        ("0s", 0.0),
        ("500ms", 0.5),
        ("1ms", 0.001),
        ("5s", 5.0),
        ("2.5s", 2.5),
        ("0.1s", 0.1),
        ("1m30s", 90.0),
        ("1m0.5s", 60.5),
        ("1h", 3600.0),
        ("1d", 86_400.0),
        ("1w", 604_800.0),
        ("1y", 31_536_000.0),
        ("1y2w3d4h5m6s7ms", 31_536_000 + 2 * 604_800 + 3 * 86_400 + 4 * 3600 + 5 * 60 + 6 + 0.007),
    ],
)
def test_reads_what_prometheus_reads(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@check_rows(
    "text",
    [
        "", " ", "5", "1.5", "-5s", "+5s", "5 s", "5S", "5sec", "s", "1s1m", "1m1m", "1.5h", ".5s", "5.s", "1e3s",
        "٥s", "5µs", "5s ", "\n", "5s\n", "off", "300y", "9" * 400 + "s", "1" * 400, "nan", "inf",
    ],
)  # fmt: skip
def test_refuses_anything_else_with_what_to_write(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_duration(text)
    assert caught.value.fix.endswith(".")


@given(st.text(alphabet="0123456789.ymwdhs- e\n", max_size=20))
def test_any_text_is_a_number_of_seconds_or_refused(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except InvalidValueError:
        return
    assert 0 <= seconds < 1e10


@given(st.integers(min_value=0, max_value=10**12))
def test_what_is_shown_reads_back_to_the_same(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds / 1000)) == milliseconds / 1000


@check_rows(("seconds", "text"), [(0.2, "200ms"), (2.5, "2.5s"), (4.0, "4s"), (90.0, "1m30s"), (0.0, "0")])
def test_shows_the_usual_form(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


# ---  ---


@check_rows(
    ("text", "url", "path"),
    [
        ("http://h:8000", "http://h:8000", None),
        ("http://h:8000/", "http://h:8000", None),
        ("http://h:8000/metrics", "http://h:8000", "/metrics"),
        ("HTTP://Host:8000", "http://host:8000", None),
        ("http://h", "http://h:80", None),
        ("https://h", "https://h:443", None),
        ("h:8000", "http://h:8000", None),
        ("localhost:8000/m", "http://localhost:8000", "/m"),
        ("http://10.0.0.1:1", "http://10.0.0.1:1", None),
        ("http://[::1]:8000", "http://[::1]:8000", None),
        ("http://[2001:DB8:0:0::1]", "http://[2001:db8::1]:80", None),
        (
            "http://vllm_server.default.svc.cluster.local.:8000",
            "http://vllm_server.default.svc.cluster.local.:8000",
            None,
        ),
        (" http://h:1 ", "http://h:1", None),
    ],
)
def test_normal_form(text: str, url: str, path: str | None) -> None:
    address = parse_url(text)
    assert (address.url, address.path) == (url, path)


@check_rows(
    "text",
    [
        "", "h", "http://", "http://:1", "ftp://h:1", "unix:///s", "http://h:0", "http://h:65536", "http://h:x",
        "http://h:", "http://[::1", "http://[h]:1", "http://[v1.a]:1", "http://h:1?a=b", "http://h:1#f",
        "http://u@h:1", "http://a b:1", "http://h\n:1", "http://h:1//m", "http://-h:1", "http://bücher:1",
        "http://h:1/a b", "�:1", "http://" + "h" * 300 + ":1",
    ],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(InvalidValueError) as caught:
        parse_url(text)
    assert caught.value.fix.endswith(".")
    str(caught.value).encode()


@given(st.text(max_size=40) | st.from_regex(r"https?://[\[\]a-z0-9:.@/?#%]{0,20}", fullmatch=True))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        address = parse_url(text)
    except InvalidValueError:
        return
    assert parse_url(address.url).url == address.url
    assert 1 <= address.port <= 65535


def test_a_password_is_never_shown() -> None:
    for text in ("http://user:hunter2@h:1", "ftp://user:hunter2@h", "http://h:1/?token=hunter2", "u:hunter2@h"):
        with pytest.raises(InvalidValueError) as caught:
            parse_url(text)
        assert "hunter2" not in str(caught.value)


@check_rows(
    ("text", "local"),
    [
        ("localhost:1", True), ("127.0.0.1:1", True), ("127.9.9.9:1", True), ("[::1]:1", True), ("0.0.0.0:1", True),
        ("[::]:1", True), ("Pod-7:1", True), ("api.localhost:1", True), ("[::ffff:127.0.0.1]:1", True),
        ("10.0.0.1:1", False), ("pod-8:1", False), ("localhost.example.com:1", False),
    ],
)  # fmt: skip
def test_local_servers_have_the_own_host_name(text: str, local: bool) -> None:
    address = parse_url(text)
    assert address.is_local("pod-7") is local
    assert (address.name("pod-7") == "pod-7:1") is local


def test_a_remote_ipv6_name_keeps_its_brackets() -> None:
    assert parse_url("http://[2001:db8::1]:8000").name("pod-7") == "[2001:db8::1]:8000"
