"""A review with pools out of a real Prometheus: nodes whose places the price file, the exporter and kube-state-metrics know."""

from __future__ import annotations

import csv
import time
from collections import defaultdict
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from llm_serving_review.command import run
from llm_serving_review.evidence.week import last_complete_week
from tests.support.builders.costfortnight import blocks
from tests.support.servers.prometheus_server import PrometheusServer

HOUR, STEP, HOURS = 3600.0, 60.0, 30
ZONE = "Asia/Kolkata"
# target: GPUs; all at $4
TARGETS = {"stated": 4, "said": 6, "kube": 2, "elsewhere": 3}
PRICES = """
pools:
  - {name: reserved, kind: quantity, instance_type: p5.48xlarge, region: us-east-1, instances: {count: 1, gpus: 8}, usd_per_gpu_hour: 2.5}
nodes:
  - {node: node-stated, region: us-east-1, instance_type: p5.48xlarge}
"""


def history(monday: float) -> str:
    """The first hours of the week."""
    lines: dict[str, list[str]] = defaultdict(list)
    for step in range(int(HOURS * HOUR / STEP) + 1):
        seconds, stamp = step * STEP, f"{monday + step * STEP:.3f}"
        scrape = 'job="llm",instance="central:10077"'
        lines["up"].append(f"up{{{scrape}}} 1 {stamp}")
        info = f'llm_serving_rate_info{{{scrape},rate="pool",kind="pool",includes_power="true"}}'
        lines["info"].append(f"{info} 1 {stamp}")
        for name, gpus in TARGETS.items():
            of = f'{scrape},target="{name}",model_name="{name}",role="unified"'
            counted = seconds * gpus
            lines["seconds"].append(
                f'llm_serving_gpu_seconds_total{{{of},engine="0",rate="pool",state="busy"}} {counted} {stamp}'
            )
            usd = counted / HOUR * 4
            lines["usd"].append(
                f'llm_serving_cost_usd_total{{{of},engine="0",rate="pool",phase="decode",method="flat"}} {usd} {stamp}'
            )
            kind = f'{scrape},target="{name}",gpu_name="H100 SXM 80GB"'
            lines["price"].append(f'llm_serving_gpu_price_usd_per_hour{{{kind},rate="pool"}} 4 {stamp}')
            lines["gpus"].append(f"llm_serving_target_gpus{{{kind}}} {gpus} {stamp}")
            place = 'region="us-east-1",instance_type="p5.48xlarge"' if name == "said" else 'region=""'
            place = 'region="eu-west-1",instance_type="p5.48xlarge"' if name == "elsewhere" else place
            lines["node"].append(f'llm_serving_target_node_info{{{of},node="node-{name}",{place}}} 1 {stamp}')
        kube = 'job="kube-state-metrics",instance="k:8080",node="node-kube"'
        lines["kube"].append(f'kube_node_info{{{kube},provider_id="aws:///us-east-1a/i-7"}} 1 {stamp}')
        labels = 'label_topology_kubernetes_io_region="us-east-1",label_beta_kubernetes_io_instance_type="p5.48xlarge"'
        lines["kube labels"].append(f"kube_node_labels{{{kube},{labels}}} 1 {stamp}")
    return "\n".join([line for name in sorted(lines) for line in lines[name]] + ["# EOF", ""])


@pytest.mark.e2e
def test_a_review_with_pools(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    week = last_complete_week(time.time(), ZoneInfo(ZONE))
    blocks(history(week.begin), tmp_path / "data")
    (tmp_path / "prices.yml").write_text(PRICES)
    (tmp_path / "report.yml").write_text(f"timezone: {ZONE}\nprice_file: [prices.yml]\n")
    with PrometheusServer(tmp_path, "global: {}\n") as server:
        words = ["--prometheus.url", server.url, "--config.file", str(tmp_path / "report.yml"), "--week", week.name]
        assert run([*words, "--output-dir", str(tmp_path / "out")]) == 0
    with (tmp_path / "out" / f"cost-{week.name}.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["week"] == week.name]

    def value(section: str, item: str, unit: str, **labels: str) -> float:
        found = [
            row
            for row in rows
            if (row["section"], row["item"], row["unit"]) == (section, item, unit)
            and all(row[name] == text for name, text in labels.items())
        ]
        assert len(found) == 1, found
        return float(found[0]["value"])

    # 4 + 6 + 2 = 12 GPUs of the pool's kind in its region, whoever knows where their node stands; 8 are committed. The week begins at half
    # past: 30 hours are half a UTC hour of which 4 of 6 GPU-hours are covered, 29 of which 8 of 12 are, and one with 6, all covered: 242
    covered = 4 + 29 * 8 + 6
    # a counter's first minute is lost
    near = {"rel": 0.003}
    assert value("spend", "gpu_time", "USD") == pytest.approx(30 * 15 * 4.0, **near)
    assert value("pool", "used", "GPU-hours") == pytest.approx(covered, **near)
    assert value("pool", "benefit", "USD") == pytest.approx(covered * 1.5, **near)

    def price(name: str) -> float:
        hours = value("pool_models", "gpu_hours", "GPU-hours", model_name=name)
        return value("pool_models", "after_commitments", "USD", model_name=name) / hours

    # shared by GPU-hours: each of the three pays the same; who is in another region pays $4
    each = (covered * 2.5 + (30 * 12 - covered) * 4) / (30 * 12)
    prices = {name: price(name) for name in TARGETS}
    assert prices == {
        "stated": pytest.approx(each, **near), "said": pytest.approx(each, **near), "kube": pytest.approx(each, **near),
        "elsewhere": pytest.approx(4.0, rel=1e-6),
    }  # fmt: skip
    said = capsys.readouterr().out
    assert "taken off by pools" in said
    assert "Pools: what is committed" in (tmp_path / "out" / f"cost-{week.name}.html").read_text()


def test_a_price_file_that_cannot_be_used_is_refused_before_anything_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prices.yml"
    path.write_text("pools: [{name: a, kind: quantity, gpus: 8}]\n")
    assert run(["--prometheus.url", "http://127.0.0.1:9", "--price-file", str(path)]) == 2
    said = capsys.readouterr().err
    assert f"{path}: pools[0]: nothing says what it is for. Write one of gpu_model, gpu_name, instance_type." in said
    assert "nothing says what each GPU costs" in said
