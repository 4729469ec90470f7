"""The worked example of LLMServingN1Insufficient.md, put to the real rules by promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.render import rule_files
from llm_serving_alerts.settings_file import default_settings
from tests.pack.rulesets import PRESENCE, belongs
from tests.support.paths import ROOT
from tests.support.yaml_text import load_yaml

RUNBOOK = (ROOT / "alerts/llm_serving_alerts/runbooks/LLMServingN1Insufficient.md").read_text()
GROUPS = {
    f"llm-serving.{name}"
    for name in ("identity", "targets", *PRESENCE, "traffic", "kv", "work", "rates", "capacity", "node-loss")
}
BUSY, AFTER = 15, 80  # minutes: the best rate is seen under a queue, then falls out of the last hour
MODEL = {"model_name": "m", "role": "unified"}


def selector(name: str, labels: dict[str, str]) -> str:
    return f"{name}{{{','.join(f'{label}={value!r}' for label, value in labels.items())}}}".replace("'", '"')


def series(name: str, labels: dict[str, str], values: str) -> dict[str, str]:
    return {"series": selector(f"llm_serving_{name}", labels), "values": values}


def fleet() -> list[dict[str, str]]:
    """Four replicas, two of them on node a; the first once did 0.9 reference seconds per second under a queue, then each does 0.4."""
    found = []
    for target, node in {"t1": "a", "t2": "a", "t3": "b", "t4": "c"}.items():
        engine = {"target": target, **MODEL, "engine": "0"}
        steady = {
            "kv_cache_used_tokens": "107500",  # 430,000 / 4
            "kv_cache_capacity_tokens": "200000",
            "batch_limit_requests": "64",
            "requests_running": "24",  # 96 / 4
        }
        found += [series(name, engine, f"{value}x{BUSY + AFTER}") for name, value in steady.items()]
        found += [
            series("target_start_time_seconds", {"target": target}, f"-7200x{BUSY + AFTER}"),
            series("target_info", {"target": target, **MODEL}, f"1x{BUSY + AFTER}"),
            series("target_state", {"target": target, "state": "ready"}, f"1x{BUSY + AFTER}"),
            series("target_node_info", {"target": target, **MODEL, "node": node}, f"1x{BUSY + AFTER}"),
            series("target_gpus", {"target": target, "gpu_name": "g"}, f"4x{BUSY + AFTER}"),
            series("phase_reference_seconds_per_token", {**engine, "phase": "prefill"}, f"0.0001x{BUSY + AFTER}"),
            series("phase_reference_seconds_per_token", {**engine, "phase": "decode"}, f"0.001x{BUSY + AFTER}"),
        ]
        # a minute of 1,000 prefill and 300 decode tokens/s: 1000 x 0.0001 + 300 x 0.001 = 0.4; of 3,000 and 600: 0.9
        prefill, decode, waiting = (180_000, 36_000, 5) if target == "t1" else (60_000, 18_000, 0)
        found += [
            series("prefill_tokens_total", engine, f"0+{prefill}x{BUSY} {prefill * BUSY + 60_000}+60000x{AFTER - 1}"),
            series("decode_tokens_total", engine, f"0+{decode}x{BUSY} {decode * BUSY + 18_000}+18000x{AFTER - 1}"),
            series("requests_waiting", engine, f"{waiting}x{BUSY} 0x{AFTER - 1}"),
        ]
    return found


def expected(expr: str, value: float, **labels: str) -> dict[str, object]:
    """Rounded to three digits, so that rates need not be exact to the last bit."""
    sample = {"labels": selector("", {**MODEL, **labels}), "value": value}
    return {"expr": f"round({expr}, 0.001)", "eval_time": f"{BUSY + AFTER - 2}m", "exp_samples": [sample]}


def table() -> dict[str, tuple[float, float]]:
    """Resource -> (now, N-1) as the runbook has them."""
    row = r"^\| (KV tokens|concurrency|phases) \|.*\| ([\d.]+) \| \**([\d.]+)\** \|$"
    return {name: (float(now), float(without)) for name, now, without in re.findall(row, RUNBOOK, re.MULTILINE)}


@pytest.mark.process
def test_the_rules_say_what_the_worked_example_of_n1_says(tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    assert promtool, "promtool is missing; `make test` installs it"
    rules = load_yaml(rule_files(default_settings())["records.yml"])
    rules["groups"] = [group for group in rules["groups"] if belongs(group["name"], GROUPS)]
    assert len(rules["groups"]) >= len(GROUPS)
    (tmp_path / "records.yml").write_text(yaml.safe_dump(rules))
    # by hand: 430,000 / 800,000 and / 400,000; 96 / 256 and / 128; 4 x 0.4 / (4 x 0.9) and / (2 x 0.9)
    ratios = {"kv": (0.538, 1.075), "concurrency": (0.375, 0.75), "phases": (0.444, 0.889)}
    tests = []
    for resource, values in ratios.items():
        for name, value in zip(("load", "n1_load"), values, strict=True):
            query = f'model:llm_serving_{name}:ratio{{resource="{resource}"}}'
            tests.append(expected(query, value, resource=resource))
    tests.append(expected("model:llm_serving_n1_load:max", 1.075))
    required = 'model:llm_serving_required_replicas:ceil{{reserve="{}"}}'
    tests += [
        expected(required.format(reserve), count, reserve=reserve) for reserve, count in (("none", 3), ("nodes", 5))
    ]
    document = {
        "rule_files": ["records.yml"],
        "evaluation_interval": "2m",
        "tests": [{"interval": "1m", "input_series": fleet(), "promql_expr_test": tests}],
    }
    (tmp_path / "test.yml").write_text(yaml.safe_dump(document))
    ran = subprocess.run(
        [promtool, "test", "rules", "test.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for (now, without), shown in zip(ratios.values(), table().values(), strict=True):
        assert shown == (pytest.approx(now, abs=0.006), pytest.approx(without, abs=0.006))
