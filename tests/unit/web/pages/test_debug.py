"""Readiness and the JSON for operators."""

import json
import math
from typing import Any

from llm_serving_exporter.model.reading import TargetReading, View
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.target import HttpSettings, Secret, Target
from llm_serving_exporter.settings.config import Config, effective
from llm_serving_exporter.web.pages.debug import answer_debug_targets, answer_ready
from tests.support.builders import views


def document(view: View, config: dict[str, object] | None = None) -> Any:
    response = answer_debug_targets(view, config or {})
    assert (response.status, response.content_type) == (200, "application/json")
    parsed = json.loads(response.body)
    assert isinstance(parsed, dict)
    return parsed


def test_ready_without_targets():
    assert answer_ready(views.view()).status == 200


def test_ready_once_each_target_was_tried_whatever_came_of_it():
    response = answer_ready(views.fleet())  # one of them is down, one is loading
    assert (response.status, response.body) == (200, b"llm-serving-exporter is ready.\n")


def test_not_ready_names_who_is_missing():
    waiting = tuple(TargetReading(Target(f"t{number:02}", "http://x")) for number in range(22))
    response = answer_ready(views.view(views.down(), *waiting))
    assert response.status == 503
    assert response.body.startswith(b"Not ready: 22 of 23 targets were not tried yet: t00, t01, ")
    assert response.body.endswith(b"t19 and 2 more.\n")


def test_a_failed_target_with_its_attempts_and_advice():
    down = document(views.view(views.down()))["targets"][0]
    assert (down["name"], down["state"], down["up"]) == ("chat-1", "down", False)
    assert down["last_attempt"]["reason"] == "connection_refused"
    assert down["last_attempt"]["what_to_do"].startswith("Nothing listens there")
    newest_first = [attempt["at_unix_seconds"] for attempt in down["recent_failures"]]
    assert newest_first == sorted(newest_first, reverse=True)
    assert down["failures_total"] == [{"stage": "scrape", "reason": "connection_refused", "count": 30}]


def test_facts_absent_signals_and_gpus_of_a_target():
    found = document(views.fleet())
    chat = found["targets"][0]
    assert chat["facts"]["batch_limit_requests"] == 256
    assert chat["facts"]["pipeline_parallel_size"] is None
    absent = {entry["signal"]: entry for entry in chat["absent_signals"]}
    assert absent["slo_itl"]["reason"] == "not_configured"
    assert absent["slo_itl"]["why"].startswith("Set slo.itl")
    assert len(chat["gpus"]["uuids"]) == 2
    assert [gpu["index"] for gpu in found["gpus"]["gpus"]] == [0, 1]


def test_a_target_that_was_never_tried():
    fresh = document(views.view(TargetReading(Target("new", "http://new:8000"))))["targets"][0]
    assert fresh["state"] == "unknown"
    assert fresh["last_attempt"] is None
    assert fresh["last_page"] is None


def test_nvml_and_discovery_and_reload():
    failed = views.gpus(reason=FailureReason.NO_DRIVER, detail="Driver Not Loaded")
    found = document(
        views.view(
            gpu_readings=failed,
            nvml_failures_total={FailureReason.NO_DRIVER: 3},
            discovery_problems=("sd.json: not there",),
            discovery_failures_total=7,
            targets_elsewhere=6,
            targets_left_out=5,
            reload_ok=False,
        )
    )
    assert found["gpus"]["failures_total"] == {"driver_not_loaded": 3}
    assert found["discovery"] == {
        "problems": ["sd.json: not there"],
        "failures_total": 7,
        "targets_elsewhere": 6,
        "targets_left_out": 5,
    }
    assert found["reload"]["ok"] is False
    assert document(views.view())["gpus"] is None


def test_the_effective_configuration_shows_where_a_secret_is_never_what_it_is(monkeypatch):
    monkeypatch.setenv("TOKEN", "s3cret")
    target = Target("a", "http://a:8000", http=HttpSettings(bearer_token=Secret(env="TOKEN")))
    found = document(views.view(), effective(Config((target,))))
    assert found["config"]["targets"][0]["http"]["bearer_token"] == {"env": "TOKEN"}
    assert "s3cret" not in json.dumps(found)


def test_what_json_cannot_say_is_null_or_replaced():
    odd = views.reading("odd\udcff", [], start_unix_seconds=math.nan)
    target = document(views.view(odd))["targets"][0]
    assert target["start_unix_seconds"] is None
    assert target["name"] == "odd?"
