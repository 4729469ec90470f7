"""What is rendered for one ruler or another is accepted there, fires alike, and looks at the moment that the settings say."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.render import delay_expression, rule_files
from llm_serving_alerts.rules import BY_NAME, PORTABLE, RULERS
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.model.record import replace
from tests.pack import cases_gpu
from tests.pack.promtool import attach_rules, document
from tests.pack.rulesets import as_yaml, keep_groups
from tests.support.rows import check_rows
from tests.support.servers.server_process import find_program
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
    for file, text in rule_files(default_settings(), ruler=BY_NAME[name]).items():
        kept = keep_groups(load_yaml(text)["groups"], GROUPS)
        assert kept
        (tmp_path / file).write_text(as_yaml({"groups": kept}))
    # what two exporters change is asked in tests/pack
    raw = [replace(case, doubled=False) for case in cases_gpu.CASES if not case.rules]
    assert sum(bool(case.firing) or any(firing for _, firing in case.more) for case in raw) > 3
    made = attach_rules(document(raw), ["records.yml", "alerts.yml"])
    (tmp_path / "test.yml").write_text(as_yaml(made))
    judged = subprocess.run(
        [program, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
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
    checks = [
        {"expr": "target:llm_serving_down:min", "eval_time": at, "exp_samples": [{"labels": down, "value": value}]}
        for at, value in (("11m", 0), ("12m", 1))
    ]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in lines.items()],
        "promql_expr_test": checks,
    }
    whole = {"rule_files": ["records.yml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yml").write_text(yaml.safe_dump(whole))
    judged = subprocess.run(
        [found("promtool"), "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert judged.returncode == 0, judged.stdout + judged.stderr


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
