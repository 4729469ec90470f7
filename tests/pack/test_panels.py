"""What panels show in the place of alerts that notified nobody, and of checks that nobody knows: asked of promtool's Prometheus."""

from pathlib import Path

import pytest

from llm_serving_alerts.render import RECORDS, rule_groups
from llm_serving_alerts.rules import Record
from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.shared_panels import DEAD, UNKNOWN
from tests.pack.builders import held
from tests.pack.judging import ask, expect, write_labels
from tests.support.builders.panelqueries import filled

pytestmark = pytest.mark.process

PANELS = {
    (made.board.uid.removeprefix("llm-serving-"), panel.title): panel
    for made in build_dashboards(default_settings())
    for panel in made.board.panels
}
WAITING = "model:llm_serving_requests_waiting_with_room:sum"
CHAT, CODE = ({"model_name": name, "role": "unified"} for name in ("chat", "code"))


def line(name: str, value: float, **labels: str) -> dict[str, str]:
    written = ",".join(f'{label}="{text}"' for label, text in labels.items())
    return {f"{name}{{{written}}}": held((10, value))}


def know(target: str) -> dict[str, str]:
    """What an exporter and the rules say of a target of the model chat: whose signals and states name no model belong to it by this."""
    return line("llm_serving_target_info", 1, target=target, **CHAT) | line(
        "target:llm_serving_down:min", 0, target=target, **CHAT
    )


def judge(
    folder: Path,
    board: str,
    title: str,
    series: dict[str, str],
    samples: list[tuple[dict[str, str], float]],
    *records: str,
) -> str:
    """promtool's word on the panel's first query at minute 5. `records`: those that it rests on, evaluated."""
    rules = [
        {"record": rule.record, "expr": rule.expr}
        for group in rule_groups(default_settings())[RECORDS]
        for rule in group.rules
        if isinstance(rule, Record) and rule.record in records
    ]
    answers = {write_labels(labels): value for labels, value in samples}
    question = expect(filled(PANELS[board, title].queries[0].expr), "5m", answers)
    return ask(folder, series, [question], {"rules.yml": [{"name": "records", "rules": rules}]})


def test_a_p99_above_the_top_edge_is_at_least_that_edge(tmp_path: Path) -> None:
    quantile = "model:llm_serving_time_to_first_token_seconds"
    series = line(f"{quantile}:quantile_rate5m", 80, rank="p99", **CHAT) | line(
        f"{quantile}:quantile_rate5m", 2, rank="p99", **CODE
    )
    series |= line(f"{quantile}:above_top_edge_ratio_rate5m", 0.02, **CHAT) | line(
        f"{quantile}:above_top_edge_ratio_rate5m", 0.005, **CODE
    )
    of = {"__name__": f"{quantile}:quantile_rate5m", "rank": "p99"}
    said = [({**of, **CHAT, "bound": "at least"}, 80.0), ({**of, **CODE, "bound": "p99"}, 2.0)]
    assert not judge(tmp_path, "home", "p99 time to first token", series, said)


def test_memory_bandwidth_is_shown_against_its_own_median(tmp_path: Path) -> None:
    record, of = "model_gpu:llm_serving_bandwidth_ceiling", {**CHAT, "gpu_name": "H100", "source": "gpm"}
    series = line(f"{record}:ratio", 0.2, **of) | line(f"{record}:median7d", 0.8, **of)
    assert not judge(tmp_path, "roofline", "MBU against the baseline, by GPU model", series, [(of, 0.25)])


def test_targets_without_a_price_stand_with_the_reason(tmp_path: Path) -> None:
    series: dict[str, str] = {}
    for name, reason in (("a", "no_price"), ("b", "idle"), ("c", "gpu_claimed_twice")):
        series |= line("llm_serving_signal_available", 0, target=name, signal="cost_usd_total", reason=reason)
        series |= know(name)
    # another exporter has the prices
    series |= line("llm_serving_cost_usd_total", 3, target="c", phase="decode", instance="b:10077")
    said = [({"target": "a", **CHAT, "reason": "no_price"}, 0.0)]
    assert not judge(tmp_path, "cost", "Targets without a price", series, said)


def test_requests_that_wait_with_room_are_counted_by_limiter(tmp_path: Path) -> None:
    series: dict[str, str] = {}
    for name, used, running in (("free", 0.3, 4), ("full", 0.9, 4), ("busy", 0.3, 8)):
        of = {"target": name, "engine": "0", **CHAT}
        series |= line("engine:llm_serving_requests_waiting:max", 5, **of) | line(
            "engine:llm_serving_requests_running:max", running, **of
        )
        series |= line("engine:llm_serving_kv_cache_usage_ratio:max", used, **of) | line(
            "llm_serving_batch_limit_requests", 8, **of, source="command_line", instance="node:10077"
        )
        # of a second exporter, which cannot see the engine's process
        series |= line("llm_serving_batch_limit_requests", 4, **of, source="observed", instance="cluster:10077")
        for state, value in (("prefill_interference", 1), ("overhead", 0)):
            series |= line("llm_serving_limiter", value, target=name, state=state, **CHAT)
    said = [({"__name__": WAITING, **CHAT, "state": "prefill_interference"}, 5.0)]
    assert not judge(tmp_path, "kv", "Waiting with free KV cache, by limiter", series, said, WAITING)


def test_one_of_two_exporters_that_lacks_a_signal_says_so(tmp_path: Path) -> None:
    """One reads `a`, the other `b`; both read `c`. The second is of an older version, with a line for what is available, too."""
    series: dict[str, str] = {}
    for instance, targets, signals in (("new", "ac", (5, 1)), ("old", "bc", None)):
        for name in targets:
            series |= know(name)
            of = {"instance": instance, "target": name}
            if signals is None:
                series |= line("llm_serving_signal_available", 1, **of, signal="kv_cache_usage_ratio", reason="")
            else:
                for state, count in zip(("available", "absent"), signals, strict=True):
                    series |= line("llm_serving_signals", count, **of, state=state)
                series |= line(
                    "llm_serving_signal_available", 0, **of, signal="kv_cache_usage_ratio", reason="gpus_unknown"
                )
    said = [({"signal": "kv_cache_usage_ratio", "reason": "gpus_unknown"}, 2.0)]
    assert not judge(tmp_path, "exporter", "Missing signals", series, said)
    counted = [({"state": "absent"}, 2.0), ({"state": "available"}, 10.0)]
    assert not judge(tmp_path, "exporter", "Signals", series, counted, "model:llm_serving_signals:sum")


BUILD = line("llm_serving_exporter_build_info", 1, version="1")


@pytest.mark.seam("promtool")
def test_a_verdict_is_the_record_s_and_not_known_without_one(tmp_path: Path) -> None:
    record, rest = "model:llm_serving_check:verdict", "fleet:llm_serving_check:verdict"
    lost = "model_node:llm_serving_lost_replicas:count"
    # somebody else's alert of that name of a check
    theirs = line("ALERTS", 1, alertname="Theirs", alertstate="firing", severity="critical", check="node_loss")
    fine = line(record, 0, check="node_loss", **CHAT)
    for series, shown in (
        (fine | BUILD | theirs, 0.0),
        (fine | line(record, 2, check="node_loss", **CODE) | BUILD, 2.0),
        (fine | line(rest, 1, check="node_loss") | line(lost, 1, node="n", **CODE) | BUILD, 1.0),
        (line(rest, 0, check="node_loss") | BUILD, UNKNOWN),
        (line(record, 0, check="kv", **CHAT) | BUILD | theirs, UNKNOWN),
        (theirs, DEAD),
    ):
        assert not judge(tmp_path, "node-loss", "Check", series, [({}, shown)])


def test_a_check_without_a_verdict_stands_with_the_reason(tmp_path: Path) -> None:
    series = know("a") | know("b") | line("model:llm_serving_alive_targets:sum", 2, **CHAT)
    for check in ("phases", "ttft", "slo", "cost", "gpu", "exporter"):
        series |= line("model:llm_serving_check:verdict", 0, check=check, **CHAT)
    for name in ("a", "b"):
        for signal in ("kv_cache_usage_ratio", "cost_usd_total"):
            series |= line("llm_serving_signal_available", 0, target=name, signal=signal, reason="not_exported")
    said = [
        ({"check": "kv", **CHAT, "signal": "kv_cache_usage_ratio", "reason": "not_exported"}, 2.0),
        ({"check": "tail", **CHAT}, 2.0),
        ({"check": "node_loss", **CHAT}, 2.0),
    ]
    assert not judge(tmp_path, "exporter", "Checks without a verdict, and why", series, said)
