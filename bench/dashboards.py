"""How long the dashboards' queries take over 24 hours of 200 replicas, in a real Prometheus: python -m bench.dashboards

Two and a half simulated hours of four replicas, with everything that the rules record of them, are laid one after the other ten times and
side by side fifty times, as ten models of twenty replicas; a sample a minute. Takes some minutes and about 6 GB of disk on the way.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llm_serving_dashboards.boards import build_dashboards
from llm_serving_exporter.sim.fleet.exposition import labels_text
from tests.simweek.build import Plan, simulated, week_settings
from tests.support.builders.panelqueries import filled
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.tsdb import make_blocks
from tests.support.servers.victoriametrics import VictoriaMetrics

MODELS, FLEETS, ROUNDS = 10, 5, 10
# as many points as a graph has pixels
STEP_SECONDS = 75
DAY = 86_400.0
SCENARIO = "calm-day"
_SELECTOR = re.compile(r"(?:\w+:)?(?:llm_serving|process)_[\w:]+(?:\{[^}]*\})?|ALERTS\{[^}]*\}")
RUNS = 3


@dataclass(frozen=True)
class Asked:
    """A query of a panel, as it is sent. `instant`: asked for the end only."""

    board: str
    panel: str
    expression: str
    instant: bool


def asked() -> list[Asked]:
    return [
        Asked(made.board.uid, panel.title, filled(query.expr), query.instant)
        for made in build_dashboards(week_settings())
        for panel in made.board.panels
        for query in panel.queries
    ]


def laid_out(database: VictoriaMetrics, queries: list[Asked], plan: Plan) -> Iterator[str]:
    """OpenMetrics text of the series that are asked for. What is only asked for the end is not there before the last round."""
    done: set[str] = set()
    for instant, rounds in ((False, range(ROUNDS)), (True, range(1))):
        selectors = {found for one in queries if one.instant is instant for found in _SELECTOR.findall(one.expression)}
        for selector in sorted(selectors):
            for row in database.rows(selector):
                made = json.loads(row)
                labels = made["metric"]
                # beside the fleet there are two recorded servers
                if labels.get("model_name", SCENARIO) != SCENARIO or str(labels) in done:
                    continue
                done.add(str(labels))
                name = labels.pop("__name__")
                # without the week before
                begin = plan.begin_unix_seconds * 1000
                samples = [
                    (value, stamp)
                    for value, stamp in zip(made["values"], made["timestamps"], strict=True)
                    if value is not None and stamp >= begin
                ]
                for own in copies(labels):
                    series = name + labels_text(own)
                    for number in reversed(rounds):
                        back = number * (plan.seconds + 60.0)
                        yield "".join(f"{series} {value} {stamp / 1000 - back:.0f}\n" for value, stamp in samples)
    yield "# EOF\n"


def copies(labels: dict[str, str]) -> Iterator[dict[str, str]]:
    """A model's series once a model, a replica's, a node's or a GPU's once a fleet of it."""
    single = [name for name in ("target", "node", "gpu", "instance") if name in labels]
    for model in range(MODELS if "model_name" in labels or single else 1):
        for fleet in range(FLEETS if single else 1):
            found = {name: f"{labels[name]}-{model}-{fleet}" for name in single}
            if "model_name" in labels:
                found["model_name"] = f"{labels['model_name']}-{model}"
            yield {**labels, **found}


def main() -> None:
    plan = Plan(time.time() // 3600 * 3600, scenarios=(SCENARIO,), seconds=2.5 * 3600)
    queries = asked()
    with tempfile.TemporaryDirectory(prefix="bench-dashboards-") as name:
        folder = Path(name)
        say("simulating")
        with simulated(plan, folder) as database, (folder / "day.om").open("w") as out:
            out.writelines(laid_out(database, queries, plan))
        say(f"loading {(folder / 'day.om').stat().st_size / 1e9:.1f} GB of text")
        make_blocks(folder / "day.om", folder / "data")
        (folder / "day.om").unlink()
        with PrometheusServer(folder, "global: {}\n", retention="10y") as server:
            replicas = server.get(
                "/api/v1/query",
                query="count(count by (target) (llm_serving_target_info))",
                time=str(plan.end_unix_seconds),
            ).json()
            say(f"{replicas['data']['result'][0]['value'][1]} replicas")
            report([(best(server, one, plan.end_unix_seconds), one) for one in queries])


def best(server: PrometheusServer, one: Asked, end: float) -> float:
    """Seconds of the quickest of a few runs."""
    where = {"time": str(end)} if one.instant else {"start": str(end - DAY), "end": str(end), "step": str(STEP_SECONDS)}
    took = []
    for _ in range(RUNS):
        began = time.perf_counter()
        answer = server.get(
            "/api/v1/query" if one.instant else "/api/v1/query_range", 120, query=one.expression, **where
        )
        took.append(time.perf_counter() - began)
        assert answer.json()["status"] == "success", answer.text
    return min(took)


def report(found: list[tuple[float, Asked]]) -> None:
    found.sort(key=lambda each: -each[0])
    print(f"{len(found)} queries, {sum(seconds < 1 for seconds, _ in found)} of them under a second; the slowest:")
    for seconds, one in found[:12]:
        print(f"{seconds:7.3f} s  {one.board}: {one.panel}")


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main()
