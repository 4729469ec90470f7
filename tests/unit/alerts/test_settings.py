"""The settings of the rules: what a file may say, what is refused with which words, and what each setting does to the rules."""

import re
from pathlib import Path
from typing import Any

import pytest

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.render import ALERTS as ALERT_RULES
from llm_serving_alerts.render import (
    RECORDS,
    every_rule,
    groups_text,
    prometheus_rules,
    rule_document,
    rule_files,
    rule_groups,
)
from llm_serving_alerts.rules import AlertRule, Severity
from llm_serving_alerts.settings import BurnWindow, Objective, Settings
from llm_serving_alerts.settings_file import FORMER, default_settings, defaults_text, read_settings
from llm_serving_exporter.errors import ConfigError
from tests.support.rows import check_rows
from tests.support.yaml_text import load_yaml

SHARED = "List what all replicas of a workload share, such as cluster, namespace or team."
BURN = "Write for example {long: 1h, short: 5m, factor: 14.4}."


def read(folder: Path, text: str) -> Settings:
    path = folder / "rules.yml"
    path.write_text(text)
    return read_settings(str(path))[0]


def problems(folder: Path, text: str) -> list[str]:
    """The messages for a file, its path cut off."""
    path = folder / "rules.yml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_settings(str(path))
    return [str(problem).removeprefix(f"{path}: ") for problem in caught.value.problems]


def _groups(settings: Settings, name: str) -> list[dict[str, Any]]:
    found = load_yaml(groups_text(rule_groups(settings)[name]))
    groups: list[dict[str, Any]] = found["groups"]
    return groups


def alerts(settings: Settings, name: str = "") -> list[dict[str, Any]]:
    """The rendered rules of an alert, or of all."""
    groups = _groups(settings, ALERT_RULES)
    rules = [rule for group in groups for rule in group["rules"]]
    return [rule for rule in rules if not name or rule["alert"] == f"LLMServing{name}"]


def records(settings: Settings) -> dict[str, str]:
    """Expressions of the rendered records."""
    groups = _groups(settings, RECORDS)
    return {rule["record"]: rule["expr"] for group in groups for rule in group["rules"]}


# --- what stands in the packaged file ---------------------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_design() -> None:
    settings = default_settings()
    assert settings.slo == {
        "ttft": Objective(0.99, 2.5),
        "itl": Objective(0.99),
        "e2e": Objective(0.99),
        "errors": Objective(0.999),
    }
    assert settings.burn == {
        "fast": (BurnWindow(3600, 300, 14.4), BurnWindow(21_600, 1800, 6)),
        "slow": (BurnWindow(86_400, 7200, 3), BurnWindow(259_200, 21_600, 1)),
    }
    assert (settings.scrape_interval_seconds, settings.identity_labels, settings.severity_cap) == (15, (), "critical")
    assert (settings.baseline.history_seconds, settings.baseline.settle_seconds) == (259_200, 1800)
    assert settings.baseline.since_unix_seconds is None
    assert settings.drill_max_age_seconds is None
    # how long each condition has to hold, in minutes
    minutes = {
        "ThroughputBelowBaseline": 5, "TrafficVanished": 15, "PrefillStarvesDecode": 10, "TTFTBurn": 2, "SLOBurn": 2, "Stalled": 1,
        "KVSaturated": 10, "PreemptionStorm": 10, "HitRateDropped": 30, "LongContextFewFit": 30, "N1Insufficient": 15, "N1Critical": 5,
        "ReplicaLost": 10, "DrillOverdue": 60, "DrillFailed": 0, "CostPerTokenUp": 360, "BudgetExceeded": 360, "TokenExplosion": 30,
        "ReportMissed": 60, "GPUFailed": 0, "GPUMemoryFault": 0, "GPUSlowdown": 10, "TargetDown": 15, "TargetsDown": 5,
        "PageFails": 15, "SignalLost": 10,
        "ExporterAbsent": 10, "ConfigReloadFailed": 10, "NotificationsFailing": 10, "RulesFailing": 15, "RestartLoop": 0, "Watchdog": 0,
        "LabelsRenamed": 10, "ClaimedTwice": 10, "ReplicaOutlier": 5, "FleetUnreachable": 2, "NodeLost": 5,
    }  # fmt: skip
    assert {name: own.for_seconds / 60 for name, own in settings.alerts.items()} == minutes
    assert all(own.enabled for own in settings.alerts.values())


def test_the_defaults_warn_of_nothing() -> None:
    assert read_settings(None)[1] == ()


def test_every_alert_stands_in_the_packaged_file_with_all_of_its_settings_and_no_other() -> None:
    written = load_yaml(defaults_text())["alerts"]
    assert {name: set(lines) - {"for"} for name, lines in written.items()} == {
        alert.name: set(alert.values) for alert in ALERTS
    }


def test_the_packaged_file_used_as_settings_changes_nothing(tmp_path: Path) -> None:
    assert read(tmp_path, defaults_text()) == default_settings()


@check_rows("text", ["", "# nothing yet\n", "alerts:\n", "alerts: {PreemptionStorm: }\n", "slo:\n  ttft:\n"])
def test_what_is_left_out_has_its_default(tmp_path: Path, text: str) -> None:
    assert read(tmp_path, text) == default_settings()


@check_rows(
    ("text", "external", "own"),
    [
        ("", (), ()),
        ("identity_labels: [cluster]", ("cluster",), ()),
        # as files of earlier releases have it
        ("identity_labels: [cluster, namespace]", ("cluster",), ("namespace",)),
        ("identity_labels: [team, workload, region]", (), ("team", "workload", "region")),
        ("identity_labels: [site, team]\nexternal_labels: [site]", ("site",), ("team",)),
        ("identity_labels: [cluster, team]\nexternal_labels: []", (), ("cluster", "team")),
        ("identity_labels: [cluster]\nexternal_labels:", ("cluster",), ()),
    ],
)
def test_identity_labels_are_of_the_scrape_or_of_the_targets(
    tmp_path: Path, text: str, external: tuple[str, ...], own: tuple[str, ...]
) -> None:
    settings = read(tmp_path, text)
    assert (settings.external_labels, settings.own_labels) == (external, own)


def test_what_is_retired_is_left_out_by_its_labels(tmp_path: Path) -> None:
    text = """
identity_labels: [cluster, workload]
memory: 3d
retired:
  - {model_name: 'a "b"', role: decode, labels: {cluster: eu}, until: 2026-12-01T00:00:00Z}
"""
    settings = read(tmp_path, text)
    assert settings.memory_seconds == 3 * 86_400
    rules = {rule.alert: rule.expr for rule in every_rule(rule_groups(settings)) if isinstance(rule, AlertRule)}
    lost = 'workload:llm_serving_lost_signals:count{model_name="a \\"b\\"",role="decode",cluster="eu"}[10m]'
    on = "cluster, workload, model_name, role, runtime"
    assert f"unless on ({on}) (max_over_time({lost})) * 0 + time() < 1796083200" in rules["LLMServingSignalLost"]


# --- what is refused --------------------------------------------------------------------------------------------------------------------


@check_rows(
    ("text", "message"),
    [
        # keys
        ("slos: {}", "slos: this key is not known. Did you mean slo?"),
        ("slo: {ttft: {treshold: 1s}}", "slo.ttft.treshold: this key is not known. Did you mean threshold?"),
        ("alerts: {PreemptionStrom: off}", "alerts.PreemptionStrom: there is no such alert. Did you mean PreemptionStorm?"),
        (
            "alerts: {LLMServingPreemptionStrom: off}",
            "alerts.LLMServingPreemptionStrom: there is no such alert. Did you mean PreemptionStorm?",
        ),
        ("alerts: {PreemptionStorm: {event: 5}}", "alerts.PreemptionStorm.event: this key is not known. Did you mean events?"),
        (
            "alerts: {PreemptionStorm: {enabled: false}}",
            "alerts.PreemptionStorm.enabled: this key is not allowed here. Write PreemptionStorm: off.",
        ),
        (
            "alerts: {PreemptionStorm: off, LLMServingPreemptionStorm: {for: 5m}}",
            "alerts.LLMServingPreemptionStorm: the alert is given twice, with and without prefix. Keep one of them.",
        ),
        ("labels: {team: a}\nlabels: {team: b}", "labels: the key is given twice (lines 1 and 2). Keep one of them."),
        # types
        ("- alerts", "must be a mapping (key: value), not a list. Known here: alerts, baseline, burn, dashboard_url, drill, "
         "evaluation_delay, external_labels, identity_labels, labels, memory, node_loss, panels, queries_url, receivers, "
         "renamed_labels, retired, runbook_url, runtimes, scrape_interval, severity_cap, slo."),
        ("alerts: []", "alerts: must be a mapping (key: value), not a list. Write alerts: {PreemptionStorm: off}."),
        ("alerts: off", "alerts: must be a mapping (key: value), not true or false. Write alerts: {PreemptionStorm: off}."),
        ("alerts: {PreemptionStorm: [off]}",
         "alerts.PreemptionStorm: must be a mapping (key: value), not a list. Known here: above, events, for, labels, severity."),
        (
            "alerts: {PreemptionStorm: {for: [5m]}}",
            "alerts.PreemptionStorm.for: must be a duration such as 5m, or 0, not a list. Write a single value.",
        ),
        ("identity_labels: cluster", "identity_labels: must be a list of label names, not text. Start each element with a dash."),
        ("burn: {fast: 14.4}", "burn.fast: must be a list of mappings such as {long: 1h, short: 5m, factor: 14.4}, not a number. "
         "Start each element with a dash."),
        ("labels: {team: 5}", "labels.team: YAML reads this value as a number, not as text. Put it in double quotes."),
        ("severity_cap: ", "severity_cap: the key has no value. Write a severity: critical, warning or info, or remove the line."),
        # values
        ("severity_cap: none", 'severity_cap: "none" is not a severity. Write critical, warning or info.'),
        ("runtimes: [vlm]", 'runtimes[0]: "vlm" is not a runtime. Did you mean vllm?'),
        ("slo: {ttft: {objective: 99}}", 'slo.ttft.objective: "99" is not a share between 0 and 1. Write 0.99 for 99 %.'),
        ("slo: {ttft: {objective: 1}}", 'slo.ttft.objective: "1" is not a share between 0 and 1. Write 0.99 for 99 %.'),
        ("slo: {ttft: {threshold: 2.5}}", 'slo.ttft.threshold: the duration "2.5" has no unit. Write 2.5s for seconds. '
         "To count no events for this SLO write off."),
        ("node_loss: {efficiency: 60}", 'node_loss.efficiency: "60" is not a ratio above 0, up to 1. Write a ratio above 0, up to 1.'),
        ("node_loss: {efficiency: nan}", 'node_loss.efficiency: "nan" is not a ratio above 0, up to 1. Write a ratio above 0, up to 1.'),
        ("alerts: {KVSaturated: {above: 0}}",
         'alerts.KVSaturated.above: "0" is not a ratio above 0, up to 1. Write a ratio above 0, up to 1.'),
        *((f"alerts: {{{alert}: {{{name}: 1}}}}",
           f'alerts.{alert}.{name}: nothing is more than "1" of the whole: the alert could never fire. Write less, such as 0.99.')
          for alert, name in (("TargetsDown", "above"), ("FleetUnreachable", "above"), ("KVSaturated", "above"),
                              ("NotificationsFailing", "above"), ("PrefillStarvesDecode", "prefill_above"))),
        ("node_loss: {workloads: [{model_name: a, namespace: b, kind: deployment, name: c}, "
         "{model_name: a, namespace: b, kind: deployment, name: c}]}",
         "node_loss.workloads[1]: the same entry stands at [0], and would count twice. Keep one."),
        ("runbook_url: https://wiki.example.com/{alrt}", 'runbook_url: nothing fills in "{alrt}". Write {alert} for the alert\'s name, '
         "{uid} for the dashboard's, {queries} for the runbook's queries."),
        ("alerts: {PreemptionStorm: {events: -1}}", 'alerts.PreemptionStorm.events: "-1" is not a number above 0. Write a number above 0.'),
        ("alerts: {TrafficVanished: {days: 8}}", "alerts.TrafficVanished.days: 8 is out of range. Write a whole number from 1 to 7."),
        ("alerts: {PreemptionStorm: {for: -5m}}", 'alerts.PreemptionStorm.for: the duration "-5m" is negative. Write one such as 5s.'),
        ("baseline: {since: 2026-01-31T08:00:00}", 'baseline.since: "2026-01-31T08:00:00" has no time zone. '
         "Add Z for UTC, as in 2026-01-31T08:00:00Z."),
        ("baseline: {since: yesterday}", 'baseline.since: "yesterday" is not a time. Write it as in 2026-01-31T08:00:00Z.'),
        ("baseline: {history: 7d}", "baseline.history: 1w of history leaves nothing of the seven days that a baseline covers. "
         "Write 6d or less."),
        ("receivers: {critical: on call (night)}", 'receivers.critical: "on call (night)" is not the name of a receiver. '
         "Begin it with a letter, and write letters, digits, spaces and any of . _ / -."),
        ("receivers: {page: oncall}", "receivers.page: this key is not known. Known here: critical, warning."),
        # ranges and scrapes
        ("scrape_interval: 2m", "scrape_interval: the rules' ranges of 5m would not hold four scrapes. Scrape every 1m15s or more often."),
        ("scrape_interval: 1m\nalerts: {Stalled: {range: 3m}}",
         "alerts.Stalled.range: 3m does not hold four scrapes of 1m. Write 4m or more."),
        # labels
        ("identity_labels: [model_name]", f'identity_labels: "model_name" is a label of the rules themselves. {SHARED}'),
        ("identity_labels: [cluster, engine]", f'identity_labels: "engine" is a label of the rules themselves. {SHARED}'),
        *((f"identity_labels: [cluster, {name}]",
           f'identity_labels: "{name}" differs between the replicas of a workload: each would be a fleet of one, and none could '
           f"stand in for it. {SHARED} What is about one replica names its target.")
          for name in ("pod", "container", "node", "instance", "job", "provider_id", "pod_template_hash")),
        ("identity_labels: [exported_namespace]",
         'identity_labels: "exported_namespace" is what Prometheus calls a label that a scrape has renamed. Write namespace.'),
        ("external_labels: [site]", 'external_labels: "site" is not one of identity_labels. Name it there too, or leave it out here.'),
        ("identity_labels: [namespace]\nexternal_labels: [namespace]",
         'external_labels: "namespace" is written by the exporter itself, of each target its own. Leave it out here; it may stay in '
         "identity_labels."),
        ("renamed_labels: [role]", 'renamed_labels[0]: the rules cannot do without "role" under its own name. Set honor_labels, or give '
         "the label of the scrape another name."),
        ("identity_labels: [namespace, team]\nnode_loss: {workloads: [{model_name: a, namespace: b, kind: deployment, name: c}]}",
         "node_loss.workloads[0].labels: team is one of identity_labels, and is missing. Write labels: {team: …}."),
        ("node_loss: {workloads: [{model_name: a, namespace: b, kind: deployment, name: c, labels: {team: d}}]}",
         "node_loss.workloads[0].labels.team: it tells no targets of the workload from others. Remove it."),
        ("identity_labels: [k8s-cluster]",
         'identity_labels[0]: "k8s-cluster" is not a label\'s name. Write letters, digits and underscores.'),
        ("identity_labels: [__name__]", 'identity_labels[0]: "__name__" is not a label\'s name. Write letters, digits and underscores.'),
        ("labels: {severity: page}", "labels.severity: this label belongs to the rules. Choose another name."),
        ("labels: {model_name: x}", "labels.model_name: this label belongs to the rules. Choose another name."),
        ("identity_labels: [cluster]\nlabels: {cluster: a}", "labels.cluster: this label belongs to the rules. Choose another name."),
        (
            "alerts: {PreemptionStorm: {labels: {check: x}}}",
            "alerts.PreemptionStorm.labels.check: this label belongs to the rules. Choose another name.",
        ),
        ("labels: {te-am: x}", 'labels.te-am: "te-am" is not a label\'s name. Write letters, digits and underscores.'),
        # severities
        (
            "alerts: {PreemptionStorm: {severity: page}}",
            'alerts.PreemptionStorm.severity: "page" is not a severity. Write critical, warning or info.',
        ),
        ("alerts: {ThroughputBelowBaseline: {severity: info}}", "alerts.ThroughputBelowBaseline.severity: "
         "the alert has a threshold for each severity. Set severity_cap, or its thresholds."),
        ("alerts: {ThroughputBelowBaseline: {critical_below: 0.8}}", "alerts.ThroughputBelowBaseline.critical_below: "
         "it is not below warning_below. A page asks for more than a ticket does."),
        # burn rates
        ("burn: {fast: []}", "burn.fast: there is no window. Keep one, or switch the alerts off."),
        ("burn: {fast: [{long: 1h, short: 5m}]}",
         "burn.fast[0]: factor is missing. Write {long: 1h, short: 5m, factor: 14.4}."),
        ("burn: {fast: [{long: 5m, short: 1h, factor: 2}]}", f"burn.fast[0]: the windows must be 5m <= short < long <= period. {BURN}"),
        ("burn: {fast: [{long: 31d, short: 1h, factor: 2}]}", f"burn.fast[0]: the windows must be 5m <= short < long <= period. {BURN}"),
        ("burn: {fast: [{long: 1h, short: 7m, factor: 2}]}",
         f"burn.fast[0]: a window is not a multiple of 5m, the step in which events are counted. {BURN}"),
        # 100 times the budget of 1 % is everything
        ("burn: {fast: [{long: 1h, short: 5m, factor: 100}]}", "burn.fast[0].factor: a factor of 100 can never be reached by ttft: "
         "with an objective of 0.99 the budget is spent at most 100 times too fast. Write a factor below 100, or a higher objective."),
        ("slo: {errors: {objective: 0.9}}", "burn.fast[0].factor: a factor of 14.4 can never be reached by errors: "
         "with an objective of 0.9 the budget is spent at most 10 times too fast. Write a factor below 10, or a higher objective."),
        # late samples
        ("evaluation_delay: 11m", 'evaluation_delay: "11m" is more than 10m. Write 10m or less; every alert comes that much later.'),
        # workloads
        ("node_loss: {workloads: [{model_name: chat}]}", "node_loss.workloads[0]: namespace, kind and name are missing. "
         "Write {model_name: …, namespace: …, kind: deployment, name: …}."),
        ("node_loss: {workloads: [{model_name: chat, namespace: llm, kind: pod, name: chat}]}",
         'node_loss.workloads[0].kind: "pod" is not a kind. Write deployment or statefulset.'),
        # memory
        ("memory: 30m", 'memory: "30m" is not within 1h and 60d. Write a duration such as 7d.'),
        ("memory: 61d", 'memory: "61d" is not within 1h and 60d. Write a duration such as 7d.'),
        ("retired: [{model_name: chat}]", "retired[0]: until is missing. Write {model_name: …, until: 2026-01-31T00:00:00Z}."),
        ("retired: [{model_name: chat, until: 2026-01-31T00:00:00Z, labels: {team: a}}]",
         "retired[0].labels.team: team is not one of identity_labels. Name it there too, or leave it out here."),
        ("labels: {workload: x}", "labels.workload: this label belongs to the rules. Choose another name."),
    ],
)  # fmt: skip
def test_a_fault_is_refused_with_what_is_wrong_where_and_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    assert problems(tmp_path, text) == [message]


def test_every_fault_is_said_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path, "slo: {ttft: {objective: 2}}\nalerts: {Nothing: off, PreemptionStorm: {events: x}}\nlabels: []\n"
    )
    assert {message.partition(":")[0] for message in found} == {
        "slo.ttft.objective",
        "labels",
        "alerts.Nothing",
        "alerts.PreemptionStorm.events",
    }


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(str(tmp_path / "none.yml"))
    assert [problem.what for problem in caught.value.problems] == ["the file does not exist"]


def test_a_factor_is_measured_only_by_the_objectives_that_are_counted(tmp_path: Path) -> None:
    # 14.4 times a tenth is more than everything, but nobody counts end-to-end latencies here
    assert read(tmp_path, "slo: {e2e: {objective: 0.9}}").slo["e2e"] == Objective(0.9)
    assert problems(tmp_path, "slo: {e2e: {objective: 0.9, threshold: 30s}}") == [
        "burn.fast[0].factor: a factor of 14.4 can never be reached by e2e: with an objective of 0.9 the budget is spent at most "
        "10 times too fast. Write a factor below 10, or a higher objective."
    ]


# --- what is warned of ------------------------------------------------------------------------------------------------------------------


def test_a_threshold_between_two_edges_is_warned_of_with_both_and_the_one_that_counts(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text("slo: {ttft: {threshold: 2s}}\n")
    (warning,) = read_settings(str(path))[1]
    # vLLM's buckets: … 1, 2.5, 5 …
    assert warning == (
        "slo.ttft: 2 s lies between the bucket edges 1 s and 2.5 s of vLLM's histogram: requests count as good up to 1 s (strict)"
    )


def test_only_the_runtimes_that_are_served_are_asked_for_their_edges(tmp_path: Path) -> None:
    path = tmp_path / "rules.yml"
    path.write_text("slo: {ttft: {threshold: 2s}}\nruntimes: [sglang]\n")
    # SGLang has an edge at 2 s
    assert read_settings(str(path))[1] == ()


# --- what settings do -------------------------------------------------------------------------------------------------------------------


@check_rows("text", ["off", "OFF", "false", "no"])
def test_an_alert_that_is_off_has_no_rule_and_the_others_stay(tmp_path: Path, text: str) -> None:
    before = {rule["alert"] for rule in alerts(default_settings())}
    after = {rule["alert"] for rule in alerts(read(tmp_path, f"alerts: {{PreemptionStorm: {text}}}"))}
    assert before - after == {"LLMServingPreemptionStorm"}


def test_the_name_with_its_prefix_means_the_same(tmp_path: Path) -> None:
    assert read(tmp_path, "alerts: {LLMServingPreemptionStorm: off}") == read(
        tmp_path, "alerts: {PreemptionStorm: off}"
    )


def test_severity_for_labels_and_thresholds_reach_the_rule_and_no_other(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        "labels: {team: inference}\n"
        "alerts: {PreemptionStorm: {severity: critical, for: 3m, above: 0.5, labels: {team: kv, page: 'yes'}}}\n",
    )
    (rule,) = alerts(settings, "PreemptionStorm")
    assert rule["labels"] == {"team": "kv", "page": "yes", "severity": "critical", "check": "kv"}
    assert rule["for"] == "3m"
    assert "> 0.5" in rule["expr"]
    (other,) = alerts(settings, "HitRateDropped")
    (before,) = alerts(default_settings(), "HitRateDropped")
    assert other == {**before, "labels": {"team": "inference", **before["labels"]}}


def test_for_0_is_no_for(tmp_path: Path) -> None:
    (rule,) = alerts(read(tmp_path, "alerts: {PreemptionStorm: {for: 0}}"), "PreemptionStorm")
    assert "for" not in rule


def test_what_may_come_and_go_has_its_time_in_the_expression(tmp_path: Path) -> None:
    for text, window, moments in (("3m", "5m59s999ms", "3"), ("0", "59s999ms", "0.5"), ("30m", "59m59s999ms", "30")):
        (rule,) = alerts(read(tmp_path, f"alerts: {{TargetDown: {{for: {text}}}}}"), "TargetDown")
        assert "for" not in rule
        assert f"sum_over_time(target:llm_serving_down_alone:min[{window}:1m]) >= {moments}" in rule["expr"]


def test_a_cap_leaves_nothing_louder_and_one_rule_of_an_alert_with_two_severities(tmp_path: Path) -> None:
    settings = read(tmp_path, "severity_cap: warning")
    assert {rule["labels"]["severity"] for rule in alerts(settings)} == {"warning", "none"}
    (rule,) = alerts(settings, "ThroughputBelowBaseline")
    # the one that fires first
    assert "< 0.7" in rule["expr"]
    (quiet,) = alerts(read(tmp_path, "severity_cap: info"), "ThroughputBelowBaseline")
    assert (quiet["labels"]["severity"], "< 0.7" in quiet["expr"]) == ("info", True)
    assert [one["labels"]["severity"] for one in alerts(default_settings(), "ThroughputBelowBaseline")] == [
        "warning",
        "critical",
    ]


def test_a_cap_that_makes_one_severity_of_two_conditions_keeps_both(tmp_path: Path) -> None:
    (rule,) = alerts(read(tmp_path, "severity_cap: warning"), "SLOBurn")
    slow, fast = alerts(default_settings(), "SLOBurn")
    assert (slow["labels"]["severity"], fast["labels"]["severity"]) == ("warning", "critical")
    assert (slow["for"], fast["for"], rule["for"]) == ("15m", "2m", "2m")
    assert all(f"ratio_increase{window}" in rule["expr"] for window in ("1h", "6h", "1d", "3d"))


@check_rows("name", sorted(FORMER))
def test_an_alert_of_an_earlier_version_is_refused_with_what_it_has_become(tmp_path: Path, name: str) -> None:
    (said,) = problems(tmp_path, f"alerts: {{{name}: off}}")
    assert said == f"alerts.{name}: there is no such alert any more. {FORMER[name]}"
    assert name not in {alert.name for alert in ALERTS}


def test_the_cap_also_holds_for_a_severity_that_was_set(tmp_path: Path) -> None:
    (rule,) = alerts(read(tmp_path, "severity_cap: info\nalerts: {KVSaturated: {severity: critical}}"), "KVSaturated")
    assert rule["labels"]["severity"] == Severity.INFO


def test_latencies_burn_only_where_they_have_a_threshold(tmp_path: Path) -> None:
    _, rule = alerts(default_settings(), "SLOBurn")
    assert [name for name in ("ttft", "itl", "e2e", "errors") if f'slo="{name}"' in rule["expr"]] == ["errors"]
    _, rule = alerts(read(tmp_path, "slo: {itl: {threshold: 100ms}}"), "SLOBurn")
    assert [name for name in ("ttft", "itl", "e2e", "errors") if f'slo="{name}"' in rule["expr"]] == ["itl", "errors"]
    settings = read(tmp_path, "slo: {ttft: {threshold: off}}")
    assert alerts(settings, "TTFTBurn") == []


def test_windows_and_factors_of_ones_own(tmp_path: Path) -> None:
    settings = read(tmp_path, "burn: {fast: [{long: 2h, short: 10m, factor: 7}]}\nslo: {errors: {objective: 0.99}}\n")
    _, rule = alerts(settings, "SLOBurn")
    assert 'model:llm_serving_slo_bad:ratio_increase2h{slo="errors"} / 0.01 > 7' in rule["expr"]
    assert 'model:llm_serving_slo_bad:ratio_increase10m{slo="errors"} / 0.01 > 7' in rule["expr"]
    found = records(settings)
    assert (
        found["model:llm_serving_slo_bad:increase2h"]
        == "sum_over_time(model:llm_serving_slo_bad:increase5m[1h59m59s999ms:5m])"
    )
    # what the text of the alert looks up is recorded too
    assert "model:llm_serving_slo_bad:ratio_increase2h" in rule["annotations"]["description"]
    assert "model:llm_serving_slo_bad:ratio_increase2h" in found
    # the hour belongs to no pair any more: nobody adds it up, and a month is then counted in five minutes
    assert "model:llm_serving_slo_bad:increase1h" not in found
    assert (
        found["model:llm_serving_slo_bad:increase30d"]
        == "sum_over_time(model:llm_serving_slo_bad:increase5m[29d23h59m59s999ms:5m])"
    )


def test_a_baseline_since_a_moment_looks_at_nothing_older(tmp_path: Path) -> None:
    settings = read(tmp_path, "baseline: {since: 2026-01-31T08:00:00+01:00}")
    # 2026-01-31T07:00:00Z
    assert settings.baseline.since_unix_seconds == 1_769_842_800
    assert (
        "vector(time()) >= 1769842800)[7d:5m]" in records(settings)["model_gpu:llm_serving_bandwidth_ceiling:median7d"]
    )


def test_links_lead_where_the_settings_say(tmp_path: Path) -> None:
    settings = read(tmp_path, "runbook_url: https://wiki/{alert}\ndashboard_url: https://grafana/d/{uid}/x\n")
    (rule,) = alerts(settings, "PreemptionStorm")
    assert rule["annotations"]["runbook_url"] == "https://wiki/LLMServingPreemptionStorm"
    assert rule["annotations"]["dashboard_url"] == (
        "https://grafana/d/llm-serving-kv/x?var-target={{ $labels.target | urlquery }}"
        "&var-model_name={{ $labels.model_name | urlquery }}&var-role={{ $labels.role | urlquery }}"
    )


def test_without_a_url_the_alert_says_the_command_and_the_path_and_has_no_link(tmp_path: Path) -> None:
    (rule,) = alerts(read(tmp_path, "runbook_url: null\n"), "ConfigReloadFailed")
    assert rule["annotations"].keys() == {"summary", "description", "action", "runbook", "dashboard"}
    assert rule["annotations"]["runbook"] == "llm-serving-exporter runbook LLMServingConfigReloadFailed"
    assert rule["annotations"]["dashboard"] == "/d/llm-serving-exporter"


def test_no_alert_points_to_where_nothing_is_by_default() -> None:
    rendered = rule_document(default_settings())
    assert "://" not in re.sub(r"^ *#.*$", "", rendered, flags=re.MULTILINE)


@check_rows("key", ["runbook_url", "dashboard_url", "queries_url"])
@check_rows("value", ["wiki", "/d/{uid}", "www.example.com/{alert}", "ftp://x/{queries}", "javascript:alert(1)"])
def test_a_link_that_is_no_url_is_refused(key: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"rules.yml: {key}: .* is no URL. Begin it with https:// or http://"):
        read(tmp_path, f"{key}: '{value}'\n")


def test_a_link_that_has_a_query_already_is_asked_for_more(tmp_path: Path) -> None:
    (rule,) = alerts(read(tmp_path, "dashboard_url: https://grafana/d/{uid}?orgId=2\n"), "ConfigReloadFailed")
    assert rule["annotations"]["dashboard_url"] == "https://grafana/d/llm-serving-exporter?orgId=2"
    (rule,) = alerts(read(tmp_path, "dashboard_url: https://grafana/d/{uid}?orgId=2\n"), "RestartLoop")
    assert rule["annotations"]["dashboard_url"] == (
        "https://grafana/d/llm-serving-exporter?orgId=2&var-target={{ $labels.target | urlquery }}"
    )


def test_links_ask_for_the_identity_labels_but_where_there_are_none(tmp_path: Path) -> None:
    settings = read(tmp_path, "identity_labels: [cluster]\n")
    bare = [rule["alert"] for rule in alerts(settings) if "var-cluster={{" not in rule["annotations"]["dashboard"]]
    assert bare == ["LLMServingWatchdog"]


# --- rendering --------------------------------------------------------------------------------------------------------------------------


def test_the_order_of_a_users_file_changes_no_byte(tmp_path: Path) -> None:
    one = read(tmp_path, "labels: {a: x}\nalerts: {PreemptionStorm: {events: 5}, KVSaturated: {for: 1m}}\n")
    other = read(tmp_path, "alerts: {KVSaturated: {for: 1m}, PreemptionStorm: {events: 5}}\nlabels: {a: x}\n")
    assert list(rule_files(one).items()) == list(rule_files(other).items())
    assert list(rule_files(one)) == ["records.yml", "alerts.yml"]


def test_the_operators_objects_have_names_labels_and_the_same_groups(tmp_path: Path) -> None:
    settings = default_settings()
    objects = {name: load_yaml(text) for name, text in prometheus_rules(settings, {"release": "prom"}, "llm").items()}
    plain = {name: load_yaml(text) for name, text in rule_files(settings).items()}
    assert list(objects) == ["records.prometheusrule.yml", "alerts.prometheusrule.yml"]
    for name in ("records", "alerts"):
        found = objects[f"{name}.prometheusrule.yml"]
        assert (found["apiVersion"], found["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
        assert found["metadata"] == {
            "name": f"llm-serving-{name}",
            "labels": {"app.kubernetes.io/name": "llm-serving-exporter", "release": "prom"},
            "namespace": "llm",
        }
        assert found["spec"] == plain[f"{name}.yml"]
    without = load_yaml(prometheus_rules(settings, {}, None)["alerts.prometheusrule.yml"])
    assert "namespace" not in without["metadata"]
