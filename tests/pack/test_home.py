"""What the home dashboard says in each situation: asked of promtool's Prometheus."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_serving_alerts.rules import Check
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.panels import Panel
from llm_serving_dashboards.shared_panels import DEAD, UNKNOWN
from tests.pack.builders import held
from tests.pack.judging import verdict
from tests.pack.rulesets import as_yaml
from tests.support.builders.alertexamples import settings_of
from tests.support.builders.panelqueries import filled
from tests.support.servers.victoriametrics import VictoriaMetrics

pytestmark = pytest.mark.process

Labels = Mapping[str, str]
Samples = list[tuple[Labels, float]]
VERDICT, REST, DOWN = (
    "model:llm_serving_check:verdict",
    "fleet:llm_serving_check:verdict",
    "target:llm_serving_down:min",
)
CHAT, CODE = ({"model_name": name, "role": "unified"} for name in ("chat", "code"))
ALL = "$__all"


def panel(settings: Settings, title: str) -> Panel:
    (found,) = (one for one in build_dashboards(settings)[0].board.panels if one.title == title)
    return found


DEFAULT = default_settings()
SENTENCE, MATRIX = panel(DEFAULT, "What is wrong"), panel(DEFAULT, "Models and checks")


def line(name: str, value: float, labels: Labels | None = None, **more: str) -> dict[str, str]:
    written = ",".join(f'{label}="{text}"' for label, text in {**(labels or {}), **more}.items())
    return {f"{name}{{{written}}}": held((10, value))}


def alert(name: str, severity: str, check: str, began: float | None = None, **labels: str) -> dict[str, str]:
    """An alert that fires, whose condition began to hold at that second; None: nobody wrote down when."""
    about = {"alertname": f"LLMServing{name}", "severity": severity, "check": check, **labels}
    state = {} if began is None else line("ALERTS_FOR_STATE", began, about)
    return line("ALERTS", 1, about, alertstate="firing") | state


WATCHDOG = alert("Watchdog", "none", "exporter", 0.0)
BUILD = line("llm_serving_exporter_build_info", 1, version="1")


def fine(*models: Labels, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Every check of the models is known and fine, but for these."""
    found: dict[str, str] = {}
    for model in models:
        found |= line(DOWN, 0, model, target=model["model_name"])
        for check in Check:
            if check.value not in but:
                found |= line(VERDICT, 0, model, check=check.value)
    return found


def ask(
    folder: Path, asked: list[tuple[str, Samples]], series: Mapping[str, str], rules: list[dict[str, Any]] | None = None
) -> str:
    """promtool's word on queries at minute 5; "" where each answers with these samples."""
    tests = [
        {
            "expr": filled(expression),
            "eval_time": "5m",
            "exp_samples": [
                {
                    "labels": "{" + ", ".join(f'{label}="{text}"' for label, text in labels.items()) + "}",
                    "value": value,
                }
                for labels, value in samples
            ],
        }
        for expression, samples in asked
    ]
    if rules:
        (folder / "rules.yml").write_text(as_yaml({"groups": [{"name": "rules", "rules": rules}]}))
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    document = {
        "rule_files": ["rules.yml"] if rules else [],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": tests}],
    }
    (folder / "test.yml").write_text(as_yaml(document))
    return verdict(folder, "test.yml")


# --- the sentence ----------------------------------------------------------------------------------------------------

TO_EXPORTER = {"board": "llm-serving-exporter", "chosen_model_name": ALL}
PAGES, TICKETS, MORE = "(page), to pagerduty", "(ticket), to tickets", "and so many more"
NOTHING, NOT_KNOWN, NO_MODEL = "Nothing is wrong", "checks are not known", "No exporter tells"
NOT_LOADED, NOT_EVALUATED = "rules are not loaded", "Alerts are not evaluated"


def told(name: str, check: str, board: str, model: str | None, **labels: str) -> dict[str, str]:
    """The labels of a sentence about a model, or about no one."""
    own = {"subject": model, "model_name": model, "chosen_model_name": model} if model else {"chosen_model_name": ALL}
    return {
        "alertname": f"LLMServing{name}",
        "alert": name,
        "check": check,
        "board": f"llm-serving-{board}",
        **own,
        **labels,
    }


def said(folder: Path, series: Mapping[str, str], settings_panel: Panel = SENTENCE, **more: Any) -> Any:
    """What promtool says where exactly these sentences are said: the words of a legend -> its samples."""

    def judge(expected: Mapping[str, Samples]) -> str:
        asked = []
        for query in settings_panel.queries:
            words = [words for words in expected if words in query.legend]
            asked.append((query.expr, expected[words[0]] if words else []))
        assert {*expected} == {words for words in expected for query in settings_panel.queries if words in query.legend}
        return ask(folder, asked, series, **more)

    return judge


BURN = alert("TTFTBurn", "critical", "ttft", 60, **CHAT)
FULL = alert("KVSaturated", "warning", "kv", 30, **CODE)


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        pytest.param(fine(CHAT, CODE) | BUILD | WATCHDOG, {NOTHING: [(TO_EXPORTER, 2)]}, id="nothing is wrong"),
        pytest.param(
            fine(CHAT, CODE) | WATCHDOG | alert("DrillNever", "info", "node_loss", 0, **CHAT),
            {NOTHING: [(TO_EXPORTER, 2)]},
            id="info is not wrong",
        ),
        pytest.param(
            fine(CHAT, CODE)
            | WATCHDOG
            | line("ALERTS", 1, alertname="Theirs", alertstate="firing", severity="critical"),
            {NOTHING: [(TO_EXPORTER, 2)]},
            id="an alert of another pack is not ours",
        ),
        pytest.param(
            fine(CHAT) | fine(CODE, but=("kv", "tail")) | WATCHDOG, {NOT_KNOWN: [(TO_EXPORTER, 2)]}, id="not known"
        ),
        pytest.param(line(DOWN, 0, CHAT, target="a") | WATCHDOG, {NOT_KNOWN: [(TO_EXPORTER, 9)]}, id="no verdict"),
        pytest.param(WATCHDOG, {NO_MODEL: [(TO_EXPORTER, 0)]}, id="no exporter"),
        pytest.param(BUILD, {NOT_LOADED: [(TO_EXPORTER, 0)]}, id="the rules are not loaded"),
        pytest.param(fine(CHAT), {NOT_EVALUATED: [(TO_EXPORTER, 0)]}, id="the Watchdog does not fire"),
        pytest.param(
            fine(CHAT) | WATCHDOG | BURN | FULL,
            {
                # from 60 s on, and for two minutes; of the other the time is in its expression
                PAGES: [(told("TTFTBurn", "ttft", "latency", "chat"), 180_000)],
                TICKETS: [(told("KVSaturated", "kv", "kv", "code"), 30_000)],
            },
            id="a page and a ticket",
        ),
        pytest.param(
            fine(CHAT) | WATCHDOG | BURN | alert("TTFTBurn", "warning", "ttft", 0, **CHAT),
            {PAGES: [(told("TTFTBurn", "ttft", "latency", "chat"), 180_000)]},
            id="the page inhibits the ticket about the same",
        ),
        pytest.param(
            WATCHDOG
            | alert("NodeLost", "critical", "node_loss", 0, node="n1")
            | alert("TargetsDown", "critical", "exporter", 0, node="n1", **CHAT),
            {PAGES: [(told("NodeLost", "node_loss", "node-loss", None, subject="node n1", node="n1"), 300_000)]},
            id="the lost node inhibits what went with it",
        ),
        pytest.param(
            WATCHDOG | alert("ExporterAbsent", "critical", "exporter", 0),
            {PAGES: [(told("ExporterAbsent", "exporter", "exporter", None, subject="the fleet"), 600_000)]},
            id="of no model",
        ),
        pytest.param(
            WATCHDOG | alert("Stalled", "critical", "slo", None, target="t", **CODE),
            {PAGES: [(told("Stalled", "slo", "latency", "code"), -1000)]},
            id="nobody wrote down when it began",
        ),
    ],
)
def test_the_sentence(tmp_path: Path, series: dict[str, str], expected: dict[str, Samples]) -> None:
    assert not said(tmp_path, series)(expected)


def test_of_many_the_worst_three_are_said_and_how_many_more_there_are(tmp_path: Path) -> None:
    series = dict(WATCHDOG)
    for number in range(4):
        model = {"model_name": f"m{number}", "role": "unified"}
        # forty-three replicas of one model are one sentence
        for replica in range(43):
            series |= alert("TargetDown", "warning", "exporter", 10 * number, target=f"{number}-{replica}", **model)
    series |= BURN | alert("Stalled", "critical", "slo", 0, target="t", **CODE)
    tickets = [
        (told("TargetDown", "exporter", "exporter", "m0"), 0.0),
    ]
    assert not said(tmp_path, series)(
        {
            PAGES: [
                (told("Stalled", "slo", "latency", "code"), 60_000),
                (told("TTFTBurn", "ttft", "latency", "chat"), 180_000),
            ],
            TICKETS: tickets,
            MORE: [({"board": "llm-serving-home", "chosen_model_name": ALL}, 3)],
        }
    )


def test_since_when_is_what_prometheus_itself_writes_down(tmp_path: Path) -> None:
    """A rule of the alert's name, `for` and labels, evaluated by Prometheus: pending from minute 1 on, it fires from minute 3 on."""
    labels = {"severity": "critical", "check": "ttft"}
    rule = {"alert": "LLMServingTTFTBurn", "expr": "burning > 0", "for": "2m", "labels": labels}
    series = WATCHDOG | {'burning{model_name="chat",role="unified"}': "0 1x9"}
    expected: dict[str, Samples] = {PAGES: [(told("TTFTBurn", "ttft", "latency", "chat"), 180_000)]}
    assert not said(tmp_path, series, rules=[rule])(expected)


def test_who_is_told_is_what_the_settings_say(tmp_path: Path) -> None:
    settings = settings_of("receivers: {critical: on-call, warning: slack/llm}\nalerts: {Watchdog: off}\n", tmp_path)
    own = panel(settings, SENTENCE.title)
    legends = [query.legend for query in own.queries]
    assert any(": {{alert}} (page), to on-call unless silenced, since" in legend for legend in legends)
    assert any(": {{alert}} (ticket), to slack/llm unless silenced, since" in legend for legend in legends)
    # without a Watchdog nobody can ask whether it fires
    assert not said(tmp_path, fine(CHAT), own)({NOTHING: [(TO_EXPORTER, 1)]})
    assert not said(tmp_path, BUILD, own)({NOT_LOADED: [(TO_EXPORTER, 0)], NO_MODEL: [(TO_EXPORTER, 0)]})


def test_nobody_is_paged_under_a_lower_cap(tmp_path: Path) -> None:
    own = panel(settings_of("severity_cap: warning\n", tmp_path), SENTENCE.title)
    series = fine(CHAT) | WATCHDOG | alert("TTFTBurn", "warning", "ttft", 60, **CHAT)
    assert not said(tmp_path, series, own)({TICKETS: [(told("TTFTBurn", "ttft", "latency", "chat"), 180_000)]})


# --- the matrix ------------------------------------------------------------------------------------------------------


def column(made: Panel, title: str) -> str:
    """The query of a column."""
    (found,) = (one for one in made.columns if one.title == title)
    number = found.source if isinstance(found.source, int) else len(made.queries) - 1
    return made.queries[number].expr


def test_rows_are_sorted_by_how_grave_they_are(tmp_path: Path) -> None:
    """One page weighs more than all tickets, one ticket more than all that is unknown."""
    other = {"model_name": "split", "role": "prefill"}, {"model_name": "split", "role": "decode"}
    series = fine(CHAT, but=("ttft",)) | line(VERDICT, 2, CHAT, check="ttft") | fine(CODE, but=("kv", "cost"))
    series |= line(VERDICT, 1, CODE, check="kv") | fine(other[0]) | line(DOWN, 0, other[1], target="d")
    rows: Samples = [
        ({**CHAT, "name": "chat"}, 10_000),
        ({**CODE, "name": "code"}, 101),
        # without a verdict it has its row as well, and with its role, since there are several
        ({**other[1], "name": "split decode"}, 9),
        ({**other[0], "name": "split prefill"}, 0),
    ]
    assert not ask(tmp_path, [(MATRIX.queries[0].expr, rows)], series)
    assert MATRIX.sorted_by == 0


def test_a_cell_is_the_verdict_or_says_that_none_is_known(tmp_path: Path) -> None:
    gpus = column(MATRIX, "GPUs")
    known = fine(CHAT, CODE, but=("gpu",)) | line(VERDICT, 2, CHAT, check="gpu")
    assert not ask(tmp_path, [(gpus, [(CHAT, 2), (CODE, UNKNOWN)])], known | BUILD)
    assert not ask(tmp_path, [(gpus, [(CHAT, 2), (CODE, DEAD)])], known)


def test_what_belongs_to_no_model_has_a_row_while_something_is_wrong(tmp_path: Path) -> None:
    nobody = {"model_name": ALL, "role": ALL}
    calm = line(REST, 0, check="gpu") | line(REST, 0, check="cost") | fine(CHAT) | BUILD
    wrong = calm | line(REST, 1, check="cost")
    first, gpus, cost = MATRIX.queries[0].expr, column(MATRIX, "GPUs"), column(MATRIX, "cost")
    assert not ask(tmp_path, [(first, [({**CHAT, "name": "chat"}, 0)]), (cost, [(CHAT, 0)])], calm)
    rows: Samples = [({**CHAT, "name": "chat"}, 0), ({**nobody, "name": "no model"}, 100)]
    asked = [(first, rows), (cost, [(CHAT, 0), (nobody, 1)]), (gpus, [(CHAT, 0), (nobody, 0)])]
    assert not ask(tmp_path, asked, wrong)


def test_a_model_without_a_figure_keeps_its_row(tmp_path: Path) -> None:
    """Every query has a row for it, so that Grafana's merge finds the same labels in each; what is absent is NaN."""
    series = fine(CHAT, CODE) | line("model:llm_serving_phase_tokens_per_gpu:rate5m", 900, CHAT, phase="decode")
    series |= line("model:llm_serving_ready_replicas:sum", 3, CHAT) | line(
        "model:llm_serving_desired_replicas:now", 4, CHAT
    )
    series |= line("model:llm_serving_ready_replicas:sum", 2, CODE)
    asked: list[tuple[str, Samples]] = [
        (f"count by (model_name, role) ({query.expr})", [(CHAT, 1), (CODE, 1)]) for query in MATRIX.queries
    ]
    tokens, ready = column(MATRIX, "tok/s/GPU"), column(MATRIX, "ready")
    asked += [(f"({tokens}) >= 0", [(CHAT, 900)])]
    counted = {"ready": "3", "wanted": "4", "replicas": "3 of 4"}
    asked += [(ready, [({**CHAT, **counted}, 1), ({**CODE, "ready": "2", "replicas": "2"}, 1)])]
    assert not ask(tmp_path, asked, series)


def test_fleets_are_told_apart_by_their_identity(tmp_path: Path) -> None:
    settings = settings_of("identity_labels: [cluster, namespace]\n", tmp_path)
    matrix, sentence = panel(settings, MATRIX.title), panel(settings, SENTENCE.title)
    here, there = ({**CHAT, "cluster": name, "namespace": "llm"} for name in ("eu", "us"))
    series = fine(here) | fine(there, but=("kv",)) | line(VERDICT, 2, there, check="kv") | WATCHDOG
    series |= alert("KVSaturated", "warning", "kv", 60, **there) | alert("ExporterAbsent", "critical", "exporter", 0)
    rows: Samples = [
        ({**labels, "name": "chat", "chosen_cluster": name, "chosen_namespace": "llm"}, weight)
        for labels, name, weight in ((here, "eu", 0), (there, "us", 10_000))
    ]
    assert not ask(tmp_path, [(matrix.queries[0].expr, rows)], series)
    place = {"cluster": "us", "namespace": "llm", "chosen_cluster": "us", "chosen_namespace": "llm"}
    everywhere = {"chosen_cluster": ALL, "chosen_namespace": ALL, "subject": "the fleet"}
    expected: dict[str, Samples] = {
        PAGES: [(told("ExporterAbsent", "exporter", "exporter", None, **everywhere), 600_000)],
        TICKETS: [(told("KVSaturated", "kv", "kv", "chat", **place), 60_000)],
    }
    assert not said(tmp_path, series, sentence)(expected)
    assert [one.title for one in matrix.columns][:3] == ["cluster", "namespace", "model"]
    (link,) = (one.link for one in matrix.columns if one.title == "KV")
    assert link is not None
    assert dict(link.chosen)["namespace"] == "${__data.fields.chosen_namespace:percentencode}"


@pytest.mark.seam("VictoriaMetrics")
def test_victoriametrics_says_the_same(tmp_path: Path) -> None:
    """It takes NaN for no value, and names and orders as Prometheus does."""
    series = (
        fine(CHAT) | fine(CODE, but=("kv",)) | line(VERDICT, 2, CHAT, check="ttft") | BUILD | WATCHDOG | BURN | FULL
    )
    series |= line("model:llm_serving_ready_replicas:sum", 3, CHAT)
    series |= line("model:llm_serving_desired_replicas:now", 4, CHAT)
    now = 1_704_294_000
    samples = [
        f"{name} {values.partition('+')[0]} {at * 1000}\n" for name, values in series.items() for at in (now - 60, now)
    ]
    with VictoriaMetrics(tmp_path / "database") as database:
        database.take("".join(samples).encode())
        database.flush()

        def say(expression: str) -> list[tuple[str, float]]:
            found = database.query(filled(expression), now)
            return [(one["metric"].get("model_name", ""), float(one["value"][1])) for one in found]

        said = {query.legend: say(query.expr) for query in SENTENCE.queries}
        assert [one for one in said.values() if one] == [[("chat", 180_000)], [("code", 30_000)]]
        assert {*say(MATRIX.queries[0].expr)} == {("chat", 10_000), ("code", 1)}
        assert {*say(column(MATRIX, "KV"))} == {("chat", 0), ("code", UNKNOWN)}
        (ready,) = database.query(filled(column(MATRIX, "ready")), now)
        assert ready["metric"]["replicas"] == "3 of 4"
