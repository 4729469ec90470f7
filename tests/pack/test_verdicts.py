"""The verdict of each check, as promtool evaluates the rules: what turns it, what does not, and where nobody knows."""

from pathlib import Path
from typing import Any

import pytest

from llm_serving_alerts.alerting.verdicts import REST, VERDICT
from llm_serving_alerts.render import ALERTS, RECORDS, rule_files
from llm_serving_alerts.rules import Check
from llm_serving_alerts.settings_file import read_settings
from tests.pack.builders import held
from tests.pack.judging import ask, expect
from tests.pack.promtool import Case
from tests.pack.rulesets import RULESETS, belongs, keep_groups
from tests.pack.write import CHECKS
from tests.support.quick import keep_quick
from tests.support.yaml_text import load_yaml

pytestmark = pytest.mark.process

FIVE = (Check.PHASES, Check.TTFT, Check.KV, Check.TAIL, Check.NODE_LOSS)
LOUDNESS = {"info": 0, "warning": 1, "critical": 2}
# of what a pack of somebody else's fires
OTHERS = 'ALERTS{alertname="TheirKVAlert",alertstate="firing",severity="critical",check="kv",model_name="chat",role="unified"}'
ABOUT_CHAT = 'model_name="chat",role="unified"'


def groups_of(folder: Path, settings: str) -> dict[str, list[dict[str, Any]]]:
    """All groups of both rule files."""
    path = folder / "settings.yml"
    path.write_text(settings)
    files = rule_files(read_settings(str(path) if settings.strip() else None)[0])
    return {kind: load_yaml(files[f"{kind}.yml"])["groups"] for kind in (RECORDS, ALERTS)}


def judge(folder: Path, groups: dict[str, list[dict[str, Any]]], series: dict[str, str], asked: dict[str, Any]) -> str:
    """promtool's word. `groups`: of both rule files. `asked`: PromQL with the moment -> its samples."""
    names = [group["name"] for found in groups.values() for group in found]
    # a verdict is of the alerts as they were evaluated last
    order = sorted(names, key=lambda name: name == "llm-serving.verdicts")
    questions = [expect(expression, at, samples) for (expression, at), samples in asked.items()]
    return ask(folder, series, questions, {f"{kind}.yml": found for kind, found in groups.items()}, order=order)


def loudest(check: Check) -> Case:
    """The first case of a check that fires as loudly as any."""
    firing = [
        (-LOUDNESS[one.labels["severity"]], number)
        for number, case in enumerate(CHECKS[check.value])
        if case.interval == "1m"
        for _, found in case.looks
        for one in found
    ]
    return CHECKS[check.value][min(firing)[1]]


def of_case(folder: Path, check: Check, case: Case, settings: str = "") -> dict[str, list[dict[str, Any]]]:
    rules = RULESETS[case.rules or check.value]
    found = groups_of(folder, f"{rules.settings}\n{settings}")
    recorded = not case.records or any(":" in name.partition("{")[0] for name in case.series)
    records = [] if recorded else keep_groups(found[RECORDS], rules.groups)
    wanted = (*rules.groups, "watchdog")
    alerts = [group for group in found[ALERTS] if belongs(group["name"].removeprefix("llm-serving."), wanted)]
    return {RECORDS: [*records, *keep_groups(found[RECORDS], ["verdicts"])], ALERTS: alerts}


@pytest.mark.parametrize("check", keep_quick(FIVE, lambda check: check is not Check.NODE_LOSS))
def test_an_alert_of_each_of_the_five_checks_turns_its_verdict(tmp_path: Path, check: Check) -> None:
    case = loudest(check)
    asked: dict[Any, Any] = {}
    for at, found in case.looks:
        by_model: dict[tuple[str, str], int] = {}
        for one in found:
            of = one.labels["model_name"], one.labels["role"]
            by_model[of] = max(by_model.get(of, 0), LOUDNESS[one.labels["severity"]])
        for (model, role), loudness in by_model.items():
            selected = f'{VERDICT}{{check="{check.value}",model_name="{model}",role="{role}"}}'
            asked[f"max({selected})", at] = {"{}": loudness}
    # phases, ttft and node_loss page by default; a full cache and a long tail are tickets
    expected = 1 if check in (Check.KV, Check.TAIL) else 2
    assert expected in {value for samples in asked.values() for value in samples.values()}
    assert not judge(tmp_path, of_case(tmp_path, check, case), dict(case.series), asked)


@pytest.mark.parametrize("check", [Check.KV, Check.TAIL])
def test_a_ticket_that_the_settings_make_a_page_turns_it_red(tmp_path: Path, check: Check) -> None:
    case = loudest(check)
    at, (one, *_) = next((at, found) for at, found in case.looks if found)
    groups = of_case(tmp_path, check, case, f"alerts: {{{case.alert}: {{severity: critical}}}}")
    of = f'check="{check.value}",model_name="{one.labels["model_name"]}",role="{one.labels["role"]}"'
    assert not judge(tmp_path, groups, dict(case.series), {(f"max({VERDICT}{{{of}}})", at): {"{}": 2}})


def verdicts_of(folder: Path, settings: str = "") -> dict[str, list[dict[str, Any]]]:
    """The verdicts alone, over alerts as somebody has evaluated them."""
    return {RECORDS: keep_groups(groups_of(folder, settings)[RECORDS], ["verdicts"])}


def firing(name: str, severity: str, check: str, **labels: str) -> str:
    about = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return f'ALERTS{{alertname="LLMServing{name}",alertstate="firing",severity="{severity}",check="{check}",{about}}}'


WATCHDOG = {firing("Watchdog", "none", "exporter"): held((30, 1))}
KV = {f"model:llm_serving_kv_cache_usage_ratio:max{{{ABOUT_CHAT}}}": held((10, 0.5), (1, "stale"))}
GOOD = {f'{VERDICT}{{check="kv", model_name="chat", role="unified"}}': 0}
ASKED = f'{VERDICT}{{check="kv"}}'


def test_good_is_said_only_while_its_inputs_are_there(tmp_path: Path) -> None:
    asked = {(ASKED, "5m"): GOOD, (ASKED, "12m"): {}}
    assert not judge(tmp_path, verdicts_of(tmp_path), KV | WATCHDOG, asked)


def test_good_is_said_only_while_alerts_are_evaluated(tmp_path: Path) -> None:
    assert not judge(tmp_path, verdicts_of(tmp_path), KV, {(ASKED, "5m"): {}})


def test_good_is_not_said_where_rules_fail(tmp_path: Path) -> None:
    failing = {firing("RulesFailing", "warning", "exporter", instance="prometheus:9090"): held((10, 1))}
    asked = {(ASKED, "5m"): {}, (f'{REST}{{check="exporter"}}', "5m"): {f'{REST}{{check="exporter"}}': 1}}
    assert not judge(tmp_path, verdicts_of(tmp_path), KV | WATCHDOG | failing, asked)


def test_alerts_of_other_packs_and_those_that_are_off_do_not_count(tmp_path: Path) -> None:
    off = firing("PreemptionStorm", "warning", "kv", model_name="chat", role="unified")
    series = KV | WATCHDOG | {OTHERS: held((10, 1)), off: held((10, 1))}
    assert not judge(tmp_path, verdicts_of(tmp_path, "alerts: {PreemptionStorm: off}"), series, {(ASKED, "5m"): GOOD})
    ticket = dict.fromkeys(GOOD, 1)
    assert not judge(tmp_path, verdicts_of(tmp_path), series, {(ASKED, "5m"): ticket})


def test_a_page_below_the_cap_is_a_ticket(tmp_path: Path) -> None:
    settings = "severity_cap: warning"
    alert = firing("TTFTBurn", "warning", "ttft", model_name="chat", role="unified", slo="ttft")
    said = {(f'{VERDICT}{{check="ttft"}}', "5m"): {f'{VERDICT}{{check="ttft", model_name="chat", role="unified"}}': 1}}
    assert not judge(tmp_path, verdicts_of(tmp_path, settings), {alert: held((10, 1))}, said)


def test_a_check_without_alerts_is_not_known(tmp_path: Path) -> None:
    groups = verdicts_of(tmp_path, "alerts: {LongContextFewFit: off}")
    observed = {f"model:llm_serving_long_context_requests_observed:max{{{ABOUT_CHAT}}}": held((10, 500))}
    assert not judge(tmp_path, groups, observed | WATCHDOG, {(f'{VERDICT}{{check="tail"}}', "5m"): {}})


def test_what_a_card_does_counts_for_the_models_on_it(tmp_path: Path) -> None:
    series = {
        firing("GPUFailed", "critical", "gpu", gpu="GPU-1", node="n1"): held((10, 1)),
        firing("GPUSlowdown", "warning", "gpu", gpu="GPU-9", node="n9"): held((10, 1)),
        firing("RestartLoop", "warning", "exporter", target="code-0"): held((10, 1)),
        'llm_serving_gpu_target_info{gpu="GPU-1",target="chat-0"}': held((10, 1)),
        'llm_serving_gpu_target_info{gpu="GPU-2",target="code-0"}': held((10, 1)),
        'llm_serving_gpu_up{gpu="GPU-1"}': held((10, 1)),
        'llm_serving_gpu_up{gpu="GPU-2"}': held((10, 1)),
        f'target:llm_serving_down:min{{target="chat-0",{ABOUT_CHAT}}}': held((10, 0)),
        'target:llm_serving_down:min{target="code-0",model_name="code",role="unified"}': held((10, 0)),
        "llm_serving_exporter_build_info": held((10, 1)),
    }
    asked = {
        (f'{VERDICT}{{check="gpu"}}', "5m"): {
            f'{VERDICT}{{check="gpu", model_name="chat", role="unified"}}': 2,
            f'{VERDICT}{{check="gpu", model_name="code", role="unified"}}': 0,
        },
        (f'{VERDICT}{{check="exporter"}}', "5m"): {
            f'{VERDICT}{{check="exporter", model_name="chat", role="unified"}}': 0,
            f'{VERDICT}{{check="exporter", model_name="code", role="unified"}}': 1,
        },
        # the other card is nobody's
        (REST, "5m"): {
            f'{REST}{{check="{check}"}}': loudness
            for check, loudness in (("cost", 0), ("gpu", 1), ("exporter", 0), ("node_loss", 0))
        },
    }  # fmt: skip
    assert not judge(tmp_path, verdicts_of(tmp_path), series | WATCHDOG, asked)
