"""What the home dashboard says in each situation: asked of promtool's Prometheus."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from llm_serving_alerts.rules import Check
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.firing import BEFORE_RANGE, NO_TIME
from llm_serving_dashboards.first_screen import list_choices
from llm_serving_dashboards.panels import Panel
from llm_serving_dashboards.shared_panels import DEAD, UNKNOWN
from tests.pack import judging
from tests.pack.builders import held
from tests.pack.judging import expect, write_labels
from tests.support.builders.alertexamples import settings_of
from tests.support.builders.panelqueries import filled
from tests.support.servers.victoriametrics import VictoriaMetrics

pytestmark = pytest.mark.process

Labels = Mapping[str, str]
Samples = list[tuple[Labels, float]]
VERDICT, REST, DOWN, ALIVE = (
    "model:llm_serving_check:verdict",
    "fleet:llm_serving_check:verdict",
    "target:llm_serving_down:min",
    "model:llm_serving_alive_targets:sum",
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


def there(model: Labels, target: str) -> dict[str, str]:
    """The one target of a model, which is up."""
    return line(DOWN, 0, model, target=target) | line(ALIVE, 1, model)


def fine(*models: Labels, but: tuple[str, ...] = ()) -> dict[str, str]:
    """Every check of the models is known and fine, but for these."""
    found: dict[str, str] = {}
    for model in models:
        found |= there(model, model["model_name"])
        for check in Check:
            if check.value not in but:
                found |= line(VERDICT, 0, model, check=check.value)
    return found


def ask(
    folder: Path,
    asked: list[tuple[str, Samples]],
    series: Mapping[str, str],
    rules: list[dict[str, Any]] | None = None,
    at: str = "5m",
) -> str:
    """promtool's word on queries at a time; "" where each answers with these samples."""
    questions = [
        expect(filled(expression), at, {write_labels(labels): value for labels, value in samples})
        for expression, samples in asked
    ]
    return judging.ask(folder, series, questions, {"rules.yml": [{"name": "rules", "rules": rules}]} if rules else None)


# --- the sentence ----------------------------------------------------------------------------------------------------

# what a row of the panel shows, and what its link reads
SAID = ("grave", "what", "board", "chosen_model_name", "chosen_role", "chosen_target", "chosen_node", "chosen_gpu")
NOTHING, NOT_KNOWN = (
    "Nothing is wrong, every check is known. Models: {}",
    "Nothing fires, but not every check is known. Unknown: {}",
)
NO_MODEL = "No exporter reports a model"
NOT_LOADED = "The rules are not loaded, nothing is known"
NOT_EVALUATED = "Alerts are not evaluated, nobody would be told: the Watchdog does not fire"
MORE = "and {} more"


def row(grave: str, what: str, milliseconds: float, board: str, **chosen: str) -> tuple[Labels, float]:
    """A sentence: how grave, its words, since when, the dashboard that it leads to and what is chosen there; all the rest is."""
    own = dict.fromkeys(SAID[3:], ALL) | {f"chosen_{name}": value for name, value in chosen.items()}
    return {"grave": grave, "what": what, "board": f"llm-serving-{board}", **own}, milliseconds


def rest(grave: str, words: str, number: int = 0, board: str = "exporter") -> tuple[Labels, float]:
    """A sentence about no alert."""
    return row(grave, words.format(number), NO_TIME, board)


def said(
    folder: Path, series: Mapping[str, str], expected: Samples, settings_panel: Panel = SENTENCE, **more: Any
) -> str:
    """promtool's word on whether exactly these sentences are said."""
    every = " or ".join(f"({query.expr})" for query in settings_panel.queries)
    labels = ", ".join(name for name in (*SAID, "cluster", "namespace"))
    # alerts have labels of their own beside these
    return ask(folder, [(f"max by ({labels}) ({every})", expected)], series, **more)


BURN = alert("TTFTBurn", "critical", "ttft", 60, slo="ttft", **CHAT)
BURN_TOLD = row("page", "chat: TTFTBurn objective ttft", 180_000, "latency", model_name="chat", role="unified")
FULL = alert("KVSaturated", "warning", "kv", 30, target="code-1", engine="0", **CODE)
FULL_TOLD = row("ticket", "code: KVSaturated code-1", 30_000, "kv", model_name="code", role="unified", target="code-1")


@pytest.mark.parametrize(
    ("series", "expected"),
    [
        pytest.param(fine(CHAT, CODE) | BUILD | WATCHDOG, [rest("fine", NOTHING, 2)], id="nothing is wrong"),
        pytest.param(
            fine(CHAT, CODE) | WATCHDOG | alert("DrillNever", "info", "node_loss", 0, **CHAT),
            [rest("fine", NOTHING, 2)],
            id="info is not wrong",
        ),
        pytest.param(
            fine(CHAT, CODE)
            | WATCHDOG
            | line("ALERTS", 1, alertname="Theirs", alertstate="firing", severity="critical"),
            [rest("fine", NOTHING, 2)],
            id="an alert of another pack is not ours",
        ),
        pytest.param(
            fine(CHAT) | fine(CODE, but=("kv", "tail")) | WATCHDOG, [rest("unknown", NOT_KNOWN, 2)], id="not known"
        ),
        pytest.param(there(CHAT, "a") | WATCHDOG, [rest("unknown", NOT_KNOWN, 9)], id="no verdict"),
        pytest.param(WATCHDOG, [rest("blind", NO_MODEL)], id="no exporter"),
        pytest.param(BUILD, [rest("blind", NOT_LOADED)], id="the rules are not loaded"),
        pytest.param(fine(CHAT), [rest("blind", NOT_EVALUATED)], id="the Watchdog does not fire"),
        # from 60 s on, and for two minutes; of the other the time is in its expression
        pytest.param(fine(CHAT) | WATCHDOG | BURN | FULL, [BURN_TOLD, FULL_TOLD], id="a page and a ticket"),
        pytest.param(
            fine(CHAT) | WATCHDOG | BURN | alert("TTFTBurn", "warning", "ttft", 0, slo="ttft", **CHAT),
            [BURN_TOLD],
            id="the page inhibits the ticket about the same",
        ),
        pytest.param(
            WATCHDOG
            | alert("NodeLost", "critical", "node_loss", 0, node="n1")
            | alert("TargetsDown", "critical", "exporter", 0, node="n1", **CHAT),
            [row("page", "node n1: NodeLost", 300_000, "node-loss", node="n1")],
            id="the lost node inhibits what went with it",
        ),
        pytest.param(
            WATCHDOG | alert("GPUFailed", "critical", "gpu", 0, gpu="GPU-0123abcd-4567-89ab", gpu_name="H100", node="n1"),
            [row("page", "node n1: GPUFailed card GPU-0123abcd-4567", 0, "gpu", node="n1", gpu="GPU-0123abcd-4567-89ab")],
            id="a card is named",
        ),
        pytest.param(
            WATCHDOG | alert("ReplicaLost", "warning", "node_loss", 0, node="n1", **CHAT),
            [
                row(
                    "ticket", "chat: ReplicaLost on node n1", 600_000, "node-loss", model_name="chat", role="unified", node="n1"
                )
            ],
            id="the node of a model is named",
        ),
        pytest.param(
            WATCHDOG | alert("ExporterAbsent", "critical", "exporter", 0),
            [row("page", "the fleet: ExporterAbsent", 600_000, "exporter")],
            id="of no model",
        ),
        pytest.param(
            WATCHDOG | alert("Stalled", "critical", "slo", None, target="t", **CODE),
            [row("page", "code: Stalled t", 1000 * BEFORE_RANGE, "replica", model_name="code", role="unified", target="t")],
            id="nobody wrote down when it began, and it is no alert that fires at once",
        ),
    ],
)  # fmt: skip
def test_the_sentence(tmp_path: Path, series: dict[str, str], expected: Samples) -> None:
    assert not said(tmp_path, series, expected)


def test_of_many_the_worst_three_are_said_and_how_many_more_there_are(tmp_path: Path) -> None:
    series = dict(WATCHDOG)
    for number in range(4):
        model = {"model_name": f"m{number}", "role": "unified"}
        # forty-three replicas of one model are one sentence, which names the first of them
        for replica in range(43):
            began = 10 * number + (replica > 0)
            series |= alert("TargetDown", "warning", "exporter", began, target=f"{number}-{replica}", **model)
    series |= BURN | alert("Stalled", "critical", "slo", 0, target="t", **CODE)
    expected = [
        row("page", "code: Stalled t", 60_000, "replica", model_name="code", role="unified", target="t"),
        BURN_TOLD,
        row("ticket", "m0: TargetDown 0-0 and 42 more", 0.0, "exporter", model_name="m0", role="unified", target="0-0"),
        rest("more", MORE, 3, "home"),
    ]
    assert not said(tmp_path, series, expected)


def test_since_when_is_what_prometheus_itself_writes_down(tmp_path: Path) -> None:
    """A rule of the alert's name, `for` and labels, evaluated by Prometheus: pending from minute 1 on, it fires from minute 3 on."""
    labels = {"severity": "critical", "check": "ttft", "slo": "ttft"}
    rule = {"alert": "LLMServingTTFTBurn", "expr": "burning > 0", "for": "2m", "labels": labels}
    series = WATCHDOG | {'burning{model_name="chat",role="unified"}': "0 1x9"}
    assert not said(tmp_path, series, [BURN_TOLD], rules=[rule])


def test_without_a_word_of_when_an_alert_began_it_is_since_it_was_first_seen(tmp_path: Path) -> None:
    """vmalert writes none of alerts that fire at once. An hour is looked at: of what fired before it no more is known."""
    series: dict[str, str] = {}
    for number, values in enumerate(("1x90", "_x40 1x50")):
        card = {"gpu": f"GPU-{number}", "gpu_name": "H100", "node": f"n{number}"}
        fires = alert("GPUFailed", "critical", "gpu", None, **card)
        series |= dict.fromkeys(fires, values)
    expected = [
        row(
            "page", f"node n{number}: GPUFailed card GPU-{number}", began, "gpu", node=f"n{number}", gpu=f"GPU-{number}"
        )
        for number, began in ((0, 1000 * BEFORE_RANGE), (1, 2_400_000))
    ]
    watchdog = dict.fromkeys(WATCHDOG, "1x90")
    assert not said(tmp_path, watchdog | series, expected, at="80m")


def test_who_is_told_is_what_the_settings_say(tmp_path: Path) -> None:
    settings = settings_of("receivers: {critical: on-call, warning: slack/llm}\nalerts: {Watchdog: off}\n", tmp_path)
    own = panel(settings, SENTENCE.title)
    pages, tickets = (query.expr for query in own.queries[:2])
    told = [("on-call", 180_000.0), ("slack/llm", 30_000.0)]
    wanted: Samples = [({"to": f"to {name} unless silenced"}, value) for name, value in told]
    asked = [(f"max by (to) ({pages} or {tickets})", wanted)]
    assert not ask(tmp_path, asked, fine(CHAT) | BURN | FULL)
    # without a Watchdog nobody can ask whether it fires
    assert not said(tmp_path, fine(CHAT), [rest("fine", NOTHING, 1)], own)
    assert not said(tmp_path, BUILD, [rest("blind", NOT_LOADED), rest("blind", NO_MODEL)], own)


def test_nobody_is_paged_under_a_lower_cap(tmp_path: Path) -> None:
    own = panel(settings_of("severity_cap: warning\n", tmp_path), SENTENCE.title)
    series = fine(CHAT) | WATCHDOG | alert("TTFTBurn", "warning", "ttft", 60, slo="ttft", **CHAT)
    labels, value = BURN_TOLD
    assert not said(tmp_path, series, [({**labels, "grave": "ticket"}, value)], own)


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
    series |= line(VERDICT, 1, CODE, check="kv") | fine(other[0]) | there(other[1], "d")
    rows: Samples = [
        ({**CHAT, "name": "chat"}, 10_000),
        ({**CODE, "name": "code"}, 101),
        # without a verdict it has its row as well, and with its role, since there are several
        ({**other[1], "name": "split decode"}, 9),
        ({**other[0], "name": "split prefill"}, 0),
    ]
    assert not ask(tmp_path, [(MATRIX.queries[0].expr, rows)], series)
    assert MATRIX.look.sorted_by == 0


def test_a_cell_is_the_verdict_or_says_that_none_is_known(tmp_path: Path) -> None:
    gpus = column(MATRIX, "GPUs")
    known = fine(CHAT, CODE, but=("gpu",)) | line(VERDICT, 2, CHAT, check="gpu")
    for without, more in ((UNKNOWN, BUILD), (DEAD, {})):
        assert not ask(tmp_path, [(gpus, [(to("gpu", CHAT), 2), (to("gpu", CODE), without)])], known | more)


def to(check: str, row_of: Labels, board: str = "", **chosen: str) -> Labels:
    """The labels of a cell: of its row, and where its link leads; everything is chosen but for this."""
    own = {f"{check}_{name}": ALL for name in list_choices(Check(check))}
    own |= {f"{check}_{name}": value for name, value in chosen.items()}
    return {**row_of, **own, f"{check}_board": board or Check(check).dashboard}


def test_a_cell_leads_to_what_the_worst_alert_of_its_row_is_about(tmp_path: Path) -> None:
    """Alerts about a model, a replica, a card of a replica, and about nothing that belongs to a model."""
    gpu = {"gpu": "GPU-1", "gpu_name": "H100", "node": "n1"}
    series = fine(CHAT, CODE, but=("phases", "gpu", "exporter")) | BUILD
    series |= line(VERDICT, 1, CHAT, check="phases") | line(VERDICT, 0, CODE, check="phases")
    series |= alert("ReplicaOutlier", "warning", "phases", 0, target="chat-3", **CHAT)
    series |= line(VERDICT, 2, CODE, check="gpu") | line(VERDICT, 1, CHAT, check="gpu")
    series |= alert("GPUFailed", "critical", "gpu", 0, **gpu) | alert(
        "GPUSlowdown", "warning", "gpu", 0, gpu="GPU-2", gpu_name="H100", node="n2"
    )
    series |= line("llm_serving_gpu_target_info", 1, gpu="GPU-1", target="code") | line(
        "llm_serving_gpu_target_info", 1, gpu="GPU-2", target="chat"
    )
    series |= line(VERDICT, 1, CHAT, check="exporter") | line(VERDICT, 0, CODE, check="exporter")
    series |= alert("RestartLoop", "warning", "exporter", 0, target="chat") | line(REST, 2, check="exporter")
    series |= alert("ExporterAbsent", "critical", "exporter", 0)
    nobody = {"model_name": ALL, "role": ALL}
    asked: list[tuple[str, Samples]] = [
        (
            column(MATRIX, "phases"),
            [(to("phases", CHAT, "llm-serving-replica", target="chat-3"), 1), (to("phases", CODE), 0)],
        ),
        (
            column(MATRIX, "GPUs"),
            [(to("gpu", CODE, **gpu), 2), (to("gpu", CHAT, gpu="GPU-2", gpu_name="H100", node="n2"), 1)],
        ),
        (
            column(MATRIX, "exporter"),
            [(to("exporter", CHAT, target="chat"), 1), (to("exporter", CODE), 0), (to("exporter", nobody), 2)],
        ),
    ]
    assert not ask(tmp_path, asked, series)


def test_what_belongs_to_no_model_has_a_row_while_something_is_wrong(tmp_path: Path) -> None:
    nobody = {"model_name": ALL, "role": ALL}
    calm = line(REST, 0, check="gpu") | line(REST, 0, check="cost") | fine(CHAT) | BUILD
    wrong = calm | line(REST, 1, check="cost")
    first, gpus, cost = MATRIX.queries[0].expr, column(MATRIX, "GPUs"), column(MATRIX, "cost")
    assert not ask(tmp_path, [(first, [({**CHAT, "name": "chat"}, 0)]), (cost, [(to("cost", CHAT), 0)])], calm)
    rows: Samples = [({**CHAT, "name": "chat"}, 0), ({**nobody, "name": "no model"}, 100)]
    asked = [
        (first, rows),
        (cost, [(to("cost", CHAT), 0), (to("cost", nobody), 1)]),
        (gpus, [(to("gpu", CHAT), 0), (to("gpu", nobody), 0)]),
    ]
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
    counted = {"ready": "3", "wanted": "4", "replicas": "3 of 4, lost: n2 and others", "lost": "lost: n2 and others"}
    for node in ("n2", "n3"):
        series |= line("model_node:llm_serving_lost_replicas:count", {"n2": 2, "n3": 1}[node], CHAT, node=node)
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
    full, since = row("ticket", "chat: KVSaturated", 60_000, "kv", model_name="chat", role="unified")
    expected: Samples = [
        row("page", "the fleet: ExporterAbsent", 600_000, "exporter"),
        ({**full, "cluster": "us", "namespace": "llm"}, since),
    ]
    assert not said(tmp_path, series, expected, sentence)
    chosen = f"max by (chosen_cluster, chosen_namespace) ({sentence.queries[0].expr} or {sentence.queries[1].expr})"
    names = ("chosen_cluster", "chosen_namespace")
    wanted: Samples = [(dict.fromkeys(names, ALL), 600_000), (dict(zip(names, ("us", "llm"), strict=True)), 60_000)]
    assert not ask(tmp_path, [(chosen, wanted)], series)
    assert [one.title for one in matrix.columns][:3] == ["cluster", "namespace", "model"]
    (link,) = (one.link for one in matrix.columns if one.title == "KV")
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

        told = [say(query.expr) for query in SENTENCE.queries]
        assert [one for one in told if one] == [[("chat", 180_000)], [("code", 30_000)]]
        assert {*say(MATRIX.queries[0].expr)} == {("chat", 10_000), ("code", 1)}
        assert {*say(column(MATRIX, "KV"))} == {("chat", 0), ("code", UNKNOWN)}
        (ready,) = database.query(filled(column(MATRIX, "ready")), now)
        assert ready["metric"]["replicas"] == "3 of 4"
