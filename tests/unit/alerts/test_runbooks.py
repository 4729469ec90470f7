"""Every alert has its runbook; what it says of series, settings, commands and links is so, its queries open, its example comes out."""

import io
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, quote_plus, urlsplit

import pytest
import yaml

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.alerting.rules_of import alert_rules
from llm_serving_alerts.declare import Alert
from llm_serving_alerts.external import EXTERNALS
from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.render import every_rule, rule_files, rule_groups
from llm_serving_alerts.rules import ALERT_PREFIX, Record
from llm_serving_alerts.runbook_texts import EXPRESSION_HEADING, link_queries, read_queries
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_exporter import cli
from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.catalogue.spec import Kind
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.settings.sources import OPTIONS
from tests.pack.judging import ask, expect
from tests.pack.rulesets import PRESENCE, as_yaml, belongs
from tests.support.paths import ROOT
from tests.support.rows import check_rows
from tests.support.servers.server_process import program
from tests.support.yaml_text import load_yaml

FOLDER = ROOT / "alerts/llm_serving_alerts/runbooks"
INDEX = FOLDER / "README.md"
RUNBOOKS = sorted(set(FOLDER.glob("*.md")) - {INDEX})
SETTINGS = load_yaml((FOLDER.parent / "settings.yml").read_text())
HEADINGS = ["Meaning", "Impact", "See it", "Do first", "Do not", "Escalate", "False alarms", "Expression"]

# flags of the engines that the runbooks may name. vLLM: docs.vllm.ai, engine arguments, optimisation; SGLang: docs.sglang.io, server
# arguments, hyperparameter tuning
VLLM = {
    "--api-server-count", "--custom-histogram-buckets", "--disable-log-stats", "--enforce-eager", "--gpu-memory-utilization",
    "--kv-cache-dtype", "--max-loras", "--max-model-len", "--max-num-batched-tokens", "--max-num-queued-reqs",
    "--max-num-queued-tokens", "--max-num-seqs", "--no-enable-prefix-caching", "--scheduling-policy", "--served-model-name",
    "--tensor-parallel-size",
}  # fmt: skip
SGLANG = {
    "--chunked-prefill-size", "--context-length", "--disable-cuda-graph", "--disable-radix-cache", "--enable-metrics",
    "--enable-priority-scheduling", "--kv-cache-dtype", "--log-requests", "--max-loras-per-batch", "--max-queued-requests",
    "--max-running-requests", "--mem-fraction-static", "--prompt-tokens-buckets", "--schedule-conservativeness",
    "--soft-watchdog-timeout", "--watchdog-timeout",
}  # fmt: skip
TOOLS = ("kubectl ", "nvidia-smi ", "amtool ", "journalctl ", "py-spy ")


def runbook(alert: Alert) -> Path:
    return FOLDER / f"{ALERT_PREFIX}{alert.name}.md"


def queries(path: Path) -> list[str]:
    by_hand = path.read_text().split(EXPRESSION_HEADING)[0]
    return re.findall(r"^```promql\n(.*?)^```$", by_hand, re.DOTALL | re.MULTILINE)


def everything() -> Settings:
    """Defaults with what is off by default and has an alert switched on."""
    return replace(default_settings(), drill_max_age_seconds=30 * 86_400.0, identity_labels=("namespace",))


@cache
def known_series() -> frozenset[str]:
    names = {rule.record for rule in every_rule(rule_groups(everything())) if isinstance(rule, Record)}
    names |= EXTERNALS | {"ALERTS"}  # ALERTS is Prometheus' own
    for metric in BY_NAME.values():
        endings = ("_bucket", "_count", "_sum") if metric.kind is Kind.HISTOGRAM else ("",)
        names |= {metric.full_name + ending for ending in endings}
    return frozenset(names)


def selectors(query: str) -> Iterator[tuple[str, str]]:
    """Each series that a query names, with its matchers; `{__name__=~"a|b"}` names two."""
    rest = re.sub(r"\[[^\]]*\]", " ", query)  # ranges
    with_matchers = r"([a-zA-Z_:][\w:]*)?\{([^}]*)\}"
    for name, matchers in re.findall(with_matchers, rest):
        found = re.search(r'__name__=~"([^"]*)"', matchers)
        for one in found[1].split("|") if found else [name]:
            yield one, re.sub(r'__name__=~"[^"]*",?\s*', "", matchers)
    rest = re.sub(with_matchers, " ", rest)
    rest = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", rest)
    for word in re.findall(r"(?<![\w:.])[a-zA-Z_:][\w:]*+(?!\s*\()", rest):
        if word not in {"and", "unless", "offset", "bool"}:
            yield word, ""


def test_every_alert_has_one_runbook_and_every_runbook_an_alert() -> None:
    assert [path.name for path in RUNBOOKS] == sorted(runbook(alert).name for alert in ALERTS)


@check_rows("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_has_its_headings_in_order(path: Path) -> None:
    text = path.read_text()
    assert text.startswith(f"# {path.stem}\n")
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == HEADINGS
    bodies = re.split(r"^## .*$", text, flags=re.MULTILINE)[1:]
    assert all(body.strip() for body in bodies)


@pytest.mark.process
def test_promtool_takes_every_query(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing; `make test` installs it"
    rules = [
        {"record": f"runbook:{path.stem}:query{number}", "expr": query}
        for path in RUNBOOKS
        for number, query in enumerate(queries(path))
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "runbooks", "rules": rules}]}))
    checked = subprocess.run([promtool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(rules)} rules found" in checked.stdout


@check_rows("path", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_queries_series_that_exist_by_labels_that_they_have(path: Path) -> None:
    found = queries(path)
    assert 1 <= len(found) <= 6
    for query in found:
        named = list(selectors(query))
        assert named, query
        for name, matchers in named:
            assert name in known_series(), (name, query)
            metric = BY_NAME.get(re.sub(r"_(bucket|count|sum)\Z", "", name.removeprefix("llm_serving_")))
            if metric is not None and metric.labels:
                labels = set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', matchers))
                assert labels <= {*metric.labels, "le"}, (labels, query)


# what is asked of everything on purpose: whether it is this model, driver or target alone
OF_EVERYTHING = (
    "floor(changes(target:llm_serving_down:min[1h]) / 2) > 0",
    "model:llm_serving_tokens:rate5m / model:llm_serving_tokens:same_hour_median7d",
    "rate(llm_serving_nvml_failures_total[5m]) > 0",
    "changes(llm_serving_target_start_time_seconds[1h]) > 0",
    "changes(process_start_time_seconds[1h]) and on (instance, job) llm_serving_exporter_build_info",
)


@check_rows("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_query_asks_for_what_the_alert_is_about_and_not_for_the_whole_fleet(alert: Alert) -> None:
    if {"model_name", "target", "gpu"} & set(alert.identity):
        fleet = [
            query.strip() for query in queries(runbook(alert)) if not re.search(r"MODEL|TARGET|NODE|GPU-UUID", query)
        ]
        assert [query for query in fleet if query not in OF_EVERYTHING] == []


@check_rows("path", RUNBOOKS, ids=lambda path: path.stem)
def test_no_query_joins_two_series_by_or(path: Path) -> None:
    """Of two series with the same labels `or` shows the first alone, whatever their names."""
    assert not [query for query in queries(path) if re.search(r"\bor\b", query)]


def test_the_reader_of_queries_finds_names_wherever_they_stand() -> None:
    query = 'sum by (le) (rate(a:b_c{x="y"}[5m])) / on (d) group_left (e) f offset 1h > 0 and {__name__=~"g|h:i",j!="k"} unless max(l)'
    expected = [("a:b_c", 'x="y"'), ("g", 'j!="k"'), ("h:i", 'j!="k"'), ("f", ""), ("l", "")]
    assert list(selectors(query)) == expected


@check_rows("path", [*RUNBOOKS, INDEX], ids=lambda path: path.stem)
def test_settings_that_are_named_exist(path: Path) -> None:
    for key in re.findall(r"`((?:alerts|slo|burn|baseline|node_loss|drill)\.[\w.]+)`", path.read_text()):
        node: Any = SETTINGS
        for part in key.split("."):
            assert isinstance(node, dict), key
            assert part in node, key
            node = node[part]


@check_rows("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_runbook_names_each_setting_of_its_alert(alert: Alert) -> None:
    text = runbook(alert).read_text()
    assert [name for name in alert.values if f"`alerts.{alert.name}.{name}`" not in text] == []


@check_rows("path", [*RUNBOOKS, INDEX], ids=lambda path: path.stem)
def test_relative_links_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)[^)]*\)", path.read_text())
    assert [link for link in links if "://" not in link and not (path.parent / link).is_file()] == []


def test_each_alert_links_to_its_runbook() -> None:
    settings = everything()
    for alert in ALERTS:
        rules = alert_rules(alert, Dialect(own=settings.own_labels), settings)
        assert rules, alert.name
        for rule in rules:
            assert rule.annotations["runbook"] == f"llm-serving-exporter runbook {runbook(alert).stem}"
            assert "runbook_url" not in rule.annotations


def test_the_index_has_every_alert_with_its_check_and_severities() -> None:
    rows = re.findall(r"^\| (\w+) \| \[(\w+)\]\((\w+\.md)\) \| ([\w, ]+) \| [^|]+ \|$", INDEX.read_text(), re.MULTILINE)
    expected = [
        (alert.check.value, alert.name, runbook(alert).name, ", ".join(severity.value for severity in alert.tiers))
        for alert in ALERTS
    ]
    assert sorted(rows) == sorted(expected)


@cache
def flags(command: str) -> frozenset[str]:
    """What a command says of itself."""
    said = io.StringIO()
    with redirect_stdout(said), pytest.raises(SystemExit):
        cli.main([command, "--help"])
    return frozenset(re.findall(r"--[a-z.-]+", said.getvalue()))


@check_rows("path", RUNBOOKS, ids=lambda path: path.stem)
def test_flags_and_commands_that_are_named_exist(path: Path) -> None:
    ours = {option.flag for option in OPTIONS}
    for span in re.findall(r"`([^`\n]+)`", path.read_text()):
        if span.startswith("llm-serving-exporter "):
            assert span.split()[1] in cli._COMMANDS, span
            assert set(re.findall(r"--[a-z.-]+", span)) <= ours | flags(span.split()[1]), span
        elif not span.startswith(TOOLS):
            assert (
                set(re.findall(r"(?<!\S)--[a-z.-]*[a-z](?![\w.])", span))
                <= ours | flags("drill") | flags("rules") | VLLM | SGLANG
            ), span


def test_the_engines_flags_are_each_named_somewhere() -> None:
    text = "".join(path.read_text() for path in RUNBOOKS)
    assert [flag for flag in sorted(VLLM | SGLANG) if f"{flag}`" not in text and f"{flag} " not in text] == []


def test_runbooks_and_settings_are_found_where_the_package_is_installed() -> None:
    package = resources.files("llm_serving_alerts")
    assert package.joinpath("settings.yml").is_file()
    names = {entry.name for entry in package.joinpath("runbooks").iterdir()}
    assert names == {INDEX.name, *(path.name for path in RUNBOOKS)}


# --- the link to a runbook's queries ---


BASE = "https://prometheus.example.com/graph?{queries}"
# what a model may be called so that a link written without care breaks
MODEL, TARGET = 'Qwen/Qwen3 "32B" & más\\x', "llm/chat-0:8000"


@pytest.mark.process
def test_every_query_of_the_runbook_is_in_the_link_with_the_alerts_labels(tmp_path: Path) -> None:
    (alert,) = (one for one in ALERTS if one.name == "KVSaturated")
    (rule,) = alert_rules(alert, Dialect(), replace(default_settings(), queries_url=BASE))
    template = rule.annotations["queries_url"]
    kept = {"alert": rule.alert, "expr": "x > 0", "annotations": {"queries_url": template}}
    (tmp_path / "rules.yml").write_text(as_yaml({"groups": [{"name": "g", "rules": [kept]}]}))
    labels = {"model_name": MODEL, "target": TARGET}
    written = {name: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"' for name, text in labels.items()}
    expected = template
    for name, text in written.items():
        expected = expected.replace(f'{{{{ printf "%q" $labels.{name} | urlquery }}}}', quote_plus(text))
    matchers = ",".join(f"{name}={text}" for name, text in written.items())
    test = {
        "input_series": [{"series": f"x{{{matchers}}}", "values": "1x5"}],
        "alert_rule_test": [
            {
                "eval_time": "3m",
                "alertname": rule.alert,
                "exp_alerts": [{"exp_labels": labels, "exp_annotations": {"queries_url": expected}}],
            }
        ],
    }
    (tmp_path / "test.yml").write_text(as_yaml({"rule_files": ["rules.yml"], "tests": [test]}))
    judged = subprocess.run(
        [program("promtool"), "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr
    opened = parse_qs(urlsplit(expected).query)
    queries = [opened[f"g{number}.expr"][0] for number in range(len(opened) // 2)]
    asked = [
        query.replace('"MODEL"', written["model_name"]).replace('"TARGET"', written["target"])
        for query in read_queries("LLMServingKVSaturated")
    ]
    assert len(asked) > 3
    assert queries == asked


@check_rows("alert", ALERTS, ids=lambda alert: alert.name)
def test_each_runbook_has_queries_that_its_alert_can_fill_in(alert: object) -> None:
    name, identity = alert.name, alert.identity
    queries = read_queries(f"LLMServing{name}")
    link = link_queries(BASE, queries, identity)
    assert link.startswith("https://prometheus.example.com/graph?g0.expr=")
    assert len(link) < 8000


def test_a_query_about_what_the_alert_does_not_know_is_left_out() -> None:
    known = link_queries(
        "{queries}", ['a{model_name="MODEL"}', 'b{node="NODE"}', 'c{resource="RESOURCE"}', "d"], ("model_name",)
    )
    assert "b%7B" not in known
    assert "c%7B" not in known
    assert known.endswith("&g1.expr=d&g1.tab=0")
    assert known.startswith(f"g0.expr={quote('a{model_name=', safe='')}{{{{ printf")
    assert link_queries("{queries}", ['b{node="NODE"}'], ()) == ""


def test_without_the_setting_there_is_no_link() -> None:
    (rule,) = alert_rules(ALERTS[-1], Dialect(), default_settings())
    assert "queries_url" not in rule.annotations


def test_a_url_without_a_place_for_queries_is_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.yml").write_text("queries_url: https://prometheus.example.com/graph\n")
    with pytest.raises(Exception, match="has no place for queries"):
        read_settings(str(tmp_path / "settings.yml"))


# --- the worked example of LLMServingN1Insufficient.md, put to the real rules by promtool ---


RUNBOOK = (ROOT / "alerts/llm_serving_alerts/runbooks/LLMServingN1Insufficient.md").read_text()
GROUPS = {
    f"llm-serving.{name}"
    for name in ("identity", "targets", *PRESENCE, "traffic", "kv", "work", "rates", "capacity", "node-loss")
}
BUSY, AFTER = 15, 80  # minutes: the best rate is seen under a queue, then falls out of the last hour
EXAMPLE_MODEL = {"model_name": "m", "role": "unified"}


def selector(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={value!r}' for label, value in labels.items())}}}".replace("'", '"')


def series(name: str, labels: dict[str, str], values: str) -> dict[str, str]:
    return {"series": selector(f"llm_serving_{name}", labels), "values": values}


def fleet() -> list[dict[str, str]]:
    """Four replicas, two of them on node a; the first once did 0.9 reference seconds per second under a queue, then each does 0.4."""
    found = []
    for target, node in {"t1": "a", "t2": "a", "t3": "b", "t4": "c"}.items():
        engine = {"target": target, **EXAMPLE_MODEL, "engine": "0"}
        steady = {
            "kv_cache_used_tokens": "107500",  # 430,000 / 4
            "kv_cache_capacity_tokens": "200000",
            "batch_limit_requests": "64",
            "requests_running": "24",  # 96 / 4
        }
        found += [series(name, engine, f"{value}x{BUSY + AFTER}") for name, value in steady.items()]
        found += [
            series("target_start_time_seconds", {"target": target}, f"-7200x{BUSY + AFTER}"),
            series("target_info", {"target": target, **EXAMPLE_MODEL}, f"1x{BUSY + AFTER}"),
            series("target_state", {"target": target, "state": "ready"}, f"1x{BUSY + AFTER}"),
            series("target_node_info", {"target": target, **EXAMPLE_MODEL, "node": node}, f"1x{BUSY + AFTER}"),
            series("target_gpus", {"target": target, "gpu_name": "g"}, f"4x{BUSY + AFTER}"),
            series("phase_reference_seconds_per_token", {**engine, "phase": "prefill"}, f"0.0001x{BUSY + AFTER}"),
            series("phase_reference_seconds_per_token", {**engine, "phase": "decode"}, f"0.001x{BUSY + AFTER}"),
        ]
        # a minute of 1,000 prefill and 300 decode tokens/s: 1000 x 0.0001 + 300 x 0.001 = 0.4; of 3,000 and 600: 0.9
        prefill, decode, waiting = (180_000, 36_000, 5) if target == "t1" else (60_000, 18_000, 0)
        found += [
            series("prefill_tokens_total", engine, f"0+{prefill}x{BUSY} {prefill * BUSY + 60_000}+60000x{AFTER - 1}"),
            series("decode_tokens_total", engine, f"0+{decode}x{BUSY} {decode * BUSY + 18_000}+18000x{AFTER - 1}"),
            series("requests_waiting", engine, f"{waiting}x{BUSY} 0x{AFTER - 1}"),
        ]
    return found


def expected(expr: str, value: float, **labels: str) -> dict[str, object]:
    """Rounded to three digits, so that rates need not be exact to the last bit."""
    sample = {selector("", {**EXAMPLE_MODEL, **labels}): value}
    return expect(f"round({expr}, 0.001)", f"{BUSY + AFTER - 2}m", sample)


def table() -> dict[str, tuple[float, float]]:
    """Resource -> (now, N-1) as the runbook has them."""
    row = r"^\| (KV tokens|concurrency|phases) \|.*\| ([\d.]+) \| \**([\d.]+)\** \|$"
    return {name: (float(now), float(without)) for name, now, without in re.findall(row, RUNBOOK, re.MULTILINE)}


@pytest.mark.process
def test_the_rules_say_what_the_worked_example_of_n1_says(tmp_path: Path) -> None:
    records = load_yaml(rule_files(default_settings())["records.yml"])["groups"]
    rules = [group for group in records if belongs(group["name"], GROUPS)]
    assert len(rules) >= len(GROUPS)
    # by hand: 430,000 / 800,000 and / 400,000; 96 / 256 and / 128; 4 x 0.4 / (4 x 0.9) and / (2 x 0.9)
    ratios = {"kv": (0.538, 1.075), "concurrency": (0.375, 0.75), "phases": (0.444, 0.889)}
    tests = []
    for resource, values in ratios.items():
        for name, value in zip(("load", "n1_load"), values, strict=True):
            query = f'model:llm_serving_{name}:ratio{{resource="{resource}"}}'
            tests.append(expected(query, value, resource=resource))
    tests.append(expected("model:llm_serving_n1_load:max", 1.075))
    required = 'model:llm_serving_required_replicas:ceil{{reserve="{}"}}'
    tests += [
        expected(required.format(reserve), count, reserve=reserve) for reserve, count in (("none", 3), ("nodes", 5))
    ]
    history = {one["series"]: one["values"] for one in fleet()}
    assert not ask(tmp_path, history, tests, {"records.yml": rules}, every="2m")
    for (now, without), shown in zip(ratios.values(), table().values(), strict=True):
        assert shown == (pytest.approx(now, abs=0.006), pytest.approx(without, abs=0.006))
