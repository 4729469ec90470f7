"""Rules of settings other than the defaults, judged by promtool as well."""

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from llm_serving_alerts.render import rule_files
from llm_serving_alerts.settings_file import read_settings
from tests.pack.builders import Grows, counter, engine, firing, held, of_model, target, told
from tests.pack.cases_ttft import slo_events
from tests.pack.judging import promtool, verdict, write_narrowed
from tests.pack.promtool import Case, Firing, Sampled, document
from tests.pack.rulesets import PRESENCE, keep_groups
from tests.support.waiting import PATIENCE_SECONDS
from tests.support.yaml_text import load_yaml

IDENTITY = "identity_labels: [cluster, namespace]\n"


def judge(
    folder: Path,
    settings: str,
    groups: Iterable[str],
    cases: Iterable[Case] = (),
    records: Iterable[Sampled] = (),
    evaluated: str = "1m",
) -> None:
    """Renders the settings and lets promtool judge the cases over these groups of the rules; all of them take many times as long."""
    config = folder / "settings.yml"
    config.write_text(settings)
    wanted = tuple(groups)
    texts = rule_files(read_settings(str(config))[0])
    files = {name: keep_groups(load_yaml(text)["groups"], wanted) for name, text in texts.items()}
    write_narrowed(folder, "test.yml", document(cases, records, evaluated), files)
    assert not verdict(folder, "test.yml")


# --- identity labels ----------------------------------------------------------------------------------------------------------------------


def of_cluster(cluster: str, series: Mapping[str, str]) -> dict[str, str]:
    return {key.replace("{", f'{{cluster="{cluster}",namespace="llm",'): text for key, text in series.items()}


def in_eu(alert: Firing, prefix: str = "eu llm ") -> Firing:
    """The same alert with the labels, the words and the link of cluster eu."""
    notes = dict(alert.annotations)
    notes["summary"] = prefix + notes["summary"]
    notes["dashboard"] = notes["dashboard"].replace("?", "?var-cluster=eu&var-namespace=llm&")
    return Firing({"cluster": "eu", "namespace": "llm", **alert.labels}, notes)


@pytest.mark.e2e
def test_what_is_bad_in_one_cluster_is_neither_hidden_nor_shared_by_the_same_model_in_another(tmp_path: Path) -> None:
    down = firing(
        "TargetsDown",
        {"model_name": "chat", "role": "unified"},
        "chat (unified): 100% of its replicas are down",
        "Replicas wanted: unknown, known: 1. 100% of them do not answer, neither loading nor asleep.",
    )
    burn = firing(
        "SLOBurn",
        {"model_name": "chat", "role": "unified", "slo": "errors"},
        "chat (unified): errors burns its budget 20 times too fast",
        "At this rate the error budget of 30d is spent 20 times too fast; bad events: over 1h 2%, over 1d 2%.",
        severity="critical",
    )
    lost = firing(
        "SignalLost",
        {"model_name": "chat", "role": "unified", "runtime": "vllm"},
        "chat (unified), vllm: signals lost that all replicas had: 1",
        "Of 1 replicas: version 0.32.0 lacks engine_steps_total (not_exported) on 1; alerts and panels that depend on them are silent, not "
        "green.",
    )
    available = 'llm_serving_signal_available{target="chat-0",signal="engine_steps_total",reason='

    def events(good: float, bad: float) -> dict[str, str]:
        return slo_events(engine("chat"), "errors", counter(Grows(40, good)), counter(Grows(40, bad)), "finished")

    def world(eu: Mapping[str, str], us: Mapping[str, str]) -> dict[str, str]:
        there = target("chat")
        return {**of_cluster("eu", {**there, **eu}), **of_cluster("us", {**there, **us})}

    judge(
        tmp_path,
        IDENTITY,
        ("identity", "targets", "workloads", "signals", *PRESENCE, "traffic", "slo", "slo.alerts", "exporter.alerts"),
        (
            # merged, one of two replicas would be down, 2 of 1,100 answers bad
            Case(
                "TargetsDown",
                "one of two clusters",
                world(target("chat", "", (12, "ready"), (38, "down")), target("chat")),
                {"20m": in_eu(down)},
            ),
            Case("SLOBurn", "one of two clusters", world(events(98, 2), events(1000, 0)), {"12m": in_eu(burn)}),
            Case(
                "SignalLost",
                "one of two clusters",
                world(
                    {
                        **target("chat"),
                        f'{available}""}}': f"{held((12, 1))} stale",
                        f'{available}"not_exported"}}': f"_x12 {held((30, 0))}",
                    },
                    {**target("chat"), f'{available}""}}': held((42, 1))},
                ),
                {"33m": in_eu(lost)},
            ),
        ),
    )


def test_every_grouping_and_matching_of_every_rule_keeps_the_labels_that_tell_equal_targets_apart(
    tmp_path: Path,
) -> None:
    config = tmp_path / "settings.yml"
    config.write_text(
        "identity_labels: [cluster, site]\nexternal_labels: [cluster, site]\n"
        "node_loss: {workloads: [{model_name: chat, namespace: a, kind: deployment, name: b}]}\ndrill: {max_age: 30d}\n"
    )
    rules = [
        rule
        for text in rule_files(read_settings(str(config))[0]).values()
        for group in load_yaml(text)["groups"]
        for rule in group["rules"]
    ]
    groupings = 0
    for rule in rules:
        for labels in re.findall(r"\b(?:by|on) \(([^)]*)\)", rule["expr"]):
            # one asks whether a target's own series differ in just these labels
            if rule.get("alert") == "LLMServingLabelsRenamed" and labels.endswith("job, instance, target"):
                continue
            # the other one asks whether there is any exporter at all
            if rule.get("alert") == "LLMServingExporterAbsent" and labels == "":
                continue
            # the Watchdog has no label
            if rule.get("record", "").endswith(":llm_serving_check:verdict") and labels == "":
                continue
            assert labels.startswith("cluster, site"), (rule, labels)
            groupings += 1
        # queries of texts ask for the firing alert's own cluster, and may group what is left as they like
        for selector in re.findall(r"\{([^{}]*%(?:\[\d\])?q[^{}]*)\}", " ".join(rule.get("annotations", {}).values())):
            assert "cluster=%" in selector, (rule, selector)
            assert "site=%" in selector, (rule, selector)
        # an aggregation without a grouping is one over all clusters
        assert not re.findall(r"\b(?:sum|max|min|count|avg|topk|quantile) ?\((?!\$)", rule["expr"]), rule
    assert groupings > 400


# --- wanted replicas ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_replicas_are_wanted_by_kubernetes_before_the_configuration(tmp_path: Path) -> None:
    settings = r"""
node_loss:
  workloads:
    - {model_name: chat, namespace: llm, kind: deployment, name: chat}
    - {model_name: 'a "$1" \b', role: decode, namespace: llm, kind: statefulset, name: wide, pods_per_replica: 4}
    - {model_name: code, namespace: llm, kind: deployment, name: code-a}
    - {model_name: code, namespace: llm, kind: deployment, name: code-b}
    - {model_name: lost, namespace: llm, kind: deployment, name: lost}
    - {model_name: renamed, namespace: llm, kind: deployment, name: renamed}
"""
    deployment, statefulset = "kube_deployment_spec_replicas", "kube_statefulset_replicas"
    series = {
        f'{deployment}{{namespace="llm",deployment="chat"}}': held((20, 3)),
        f'{deployment}{{namespace="other",deployment="chat"}}': held((20, 9)),
        f'{statefulset}{{namespace="llm",statefulset="wide"}}': held((20, 8)),
        f'{deployment}{{namespace="llm",deployment="code-a"}}': held((20, 2)),
        f'{deployment}{{namespace="llm",deployment="code-b"}}': held((20, 5)),
        # of a scrape without honor_labels, of a kube-state-metrics that stands in that namespace itself
        f'{deployment}{{namespace="llm",exported_namespace="llm",deployment="renamed"}}': held((20, 4)),
        f'{deployment}{{namespace="llm",exported_namespace="other",deployment="renamed"}}': held((20, 8)),
        # the configuration is asked where Kubernetes does not say
        'llm_serving_expected_replicas{model_name="chat",role="unified"}': held((20, 7)),
        'llm_serving_expected_replicas{model_name="lost",role="unified"}': held((20, 6)),
    }
    wanted = {
        '{model_name="chat", role="unified"}': 3,
        # 8 pods, 4 a replica
        r'{model_name="a \"$1\" \\b", role="decode"}': 2,
        '{model_name="code", role="unified"}': 7,
        '{model_name="lost", role="unified"}': 6,
        '{model_name="renamed", role="unified"}': 4,
    }
    judge(
        tmp_path,
        settings,
        ("targets", *PRESENCE, "traffic", "node-loss"),
        records=(Sampled("wanted replicas", series, "12m", {"model:llm_serving_desired_replicas:max * 1": wanted}),),
    )


@pytest.mark.process
def test_what_kubernetes_wants_has_the_identity_labels_of_the_workloads_targets(tmp_path: Path) -> None:
    settings = """
identity_labels: [cluster, namespace, team]
node_loss:
  workloads:
    - {model_name: chat, namespace: a, kind: deployment, name: chat, labels: {team: x}}
    - {model_name: chat, namespace: b, kind: deployment, name: chat, labels: {team: y}}
"""
    wanted, expected = "kube_deployment_spec_replicas", "llm_serving_expected_replicas"
    series = {
        f'{wanted}{{cluster="eu",namespace="a",deployment="chat"}}': held((20, 3)),
        f'{wanted}{{cluster="eu",namespace="b",deployment="chat"}}': held((20, 5)),
        # without its namespace it would be anybody's
        f'{expected}{{cluster="us",namespace="monitoring",exported_namespace="b",team="y",{of_model("chat")}}}': held(
            (20, 7)
        ),
    }
    labels = '{{cluster="{}", namespace="{}", team="{}", model_name="chat", role="unified"}}'
    answers = {labels.format("eu", "a", "x"): 3, labels.format("eu", "b", "y"): 5, labels.format("us", "b", "y"): 7}
    judge(
        tmp_path,
        settings,
        ("targets", *PRESENCE),
        records=(Sampled("wanted replicas", series, "12m", {"model:llm_serving_desired_replicas:max * 1": answers}),),
    )


# --- baselines since a moment -------------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_baseline_since_a_moment_knows_nothing_older_and_asks_for_no_history(tmp_path: Path) -> None:
    work = 'model:llm_serving_reference_work_per_replica:rate5m_waiting{model_name="%s",role="unified"}'
    series = {
        # two days at 0.8, then the model was changed: a day at 0.4, and twelve hours
        work % "chat": held((576, 0.8), (432, 0.4)),
        work % "late": f"_x576 _x414 {held((17, 0.4))}",
    }
    expected = {"model:llm_serving_reference_work_per_replica:p90_7d * 1": {'{model_name="chat", role="unified"}': 0.4}}
    sampled = Sampled("since the third day", series, "84h2m", expected, interval="5m", doubled=False)
    judge(tmp_path, "baseline: {since: 1970-01-03T00:00:00Z}", ("baselines",), records=(sampled,), evaluated="6h")


@pytest.mark.process
def test_what_tokens_usually_cost_since_a_moment_knows_no_older_price(tmp_path: Path) -> None:
    compared = 'model:llm_serving_cost_usd_per_million_tokens:ratio6h_compared{model_name="chat",role="unified"}'
    # two days at 2 USD, then dearer GPUs: twelve hours at 3 are history enough
    expected = {
        "model:llm_serving_cost_usd_per_million_tokens:median7d * 1": {'{model_name="chat", role="unified"}': 3}
    }
    sampled = Sampled(
        "since the third day", {compared: held((576, 2), (150, 3))}, "60h2m", expected, interval="5m", doubled=False
    )
    judge(tmp_path, "baseline: {since: 1970-01-03T00:00:00Z}", ("cost.per-token",), records=(sampled,), evaluated="6h")


# --- cost by cluster ----------------------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_each_cluster_has_its_own_spend_and_its_own_budget(tmp_path: Path) -> None:
    """The same target's name in both: a pair of exporters within a cluster, none across."""

    def spent(cluster: str, usd: float, budget: float) -> dict[str, str]:
        counted = f'llm_serving_cost_usd_total{{{engine("chat")},phase="idle",rate="a",method="roofline"}}'
        series = {counted: counter(Grows(60, usd / 12)), "llm_serving_cost_budget_usd_per_month{}": held((61, budget))}
        there = {'llm_serving_target_info{target="chat-0"}': held((61, 1))}
        labelled = of_cluster(cluster, told({**series, **there}))
        return {key.replace("{,", "{").replace(",}", "}"): text for key, text in labelled.items()}

    fires = firing(
        "BudgetExceeded",
        {},
        "a month at this pace costs 2190 USD, more than the budget",
        "The last 7 days make 2190 USD in a month of 730 hours, GPU time and energy. The budget is 2000 USD. Hours of the week that were "
        "seen: 4.",
    )
    # the budget is of all namespaces
    eu = {
        "summary": f"eu {fires.annotations['summary']}",
        "dashboard": f"{fires.annotations['dashboard']}?var-cluster=eu",
    }
    judge(
        tmp_path,
        IDENTITY + "alerts: {BudgetExceeded: {hours: 3, for: 30m}}\n",
        ("identity", "cost.hours", "cost.shares", "cost.alerts"),
        (
            Case(
                "BudgetExceeded",
                "3 USD an hour of 2000 a month, and 2 of 1900; together 3650 would be above both",
                {**spent("eu", 3, 2000), **spent("us", 2, 1900)},
                {"4h32m": Firing({"cluster": "eu", **fires.labels}, {**fires.annotations, **eu})},
                interval="5m",
            ),
        ),
        evaluated="2m",
    )


# --- the whole pack under other settings --------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(
    "settings",
    [
        "",
        IDENTITY + "labels: {team: inference}\nseverity_cap: warning\ndrill: {max_age: 30d}\n",
        "slo: {itl: {threshold: 100ms}, e2e: {threshold: 40s}}\nbaseline: {since: 2026-01-31T08:00:00Z}\n",
        "burn: {fast: [{long: 90m, short: 15m, factor: 7}]}\nslo: {period: 28d, ttft: {threshold: off}}\n",
    ],
)
def test_promtool_and_vmalert_take_the_rules(tmp_path: Path, settings: str) -> None:
    config = tmp_path / "settings.yml"
    config.write_text(settings)
    files = rule_files(read_settings(str(config))[0])
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    commands = [[promtool(), "check", "rules", *files]]
    # a peer of Prometheus that not every machine has
    if vmalert := shutil.which("vmalert"):
        commands += [[vmalert, "-dryRun", f"-rule={name}"] for name in files]
    for command in commands:
        judged = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
        assert judged.returncode == 0, judged.stdout + judged.stderr
