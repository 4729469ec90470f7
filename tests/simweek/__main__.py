"""The simulated hours for a Grafana: `python -m tests.simweek FOLDER [HOURS] [--models 16 --replicas 43]`.

Writes a data folder and a configuration for a Prometheus, and what a Grafana is provisioned with; says how to start both.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from llm_serving_dashboards.boards import build_dashboards
from llm_serving_dashboards.command import render_datasource, render_provider
from llm_serving_dashboards.grafana.document import format_json
from tests.simweek.build import Plan, build, week_settings
from tests.simweek.fleets import HOUR

PORT = 9190


def main(folder: Path, hours: float, models: int, replicas: int) -> None:
    """Everything but the two servers."""
    began = time.monotonic()
    # a whole hour, not too long ago
    plan = Plan(time.time() // 3600 * 3600, hours * HOUR, models=models, replicas=replicas)
    data = build(plan, folder, lambda text: print(f"{time.monotonic() - began:6.0f} s  {text}", flush=True))
    settings, own = week_settings(), folder / "provisioning"
    (folder / "prometheus.yml").write_text("global: {}\n")
    for name in ("dashboards", "datasources"):
        (own / name).mkdir(parents=True, exist_ok=True)
    rendered = folder / "dashboards"
    rendered.mkdir(exist_ok=True)
    for made in build_dashboards(settings):
        (rendered / f"{made.board.uid}.json").write_text(format_json(made.document))
    (own / "dashboards" / "llm-serving.yml").write_text(render_provider(str(rendered.resolve())))
    (own / "datasources" / "llm-serving.yml").write_text(render_datasource(settings, f"http://127.0.0.1:{PORT}"))
    print(f"""
prometheus --config.file={folder}/prometheus.yml --storage.tsdb.path={data} --storage.tsdb.retention.time=10y \\
    --web.listen-address=127.0.0.1:{PORT}
GF_PATHS_PROVISIONING={own.resolve()} GF_AUTH_ANONYMOUS_ENABLED=true grafana server
export GRAFANA_URL=http://127.0.0.1:3000 GRAFANA_FROM={plan.begin_unix_seconds:.0f}000 GRAFANA_TO={plan.end_unix_seconds:.0f}000
make test-grafana""")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.simweek")
    parser.add_argument("folder", type=Path)
    parser.add_argument("hours", type=float, nargs="?", default=2.5)
    parser.add_argument("--models", type=int, default=0, help="instead of all scenarios a fleet of so many models")
    parser.add_argument("--replicas", type=int, default=1, help="of each of these models")
    given = parser.parse_args()
    if given.models < 0 or given.replicas < 1:
        parser.error("--models is a number from 1 on, --replicas too")
    main(given.folder, given.hours, given.models, given.replicas)
