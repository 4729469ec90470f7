"""The link to a runbook's queries: filled in by a real Prometheus' templates, and what it opens are the runbook's queries."""

from __future__ import annotations

import subprocess
from pathlib import Path
from urllib.parse import parse_qs, quote, quote_plus, urlsplit

import pytest

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.alerting.rules_of import alert_rules
from llm_serving_alerts.promql import Dialect
from llm_serving_alerts.runbook_texts import link_queries, read_queries
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_exporter.model.record import replace
from tests.pack.rulesets import as_yaml
from tests.support.rows import check_rows
from tests.support.servers.server_process import program

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
