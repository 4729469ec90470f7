"""The panel of tenants, asked of promtool over what the rules record of a gateway: in the simulated hours nobody counts by tenant."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from llm_serving_alerts.render import RECORDS, rule_files
from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from tests.support.builders.panelqueries import filled
from tests.support.servers.server_process import program


@pytest.mark.process
def test_tenants_shares_add_up_to_all_that_gateways_count(tmp_path: Path) -> None:
    settings = default_settings()
    (asked,) = (
        panel.queries[0].expr
        for made in build_dashboards(settings)
        for panel in made.board.panels
        if "by tenant" in panel.title
    )
    # an engine's role, as somebody chooses it who looks at the engines behind the gateway
    query = filled(asked.replace("$role", "unified"))
    records = tmp_path / "records.yml"
    records.write_text(rule_files(settings)[f"{RECORDS}.yml"], encoding="utf-8")

    def counter(name: str, tenant: str, growth: float, instance: str) -> dict[str, str]:
        labels = f'target="gw",model_name="m",role="frontend",tenant="{tenant}",kind="team",instance="{instance}"'
        return {"series": f"llm_serving_tenant_{name}_total{{{labels}}}", "values": f"0+{growth}x20"}

    # a pair of exporters counts once: 600 + 200 of search and 150 + 50 of ads a minute
    written = [
        counter(name, tenant, growth, instance)
        for instance in ("a", "b")
        for name, tenant, growth in (
            ("prompt_tokens", "search", 600),
            ("decode_tokens", "search", 200),
            ("prompt_tokens", "ads", 150),
            ("decode_tokens", "ads", 50),
        )
    ]
    expected = [
        {"labels": f'{{tenant="{tenant}"}}', "value": share} for tenant, share in (("search", 0.8), ("ads", 0.2))
    ]
    document = {
        "rule_files": [records.name],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": written,
                "promql_expr_test": [{"expr": f"round({query}, 0.001)", "eval_time": "15m", "exp_samples": expected}],
            }
        ],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run(
        [program("promtool"), "test", "rules", "tests.yml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
