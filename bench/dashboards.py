"""What looking costs Prometheus, board by board: `make bench`, or `python -m bench.dashboards`.

Every query that Grafana sends when a board is opened, or refreshed, over the last hour with everything chosen: those of panels, of
variables and of the annotations that are on, as `stats=all` counts them. 16 models of 43 replicas, and one model of 500. One model with
everything that the rules record of it is simulated, and laid side by side; a sample a minute, a point each 15 seconds, which is what
Grafana asks for at the default interval of scrapes. CPU is that of Prometheus, and what to compare where other work runs beside. Five
minutes on two cores; with `--data FOLDER` two, from the second time on, also from another checkout, whose boards are to be compared.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from bench.peers import QueryCost, ask_query, sum_thread_cpu_seconds
from bench.shared import make_parser, print_table, say
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


class Viewer:
    """A Grafana that opens boards with everything chosen, at one moment."""

    def __init__(self, server: PrometheusServer, end: float) -> None:
        self._server, self._end = server, end

    def open(self, document: Document) -> list[tuple[QueryCost, str]]:
        """What each query costs, with what it is for."""
        found, chosen = list[tuple[QueryCost, str]](), dict[str, str]()
        for variable in document["templating"]["list"]:
            if variable["type"] == "query":
                cost, chosen[variable["name"]] = self._choose(variable, chosen)
                found.append((cost, f"${variable['name']}"))
        for one in document["annotations"]["list"]:
            if one["enable"]:
                found.append((self._ask(fill(one["expr"], chosen), HOUR, 60)[0], f"annotation {one['name']}"))
        for panel in document["panels"]:
            seconds = 24 * HOUR if panel.get("timeFrom") == "24h" else HOUR
            for target in panel.get("targets", ()):
                step = max(STEP_SECONDS, parse_duration(target["interval"])) if "interval" in target else STEP_SECONDS
                asked = fill(target["expr"], chosen)
                cost, _ = self._ask(asked, None if target.get("instant") else seconds, step)
                found.append((cost, f"{panel['title']} {target['refId']}"))
        return found

    def _choose(self, variable: Mapping[str, Any], chosen: Mapping[str, str]) -> tuple[QueryCost, str]:
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

    def _list(self, series: str, label: str) -> tuple[QueryCost, list[str]]:
        """Prometheus says nothing of the samples of such a list, and of its time only how long the answer took."""
        costs = []
        for _ in range(RUNS):
            cpu, began = sum_thread_cpu_seconds(self._server.pid), time.perf_counter()
            answer = self._server.get(f"/api/v1/label/{label}/values", **{"match[]": series}, **self._range(HOUR))
            took, cpu = time.perf_counter() - began, sum_thread_cpu_seconds(self._server.pid) - cpu
            costs.append(QueryCost(took, cpu, 0, 0, len(series.encode()), len(answer.content)))
        return _take_least(costs), answer.json()["data"]

    def _ask(self, expression: str, seconds: float | None, step: int = STEP_SECONDS) -> tuple[QueryCost, Any]:
        """`seconds`: of the range; None: at its end alone."""
        where = {"time": str(self._end)} if seconds is None else {**self._range(seconds), "step": str(step)}
        path = "/api/v1/query" if seconds is None else "/api/v1/query_range"
        asked = [ask_query(self._server, path, expression, **where) for _ in range(RUNS)]
        return _take_least([cost for cost, _ in asked]), asked[-1][1]

    def _range(self, seconds: float) -> dict[str, str]:
        return {"start": str(self._end - seconds), "end": str(self._end)}


def _take_least(costs: list[QueryCost]) -> QueryCost:
    """The quickest of a few runs, with the least CPU of any."""
    quickest = min(costs, key=lambda cost: cost.evaluation_seconds)
    return replace(quickest, cpu_seconds=min(cost.cpu_seconds for cost in costs))


def fill(expression: str, chosen: Mapping[str, str]) -> str:
    """A query as Grafana sends it, which leaves what is no variable as it is."""
    expression = name_times(expression, RATE_INTERVAL, f"{STEP_SECONDS}s")
    return re.sub(r"\$\{?(\w+)\}?", lambda found: chosen.get(found[1], found[0]), expression)


def note(text: str) -> None:
    print(text, file=sys.stderr)


def lay_out(database: VictoriaMetrics, names: Iterable[str], size: Size, since: float) -> Iterator[str]:
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
    note(f"{size.name}: simulating")
    with simulated(plan, folder / "simulated") as database, (folder / "hour.om").open("w") as out:
        out.writelines(lay_out(database, names, size, plan.begin_unix_seconds))
    note(f"{size.name}: loading {(folder / 'hour.om').stat().st_size / 1e9:.1f} GB of text")
    make_blocks(folder / "hour.om", folder / "data")
    (folder / "hour.om").unlink()
    (folder / "end").write_text(str(end))


def measure(size: Size, documents: Sequence[Document], kept: Path | None, shown: int) -> None:
    names = {name for document in documents for name in NAME.findall(json.dumps(document))}
    with tempfile.TemporaryDirectory(prefix="bench-dashboards-") as own:
        folder = kept / size.name.replace(" ", "") if kept is not None else Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "end").exists():
            make_data(size, folder, names | {"ALERTS", "ALERTS_FOR_STATE"})
        with PrometheusServer(folder, "global: {}\n", retention="10y") as server:
            end = float((folder / "end").read_text())
            viewer = Viewer(server, end)
            asked = "count(count by (target) (llm_serving_target_info))"
            replicas = server.get("/api/v1/query", query=asked, time=str(end)).json()["data"]["result"][0]["value"][1]
            say(f"\n{size.name}, {replicas} replicas, {HOUR / 3600:g} h")
            dear = report(viewer, documents)
    say(f"\n{'ms':>7}{'CPU ms':>8}{'samples':>12}{'kB answered':>13}  the dearest queries")
    for cost, what in sorted(dear, key=lambda one: -one[0].evaluation_seconds)[:shown]:
        times = f"{1000 * cost.evaluation_seconds:>7.0f}{1000 * cost.cpu_seconds:>8.0f}"
        say(f"{times}{cost.samples:>12,}{cost.answer_bytes / 1000:>13.0f}  {what}")


def report(viewer: Viewer, documents: Sequence[Document]) -> list[tuple[QueryCost, str]]:
    """Prints a table of boards; each of their queries, with what it is for."""
    heads = "board", "queries", "ms", "CPU ms", "samples", "most at once", "kB sent", "kB answered"
    queries: list[tuple[QueryCost, str]] = []

    def open_all() -> Iterator[tuple[str, ...]]:
        for document in documents:
            found = viewer.open(document)
            queries.extend((cost, f"{document['uid']}: {what}") for cost, what in found)
            yield list_cells(document["uid"], reduce(add, (cost for cost, _ in found)))

    print_table(heads, open_all())
    return queries


def list_cells(uid: str, cost: QueryCost) -> tuple[str, ...]:
    """A line of the table; what is beyond the project's bounds has an exclamation mark."""
    milliseconds = 1000 * cost.evaluation_seconds
    beyond = " !" if milliseconds > (MOST_HOME_MS if uid == _HOME else MOST_MS) else ""
    samples = f"{cost.samples:,}{' !' if cost.samples > MOST_SAMPLES else ''}"
    sizes = (f"{size / 1000:,.0f}" for size in (cost.sent_bytes, cost.answer_bytes))
    cpu = f"{1000 * cost.cpu_seconds:,.0f}"
    return (uid, f"{cost.queries}", f"{milliseconds:,.0f}{beyond}", cpu, samples, f"{cost.peak_samples:,}", *sizes)


def main() -> None:
    parser = make_parser("dashboards", __doc__)
    parser.add_argument("--data", type=Path, help="folder that keeps the data, and has it from the second time on")
    parser.add_argument("--shown", type=int, default=20, help="queries in the list of the dearest (default 20)")
    parser.add_argument("--board", help="this one alone, by its UID without llm-serving-")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="1: without the one large model")
    arguments = parser.parse_args()
    documents = [made.document for made in build_dashboards(week_settings())]
    if arguments.board:
        documents = [one for one in documents if one["uid"] == f"llm-serving-{arguments.board}"]
    for size in SIZES[: arguments.sizes]:
        measure(size, documents, arguments.data, arguments.shown)


if __name__ == "__main__":
    main()
