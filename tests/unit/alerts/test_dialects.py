"""What is rendered for one ruler or another is accepted there, means the same over several lines, sums whole hours, outlasts an outage."""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from llm_serving_alerts.promql import DAY, HOUR, MINUTE, WEEK, Dialect, clauses
from llm_serving_alerts.promql_tree import lay_out, strip_comments
from llm_serving_alerts.records.cost import apply_over_hours
from llm_serving_alerts.render import (
    DUMPERS,
    delay_expression,
    dump,
    every_rule,
    rule_document,
    rule_files,
    rule_groups,
)
from llm_serving_alerts.rules import BY_NAME, PORTABLE, RULERS, AlertRule, Record
from llm_serving_alerts.runbook_texts import complete_runbook
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_exporter.model.record import replace
from tests.pack import cases_gpu
from tests.pack.builders import held, target
from tests.pack.judging import ask, expect, split_by_rules, write_narrowed
from tests.pack.promtool import attach_rules, document
from tests.pack.rulesets import PRESENCE, belongs, keep_groups
from tests.support.quick import keep_quick
from tests.support.rows import check_rows
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.server_process import find_program
from tests.support.servers.tsdb import make_blocks
from tests.support.servers.victoriametrics import VictoriaMetrics
from tests.support.yaml_text import load_yaml

DELAY = 30.0
NEWER = "no promtool3 on PATH; `make test-prometheus3` builds it where Go is installed"
CHECKERS = {
    "promtool": ("check", "rules", "records.yml", "alerts.yml"),
    "promtool3": ("check", "rules", "records.yml", "alerts.yml"),
    "vmalert": ("-dryRun", "-rule=records.yml", "-rule=alerts.yml"),
}
# who can be asked about whom here: Mimir and Thanos are no programs of this machine, and read rules by Prometheus' own packages
JUDGES = {
    "portable": ("promtool", "promtool3", "vmalert"),
    "prometheus-3": ("promtool3",),
    "mimir": ("promtool3",),
    "thanos": ("promtool", "promtool3"),
    "vmalert-1.79": ("vmalert",),
}


def found(program: str) -> str:
    path = find_program(program)
    if path is None and program == "promtool3":
        pytest.skip(NEWER)
    assert path, f"{program} is missing; `make test` installs it"
    return path


def rendered(folder: Path, name: str, delay: float = 0.0) -> None:
    settings = replace(default_settings(), evaluation_delay_seconds=delay)
    for file, text in rule_files(settings, ruler=BY_NAME[name]).items():
        (folder / file).write_text(text)


def test_every_ruler_is_judged() -> None:
    assert set(JUDGES) == {ruler.name for ruler in RULERS}


@pytest.mark.process
@pytest.mark.parametrize("delay", [0.0, DELAY], ids=["at once", "delayed"])
@pytest.mark.parametrize(("name", "judge"), [(name, judge) for name, judges in JUDGES.items() for judge in judges])
def test_rules_are_accepted(tmp_path: Path, name: str, judge: str, delay: float) -> None:
    rendered(tmp_path, name, delay)
    asked = subprocess.run([found(judge), *CHECKERS[judge]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert asked.returncode == 0, asked.stdout + asked.stderr


@pytest.mark.process
@pytest.mark.seam("promtool and vmalert")
@pytest.mark.parametrize("judge", ["promtool", "vmalert"])
def test_the_judges_refuse_what_came_later(tmp_path: Path, judge: str) -> None:
    """Why there are dialects at all: what Prometheus 3 takes, these do not."""
    rendered(tmp_path, "prometheus-3", DELAY)
    asked = subprocess.run([found(judge), *CHECKERS[judge]], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert asked.returncode != 0
    assert "query_offset" in asked.stdout + asked.stderr


# on scraped series and what is recorded of them; the rest of the pack takes minutes a judge
GROUPS = ("identity", "gpu", "gpu.alerts")


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("judge", "name"), [("promtool", "portable"), ("promtool3", "portable"), ("promtool3", "prometheus-3"), ("promtool3", "mimir")]
)  # fmt: skip
def test_rules_fire_alike(tmp_path: Path, judge: str, name: str) -> None:
    program = found(judge)
    files = {
        file: keep_groups(load_yaml(text)["groups"], GROUPS)
        for file, text in rule_files(default_settings(), ruler=BY_NAME[name]).items()
    }
    assert all(files.values())
    # what two exporters change is asked in tests/pack
    raw = [replace(case, doubled=False) for case in cases_gpu.CASES if not case.rules]
    assert sum(any(firing for _, firing in case.looks) for case in raw) > 3
    rules = [rule for groups in files.values() for group in groups for rule in group["rules"]]
    for number, part in enumerate(split_by_rules(attach_rules(document(raw), files), rules)):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_narrowed(folder, "test.yml", part, files)
        judged = subprocess.run(
            [program, "test", "rules", "test.yml"], cwd=folder, capture_output=True, text=True, check=False
        )
        assert judged.returncode == 0, judged.stdout[-4000:] + judged.stderr[-4000:]


@pytest.mark.process
def test_a_delayed_alert_comes_that_much_later_and_rests_on_the_same_samples(tmp_path: Path) -> None:
    """With offsets in selectors, on the oldest judge: a target that is down from minute 10 on, seen two minutes late."""
    rendered(tmp_path, "portable", 120.0)
    lines = {
        'llm_serving_target_info{target="t",model_name="m",role="unified"}': "1x60",
        'llm_serving_target_state{target="t",state="down"}': "0x9 1x50",
        'llm_serving_target_state{target="t",state="ready"}': "1x9 0x50",
    }
    down = 'target:llm_serving_down:min{model_name="m", role="unified", target="t"}'
    questions = [expect("target:llm_serving_down:min", at, {down: value}) for at, value in (("11m", 0), ("12m", 1))]
    rules = {"records.yml": load_yaml((tmp_path / "records.yml").read_text())["groups"]}
    assert not ask(tmp_path, lines, questions, rules)


@check_rows(
    ("expression", "delayed"),
    [
        ("rate(x[5m])", "rate(x[5m] offset 30s)"),
        ("last_over_time(x[10m] offset 1h)", "last_over_time(x[10m] offset 1h30s)"),
        ("max_over_time((max by (t) (x{a=\"b\"}))[1d:10m])", "max_over_time((max by (t) (x{a=\"b\"} offset 30s))[1d:10m])"),
        # what was recorded is late already
        ("target:llm_serving_down:min == 1", "target:llm_serving_down:min == 1"),
        ('{__name__=~"a|b"}', '{__name__=~"a|b"} offset 30s'),
        ("time() - x", "(time() - 30) - x offset 30s"),
        ("vector(1) and on () vector(time()) >= 5", "vector(1) and on () vector((time() - 30)) >= 5"),
        ("# why\nabsent(x)", "# why\nabsent(x offset 30s)"),
        ('label_replace(-x, "a", "b", "", "")', 'label_replace(-x offset 30s, "a", "b", "", "")'),
    ],
)  # fmt: skip
def test_scraped_series_and_the_clock_are_looked_at_earlier(expression: str, delayed: str) -> None:
    assert delay_expression(expression, DELAY) == delayed


def test_a_key_of_the_group_leaves_expressions_as_they_are() -> None:
    settings = replace(default_settings(), evaluation_delay_seconds=DELAY)
    groups = load_yaml(rule_files(settings, ruler=BY_NAME["mimir"])["alerts.yml"])["groups"]
    plain = load_yaml(rule_files(default_settings(), ruler=PORTABLE)["alerts.yml"])["groups"]
    assert {group.pop("query_offset") for group in groups} == {"30s"}
    assert groups == plain


# --- expressions over several lines mean what they meant on one, to Prometheus itself ---


def every_setting(folder: Path) -> Settings:
    """As many branches of the rules as one file can ask for, with labels that need quoting."""
    path = folder / "settings.yml"
    path.write_text(
        "identity_labels: [cluster, namespace, team]\n"
        'baseline: {since: "2026-01-31T08:00:00Z"}\n'
        "slo: {itl: {threshold: 0.2s}, e2e: {threshold: 30s}}\n"
        "drill: {max_age: 30d}\n"
        "node_loss:\n"
        "  tolerate_nodes: 2\n"
        "  workloads:\n"
        '    - {model_name: "a\\"b\\\\c # d", namespace: llm, kind: deployment, name: x, pods_per_replica: 2, labels: {team: t}}\n'
    )
    return read_settings(str(path))[0]


def written(settings: Settings) -> dict[str, tuple[str, str]]:
    """Each rule's expression on one line, and as the file has it, by name and number."""
    rules = list(every_rule(rule_groups(settings)))
    rendered = [rule["expr"] for group in load_yaml(rule_document(settings))["groups"] for rule in group["rules"]]
    names = [rule.record if isinstance(rule, Record) else rule.alert for rule in rules]
    assert len(rules) == len(rendered)
    return {
        f"{name} {number}": (rule.expr, text)
        for number, (name, rule, text) in enumerate(zip(names, rules, rendered, strict=True))
    }


def test_libyaml_and_its_python_twin_write_the_same_bytes(tmp_path: Path) -> None:
    """Which of them there is depends on how PyYAML was built; the committed files must not. (A smiley libyaml writes as \\U0001F600.)"""
    document = load_yaml(rule_document(every_setting(tmp_path)))
    document["odd"] = [*"'#|", "", " both ", "a: b", "µ – ×", "x" * 300, "one\ntwo", "one\n\n two \n", "yes", "1"]
    fast, plain = DUMPERS
    assert dump(document, fast) == dump(document, plain)


@pytest.mark.e2e
@pytest.mark.parametrize("program", ["prometheus", "prometheus3"])
def test_what_a_file_has_is_to_prometheus_what_was_declared(tmp_path: Path, program: str) -> None:
    """Prometheus' own formatter writes what it has understood: parentheses, modifiers and all."""
    if find_program(program) is None:
        pytest.skip(f"no {program} on PATH; `make test-prometheus3` builds it where Go is installed")
    every = {**written(default_settings()), **{f"{k}!": v for k, v in written(every_setting(tmp_path)).items()}}
    broken = [name for name, (_, text) in every.items() if "\n" in text]
    assert len(broken) > 100
    different = []
    with PrometheusServer(tmp_path / "prometheus", "scrape_configs: []\n", name=program) as prometheus:
        understood = {
            text: prometheus.get("/api/v1/format_query", query=text).json()["data"]
            for pair in every.values()
            for text in pair
        }
    for name, (bare, text) in every.items():
        if understood[bare] != understood[text]:
            different.append(name)
    assert different == []


def test_only_white_space_and_comments_are_put_between_the_tokens() -> None:
    for bare, text in written(default_settings()).values():
        said = re.sub(r"(?m)^\s*#.*\n", "", text)
        assert re.sub(r"\s", "", said) == re.sub(r"\s", "", bare)
        assert strip_comments(text) == strip_comments(bare)


def test_words_of_a_clause_stand_above_it_in_the_file() -> None:
    (text,) = (text for name, (_, text) in written(default_settings()).items() if "LLMServingBudgetExceeded" in name)
    lines = text.splitlines()
    said = {below.strip(): above.strip() for above, below in pairwise(lines) if above.strip().startswith("# ")}
    assert lines[0].startswith("# ")
    assert said["> on () max by () (llm_serving_cost_budget_usd_per_month)"] == "# is above what the price file allows"
    assert len(said) == 3


def test_a_rule_keeps_its_expression_and_its_words_apart() -> None:
    record = Record("target:llm_serving_x:max", clauses(("why so", "a > 1"), ("and  why\nnot", "and on (t) b")))
    assert record.expr == "a > 1 and on (t) b"
    assert record.explained == "# why so\na > 1\n# and why not\nand on (t) b"
    plain = Record("target:llm_serving_x:max", 'a{x="# no comment"}')
    assert (plain.expr, plain.explained) == ('a{x="# no comment"}',) * 2
    assert replace(record, expr="c").explained == "c"


@check_rows(
    ("expression", "lines"),
    [
        ("a", ["a"]),
        ("sum by (x) (rate(a[5m])) > 1", ["sum by (x) (", "  rate(a[5m])", ")", "> 1"]),
        ("long and on (x, y) b or c", ["long and on (x, y) b", "or c"]),
        ("longer_one and on (x, y) b or c", ["  longer_one", "  and on (x, y) b", "or c"]),
        ("1 - (long_name_of_a / on (x) group_left () b)", ["1", "- (", "  long_name_of_a", "  / on (x) group_left () b", ")"]),
        ("a > bool 0 unless b offset 5m", ["a > bool 0", "unless b offset 5m"]),
        ("max_over_time((a)[1h:5m] offset 1d)", ["max_over_time(", "  (a)[1h:5m] offset 1d", ")"]),
        ('label_replace(a, "b", "c", "", "")', ["label_replace(", "  a,", '  "b",', '  "c",', '  "",', '  ""', ")"]),
        ("# one\na", ["# one", "a"]),
        ("a # of b\n + b", ["a", "# of b", "+ b"]),
        ("f(# in\n a, b)", ["f(", "  # in", "  a,", "  b", ")"]),
        ("-a ^ 2 * sum(b) without (c) - {d=\"}\"}", ["  -a ^ 2", "  * sum(b) without (c)", '- {d="}"}']),
        ("Inf - a @ end() offset -1m", ["Inf", "- a @ end() offset -1m"]),
    ],
)  # fmt: skip
def test_an_operand_a_line_indented_by_depth(expression: str, lines: list[str]) -> None:
    assert lay_out(expression, 22).splitlines() == lines


@check_rows("expression", ["a b", "(a", "a +", "sum by (a", "a # said of nothing", "f(a # of nothing\n)", "a ? b"])
def test_what_is_no_promql_is_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"PromQL|belongs to nothing|is missing"):
        lay_out(expression)


def test_a_runbook_ends_with_its_expression_whatever_it_had_before() -> None:
    rule = AlertRule(
        "LLMServingX", clauses(("full", "a > 1"), ("and wait", "and on (t) b > 0")), 0.0, {"severity": "warning"}, {}
    )
    once = complete_runbook("# LLMServingX\n\n## False alarms\n\nNone.\n", [rule])
    assert once.endswith("```promql\n# full\na > 1\n# and wait\nand on (t) b > 0\n```\n")
    assert complete_runbook(once, [rule]) == once
    assert complete_runbook(once, []).count("```") == 0


# --- sums of hours have as many hours as they say ---


NOON = 1_760_011_200.0  # 2025-10-09, twelve o'clock
SAMPLES_SECONDS = 60.0
HISTORY_SECONDS = WEEK + 2 * HOUR
COST = "model:llm_serving_cost_usd:increase1h"
EVENTS = "model:llm_serving_slo_events:increase5m"
# at a full hour, on a sample, between samples, just after and just before a full hour
MOMENTS = (NOON, NOON + 1.0, NOON + 1800.0, NOON + 2001.0, NOON + HOUR - 0.1, NOON + HOUR)


def usd_until(unix_seconds: float) -> float:
    """What had been spent: hours of quite different cost, so that one too many or too few cannot hide."""
    whole, rest = divmod(unix_seconds, HOUR)
    return sum(usd_of(hour) for hour in range(int(NOON // HOUR) - 400, int(whole))) + usd_of(int(whole)) * rest / HOUR


def usd_of(hour: int) -> float:
    return 1.0 + hour * 7919 % 97


def history() -> dict[str, Callable[[float], float]]:
    return {
        f'{COST}{{model_name="m",role="unified",phase="idle"}}': lambda now: usd_until(now) - usd_until(now - HOUR),
        f'{EVENTS}{{model_name="m",role="unified",slo="ttft"}}': lambda now: (
            usd_until(now) - usd_until(now - 5 * MINUTE)
        ),
    }


def lines() -> Iterator[str]:
    for series, value in history().items():
        for number in range(round((HISTORY_SECONDS + HOUR) / SAMPLES_SECONDS) + 1):
            now = NOON - HISTORY_SECONDS + number * SAMPLES_SECONDS
            yield f"{series} {value(now)!r} {now:.3f}"


@contextmanager
def victoria_metrics(folder: Path) -> Iterator[Callable[[str, float], float]]:
    with VictoriaMetrics(folder) as server:
        with server.importing() as out:
            for line in lines():
                series, value, stamp = line.rsplit(" ", 2)
                out.write(f"{series} {value} {round(float(stamp) * 1000)}\n")
        yield server.value


@contextmanager
def prometheus(folder: Path, program: str) -> Iterator[Callable[[str, float], float]]:
    if find_program(program) is None:
        pytest.skip(f"no {program} on PATH; `make test-prometheus3` builds it where Go is installed")
    folder.mkdir()
    text = folder / "history.txt"
    text.write_text("\n".join([*lines(), "# EOF\n"]))
    make_blocks(text, folder / "data")
    with PrometheusServer(folder, "scrape_configs: []\n", retention="100y", name=program) as server:
        yield lambda query, now: float(
            server.get("/api/v1/query", query=query, time=f"{now:.3f}").json()["data"]["result"][0]["value"][1]
        )


@pytest.mark.process
@pytest.mark.parametrize(
    "name", keep_quick(["prometheus", "prometheus3", "victoria-metrics"], lambda name: name == "prometheus")
)
def test_sums_of_hours_are_what_was_spent_in_them(tmp_path: Path, name: str) -> None:
    dialect = Dialect()
    asked = {
        record: recorded(record)
        for record in ("model:llm_serving_cost_usd:increase1d", "model:llm_serving_slo_events:increase6h")
    }
    server = victoria_metrics(tmp_path / name) if name == "victoria-metrics" else prometheus(tmp_path / name, name)
    with server as value:
        for now in MOMENTS:
            hour, step = now // HOUR * HOUR, now // (5 * MINUTE) * 5 * MINUTE
            day = usd_until(hour) - usd_until(hour - DAY)
            assert value(asked["model:llm_serving_cost_usd:increase1d"], now) == pytest.approx(day, rel=1e-6), now
            events = usd_until(step) - usd_until(step - 6 * HOUR)
            assert value(asked["model:llm_serving_slo_events:increase6h"], now) == pytest.approx(events, rel=1e-6), now
            assert value(apply_over_hours(dialect, "count_over_time", COST, DAY), now) == 24, now
            assert value(apply_over_hours(dialect, "count_over_time", COST, WEEK), now) == 168, now
            mean = (usd_until(hour) - usd_until(hour - WEEK)) / 168
            assert value(apply_over_hours(dialect, "avg_over_time", COST, WEEK), now) == pytest.approx(
                mean, rel=1e-6
            ), now
            if name != "prometheus":
                # where ranges are left-open, as they are called
                assert (
                    value(apply_over_hours(Dialect(ranges_are_left_open=True), "count_over_time", COST, DAY), now) == 24
                ), now
            # what it was: right between hours everywhere, wrong on the hour where a range has both of its ends
            plain = value(f"count_over_time({COST}[1d:1h])", now)
            assert plain == (25 if name == "prometheus" and now % HOUR == 0 else 24), now


def recorded(name: str) -> str:
    """The expression of a recording rule."""
    (rule,) = (
        rule for rule in every_rule(rule_groups(default_settings())) if isinstance(rule, Record) and rule.record == name
    )
    return rule.expr


# --- an outage that outlasts what the rules look back at: the page does not end while it goes on ---


MINUTES = 5
OUTAGE_HOUR = 60 // MINUTES
OUTAGE_GROUPS = {f"llm-serving.{name}" for name in ("targets", *PRESENCE, "exporter.alerts")}


@pytest.mark.e2e
def test_most_targets_down_for_more_than_a_day_still_page(tmp_path: Path) -> None:
    files = {
        name: [group for group in load_yaml(text)["groups"] if belongs(group["name"], OUTAGE_GROUPS)]
        for name, text in rule_files(default_settings()).items()
    }
    assert all(files.values())
    lost, long_after = OUTAGE_HOUR, 30 * OUTAGE_HOUR
    series = target("chat", "chat-0", (lost + long_after, "ready"))
    for number in (1, 2, 3):
        series |= target("chat", f"chat-{number}", (lost, "ready"), (long_after, "down"))
        series[f'llm_serving_target_start_time_seconds{{target="chat-{number}"}}'] = held((lost + long_after, -3600))
    fires = 'count(ALERTS{alertname="LLMServingTargetsDown",alertstate="firing",model_name="chat"})'
    moments = {"30m": None, "2h": 1, "20h": 1, "27h": 1, "30h": 1}
    questions = [expect(fires, at, {} if count is None else {"{}": count}) for at, count in moments.items()]
    assert not ask(tmp_path, series, questions, files, interval=f"{MINUTES}m", every=f"{MINUTES}m")
