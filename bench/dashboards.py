"""What looking costs Prometheus, board by board: `make bench`, or `python -m bench.dashboards --beside CHECKOUT` for two versions by turns.

Every query that Grafana sends when a board is opened, or refreshed, over the last hour with everything chosen: those of panels, of
variables and of the annotations that are on, as `stats=all` counts them. 16 models of 43 replicas, and one model of 500. One model with
everything that the rules record of it is simulated, and laid side by side; a sample a minute, a point each 15 seconds, which is what
Grafana asks for at the default interval of scrapes. CPU is that of Prometheus, and what to compare where other work runs beside. Five
minutes on two cores; with `--data FOLDER` two, from the second time on.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any

from bench.shared import make_parser, sum_thread_cpu_seconds
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_exporter.settings.kinds import parse_duration
from llm_serving_simulator.fleet.pages import labels_text
from tests.simweek.build import NAME, Plan, simulated, week_settings
from tests.simweek.grown import NAMES
from tests.support.builders.panelqueries import name_times
from tests.support.servers.prometheus_server import PrometheusServer
from tests.support.servers.tsdb import make_blocks
from tests.support.servers.victoriametrics import VictoriaMetrics

Document = Mapping[str, Any]

HOUR = 3600.0
# of Grafana's data source: the scrape interval, below which it asks for no step
STEP_SECONDS = 15
# the simulated hour has a sample a minute, and a rate needs a few
RATE_INTERVAL = "4m"
RUNS = 3
# of the project, at 688 replicas over an hour: milliseconds of evaluation, of home and of another board; samples
MOST_HOME_MS, MOST_MS, MOST_SAMPLES = 300, 500, 5_000_000
_HOME = "llm-serving-home"
_MODEL = NAMES[0]
_REPLICA = re.compile(rf'="{re.escape(_MODEL)}-(n?)(\d+)"')
_WRITTEN = """
import json
from llm_serving_dashboards.boards import build_dashboards
from tests.simweek.build import week_settings
print(json.dumps([made.document for made in build_dashboards(week_settings())]))
"""


@dataclass(frozen=True)
class Size:
    """A fleet. `simulated`: replicas of the one model that is simulated; the rest are its copies."""

    models: int
    replicas: int
    simulated: int

    @property
    def name(self) -> str:
        return f"{self.models} x {self.replicas}"

    def copy(self, series: str) -> Iterator[str]:
        """A series as it is, and its copies under names of their own; of a model's own series there are none beside the same model."""
        named, card = f'="{_MODEL}' in series, 'gpu="GPU-' in series
        if self.models > 1:
            for number in range(self.models if named or card else 1):
                yield series.replace(f'="{_MODEL}', f'="{_MODEL}-{number}').replace('gpu="GPU-', f'gpu="GPU-{number}-')
            return
        for fleet in range(self.replicas // self.simulated if _REPLICA.search(series) or card else 1):
            more = fleet * self.simulated
            own = _REPLICA.sub(lambda found, more=more: f'="{_MODEL}-{found[1]}{int(found[2]) + more}"', series)
            yield own.replace('gpu="GPU-', f'gpu="GPU-{fleet}-')


SIZES = (Size(16, 43, 43), Size(1, 500, 50))


@dataclass
class Cost:
    """What a board or a query cost. `seconds` of evaluation, `cpu` of all that Prometheus did; `samples` are those that were looked at,
    `peak` the most at once."""

    queries: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    samples: int = 0
    peak: int = 0
    sent: int = 0
    answered: int = 0

    def add(self, other: Cost) -> None:
        for name in ("queries", "seconds", "cpu", "samples", "sent", "answered"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.peak = max(self.peak, other.peak)


@dataclass
class BoardCost:
    """`by_query`: each query's cost, with what it is for."""

    total: Cost = field(default_factory=Cost)
    by_query: list[tuple[Cost, str]] = field(default_factory=list)

    def add(self, what: str, cost: Cost) -> None:
        self.total.add(cost)
        self.by_query.append((cost, what))


class Viewer:
    """A Grafana that opens boards with everything chosen, at one moment."""

    def __init__(self, server: PrometheusServer, end: float) -> None:
        self._server, self._end = server, end

    def open(self, document: Document) -> BoardCost:
        found, chosen = BoardCost(), dict[str, str]()
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                cost, chosen[variable["name"]] = self._choose(variable, chosen)
                found.add(f"${variable['name']}", cost)
        for one in document["annotations"]["list"]:
            if one["enable"]:
                found.add(f"annotation {one['name']}", self._ask(fill(one["expr"], chosen), HOUR, 60)[0])
        for panel in document["panels"]:
            seconds = 24 * HOUR if panel.get("timeFrom") == "24h" else HOUR
            for target in panel.get("targets", ()):
                step = max(STEP_SECONDS, parse_duration(target["interval"])) if "interval" in target else STEP_SECONDS
                asked = fill(target["expr"], chosen)
                cost, _ = self._ask(asked, None if target.get("instant") else seconds, step)
                found.add(f"{panel['title']} {target['refId']}", cost)
        return found

    def _choose(self, variable: Mapping[str, Any], chosen: Mapping[str, str]) -> tuple[Cost, str]:
        """A variable's values, and the text that stands in its place in a query."""
        asked = fill(variable["definition"], chosen)
        if values := re.fullmatch(r"label_values\((?P<series>.*), (?P<label>\w+)\)", asked):
            cost, texts = self._list(values["series"], values["label"])
        else:
            whole = re.fullmatch(r"query_result\((?P<query>.*)\)", asked, re.DOTALL)
            assert whole, asked
            cost, answer = self._ask(whole["query"], None)
            texts = [f"{{{labels_text(one['metric'])}}} {one['value'][1]}" for one in answer["result"]]
        if pattern := variable["regex"].strip("/"):
            texts = [found[1] for text in texts if (found := re.search(pattern, text))]
        if not variable["includeAll"]:
            return cost, texts[0] if texts else ""
        if variable.get("allValue"):
            return cost, variable["allValue"]
        escaped = [re.sub(r"([\\^$*+?.()|\[\]{}'])", r"\\\\\1", text) for text in dict.fromkeys(texts)]
        return cost, escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"

    def _list(self, series: str, label: str) -> tuple[Cost, list[str]]:
        """Prometheus says nothing of the samples of such a list, and of its time only how long the answer took."""
        costs = []
        for _ in range(RUNS):
            cpu, began = sum_thread_cpu_seconds(self._server.pid), time.perf_counter()
            answer = self._server.get(f"/api/v1/label/{label}/values", **{"match[]": series}, **self._range(HOUR))
            took, cpu = time.perf_counter() - began, sum_thread_cpu_seconds(self._server.pid) - cpu
            costs.append(Cost(1, took, cpu, 0, 0, len(series.encode()), len(answer.content)))
        return _take_least(costs), answer.json()["data"]

    def _ask(self, expression: str, seconds: float | None, step: int = STEP_SECONDS) -> tuple[Cost, Any]:
        """`seconds`: of the range; None: at its end alone."""
        where = {"time": str(self._end)} if seconds is None else {**self._range(seconds), "step": str(step)}
        url = f"{self._server.url}/api/v1/query{'' if seconds is None else '_range'}"
        costs = []
        for _ in range(RUNS):
            cpu = sum_thread_cpu_seconds(self._server.pid)
            answer = self._server.http.post(url, data={"query": expression, "stats": "all", **where}, timeout=120)
            cpu = sum_thread_cpu_seconds(self._server.pid) - cpu
            body = answer.json()
            assert body["status"] == "success", (expression, answer.text)
            timings, samples = (body["data"]["stats"][name] for name in ("timings", "samples"))
            counts = samples["totalQueryableSamples"], samples["peakSamples"]
            costs.append(Cost(1, timings["evalTotalTime"], cpu, *counts, len(expression.encode()), len(answer.content)))
        return _take_least(costs), body["data"]

    def _range(self, seconds: float) -> dict[str, str]:
        return {"start": str(self._end - seconds), "end": str(self._end)}


def _take_least(costs: list[Cost]) -> Cost:
    """The quickest of a few runs, with the least CPU of any."""
    return replace(min(costs, key=lambda cost: cost.seconds), cpu=min(cost.cpu for cost in costs))


def fill(expression: str, chosen: Mapping[str, str]) -> str:
    """A query as Grafana sends it, which leaves what is no variable as it is."""
    expression = name_times(expression, RATE_INTERVAL, f"{STEP_SECONDS}s")
    return re.sub(r"\$\{?(\w+)\}?", lambda found: chosen.get(found[1], found[0]), expression)


def list_documents() -> list[Document]:
    return [made.document for made in build_dashboards(week_settings())]


def list_documents_of(checkout: Path) -> list[Document]:
    """The same of another version, under this environment's packages."""
    roots = os.pathsep.join(str(checkout / name) for name in ("exporter", "alerts", "dashboards", ""))
    done = subprocess.run(
        [sys.executable, "-c", _WRITTEN],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": roots},
        capture_output=True,
        text=True,
        check=True,
    )
    return list(json.loads(done.stdout))


def lay_out(database: VictoriaMetrics, names: Iterable[str], size: Size, since: float) -> Iterator[str]:
    """OpenMetrics text of all replicas."""
    for row in database.rows(f'{{__name__=~"{"|".join(sorted(names))}"}}'):
        made = json.loads(row)
        labels = made["metric"]
        series = labels.pop("__name__") + labels_text(labels)
        stamps = zip(made["values"], made["timestamps"], strict=True)
        tail = [f" {value} {at / 1000:.0f}\n" for value, at in stamps if value is not None and at >= since * 1000]
        for own in size.copy(series):
            yield "".join(own + one for one in tail)
    yield "# EOF\n"


def make_data(size: Size, folder: Path, names: Iterable[str]) -> None:
    """The blocks of a Prometheus, and beside them the moment when they end."""
    end = time.time() // HOUR * HOUR
    plan = Plan(end, seconds=1.5 * HOUR, models=1, replicas=size.simulated)
    say(f"{size.name}: simulating")
    with simulated(plan, folder / "simulated") as database, (folder / "hour.om").open("w") as out:
        out.writelines(lay_out(database, names, size, plan.begin_unix_seconds))
    say(f"{size.name}: loading {(folder / 'hour.om').stat().st_size / 1e9:.1f} GB of text")
    make_blocks(folder / "hour.om", folder / "data")
    (folder / "hour.om").unlink()
    (folder / "end").write_text(str(end))


def measure(size: Size, versions: Mapping[str, list[Document]], kept: Path | None, shown: int) -> None:
    """Each board of one version after that of the other."""
    texts = [json.dumps(document) for document in chain(*versions.values())]
    names = {name for text in texts for name in NAME.findall(text)} | {"ALERTS", "ALERTS_FOR_STATE"}
    with tempfile.TemporaryDirectory(prefix="bench-dashboards-") as own:
        folder = kept / size.name.replace(" ", "") if kept is not None else Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "end").exists():
            make_data(size, folder, names)
        with PrometheusServer(folder, "global: {}\n", retention="10y") as server:
            end = float((folder / "end").read_text())
            viewer = Viewer(server, end)
            asked = "count(count by (target) (llm_serving_target_info))"
            replicas = server.get("/api/v1/query", query=asked, time=str(end)).json()["data"]["result"][0]["value"][1]
            report(f"{size.name}, {replicas} replicas, {HOUR / 3600:g} h", viewer.open, versions, shown)


def report(
    title: str, open_board: Callable[[Document], BoardCost], versions: Mapping[str, list[Document]], shown: int
) -> None:
    """A table of boards, and the dearest queries of this version."""
    heads = "board", "version", "queries", "ms", "CPU ms", "samples", "most at once", "kB sent", "kB answered"
    print(f"\n{title}\n\n| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    dear: list[tuple[Cost, str]] = []
    for uid in dict.fromkeys(document["uid"] for documents in versions.values() for document in documents):
        for version, documents in versions.items():
            for document in (one for one in documents if one["uid"] == uid):
                found = open_board(document)
                print(write_row(uid, version, found.total), flush=True)
                if version == next(iter(versions)):
                    dear += [(cost, f"{uid}: {what}") for cost, what in found.by_query]
    print(f"\n{'ms':>7}{'CPU ms':>8}{'samples':>12}{'kB answered':>13}  the dearest queries")
    for cost, what in sorted(dear, key=lambda one: -one[0].seconds)[:shown]:
        print(
            f"{1000 * cost.seconds:>7.0f}{1000 * cost.cpu:>8.0f}{cost.samples:>12,}{cost.answered / 1000:>13.0f}  {what}"
        )


def write_row(uid: str, version: str, cost: Cost) -> str:
    """A line of the table; what is beyond the project's bounds has an exclamation mark."""
    most = MOST_HOME_MS if uid == _HOME else MOST_MS
    seconds = f"{1000 * cost.seconds:,.0f}{' !' if 1000 * cost.seconds > most else ''}"
    samples = f"{cost.samples:,}{' !' if cost.samples > MOST_SAMPLES else ''}"
    sizes = (f"{size / 1000:,.0f}" for size in (cost.sent, cost.answered))
    cells = (uid, version, f"{cost.queries}", seconds, f"{1000 * cost.cpu:,.0f}", samples, f"{cost.peak:,}", *sizes)
    return f"| {' | '.join(cells)} |"


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main() -> None:
    parser = make_parser("dashboards", __doc__)
    parser.add_argument("--beside", type=Path, help="a checkout of another version, whose boards are asked by turns")
    parser.add_argument("--data", type=Path, help="folder that keeps the data, and has it from the second time on")
    parser.add_argument("--shown", type=int, default=20, help="queries in the list of the dearest (default 20)")
    parser.add_argument("--board", help="this one alone, by its UID without llm-serving-")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="1: without the one large model")
    arguments = parser.parse_args()
    versions = {"this": list_documents()}
    if arguments.beside is not None:
        versions["beside"] = list_documents_of(arguments.beside.resolve())
    if arguments.board:
        uid = f"llm-serving-{arguments.board}"
        versions = {name: [one for one in found if one["uid"] == uid] for name, found in versions.items()}
    for size in SIZES[: arguments.sizes]:
        measure(size, versions, arguments.data, arguments.shown)


if __name__ == "__main__":
    main()
