"""An outage that outlasts what the rules look back at: the page does not end while it goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_alerts.render import rule_files
from llm_serving_alerts.settings_file import default_settings
from tests.pack.builders import held, target
from tests.pack.judging import verdict
from tests.pack.narrowing import write_narrowed
from tests.pack.rulesets import PRESENCE, belongs
from tests.support.yaml_text import load_yaml

MINUTES = 5
HOUR = 60 // MINUTES
GROUPS = {f"llm-serving.{name}" for name in ("targets", *PRESENCE, "exporter.alerts")}


@pytest.mark.e2e
def test_most_targets_down_for_more_than_a_day_still_page(tmp_path: Path) -> None:
    files = {
        name: [group for group in load_yaml(text)["groups"] if belongs(group["name"], GROUPS)]
        for name, text in rule_files(default_settings()).items()
    }
    assert all(files.values())
    lost, long_after = HOUR, 30 * HOUR
    series = target("chat", "chat-0", (lost + long_after, "ready"))
    for number in (1, 2, 3):
        series |= target("chat", f"chat-{number}", (lost, "ready"), (long_after, "down"))
        series[f'llm_serving_target_start_time_seconds{{target="chat-{number}"}}'] = held((lost + long_after, -3600))
    fires = 'count(ALERTS{alertname="LLMServingTargetsDown",alertstate="firing",model_name="chat"})'
    moments = {"30m": None, "2h": 1, "20h": 1, "27h": 1, "30h": 1}
    tests = [
        {"expr": fires, "eval_time": at, "exp_samples": [] if count is None else [{"labels": "{}", "value": count}]}
        for at, count in moments.items()
    ]
    document = {
        "evaluation_interval": f"{MINUTES}m",
        "tests": [
            {
                "interval": f"{MINUTES}m",
                "input_series": [{"series": name, "values": values} for name, values in series.items()],
                "promql_expr_test": tests,
            }
        ],
    }
    write_narrowed(tmp_path, "test.yml", document, files)
    assert not verdict(tmp_path, "test.yml")
