"""The names that a drill asks for are those that the rules and the exporter have."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.promql import MODEL
from llm_serving_alerts.records.slo import RATIO
from llm_serving_alerts.render import every_rule, rule_groups
from llm_serving_alerts.rules import AlertRule, Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_drill import names
from llm_serving_drill.command import parser
from llm_serving_drill.course import Scope
from llm_serving_exporter.catalogue import BY_NAME

RENDERED = tuple(every_rule(rule_groups(default_settings())))


@pytest.mark.parametrize("name", names.RECORDS)
def test_every_record_is_recorded(name: str) -> None:
    assert name in {rule.record for rule in RENDERED if isinstance(rule, Record)}


@pytest.mark.parametrize("name", names.ALERTS)
def test_every_alert_is_rendered_with_the_labels_that_it_is_found_by(name: str) -> None:
    rules = [rule for rule in RENDERED if isinstance(rule, AlertRule) and rule.alert == name]
    assert rules
    for rule in rules:
        for label in MODEL:
            assert label in rule.expr


@pytest.mark.parametrize("name", names.EXPORTED)
def test_every_series_of_the_exporter_is_in_its_catalogue(name: str) -> None:
    assert name in BY_NAME


def test_the_defaults_are_the_rules_own() -> None:
    settings = default_settings()
    assert parser().get_default("objective") == settings.slo["ttft"].objective
    assert settings.alerts["TargetsDown"]["above"] == names.TARGETS_DOWN_ABOVE
    assert RATIO.format(window="5m") == names.SLO_BAD


@pytest.mark.process
@pytest.mark.skipif(shutil.which("promtool") is None, reason="`make test` installs promtool")
def test_every_query_is_promql(tmp_path: Path) -> None:
    scope = Scope('a "model" \\ of {ours}', "unified", (("cluster", "prod.eu-1"), ("namespace", "llm")))
    queries = [
        names.at_once(names.BY_MODEL, scope.matchers),
        names.capacity_by_node(scope.matchers),
        names.replicas_by_node(scope.matchers),
        names.replicas_alive(scope.matchers),
        names.ttft_events(scope, 61.5),
        names.rejected(scope, 61.5),
        names.rejected(Scope("m"), 61.5),
    ]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout
