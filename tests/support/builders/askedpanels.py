"""Queries of panels, asked of promtool over series that a test writes down."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import yaml

from llm_serving_alerts.render import RECORDS, rule_files
from llm_serving_alerts.settings import Settings
from tests.support.servers.server_process import program


def write_series(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series as promtool's unit tests have it: `values` such as "1x20" or "0+60x20", one a minute."""
    written = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"{name}{{{written}}}", "values": values}


def ask_promtool(
    tmp_path: Path,
    series: Iterable[Mapping[str, str]],
    asked: Mapping[str, Mapping[str, float]],
    *,
    at: str = "15m",
    settings: Settings | None = None,
) -> None:
    """Fails where a query at that time has other values than those expected, by their labels as PromQL writes them.

    `settings`: their recording rules are evaluated too.
    """
    files = []
    if settings is not None:
        (tmp_path / "records.yml").write_text(rule_files(settings)[f"{RECORDS}.yml"], encoding="utf-8")
        files.append("records.yml")
    questions = [
        {
            "expr": expression,
            "eval_time": at,
            "exp_samples": [{"labels": labels, "value": value} for labels, value in found.items()],
        }
        for expression, found in asked.items()
    ]
    document = {
        "rule_files": files,
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": [dict(one) for one in series], "promql_expr_test": questions}],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run(
        [program("promtool"), "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
