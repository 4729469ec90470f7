"""Simulates, evaluates the rules minute by minute, and hands everything to a real Prometheus: `python -m tests.simweek FOLDER`."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from llm_serving_alerts.render import groups_text
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_dashboards.boards import build_dashboards
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.pages import labels_text
from llm_serving_simulator.fleet.scenario import load, names
from tests.e2e.replay import read_by, rules_in_order, steps
from tests.simweek.fleets import HOUR, MINUTE, Part
from tests.simweek.grown import grown
from tests.simweek.others import RECORDED, Own, Recorded
from tests.support.builders.askedpanels import panels_of
from tests.support.servers.tsdb import make_blocks
from tests.support.servers.victoriametrics import VictoriaMetrics, replay

# exported or recorded
NAME = re.compile(r"(?<![:\w])((?:\w+:)?llm_serving_[\w:]+|process_\w+)")


@dataclass(frozen=True)
class Plan:
    """`seconds` are simulated, up to `end_unix_seconds`; the week before is what fleets usually do, as rules would have recorded it.

    `calm_seconds`: how long a fleet is there at most before its scenario begins. `models`: instead of scenarios so many models, with
    `replicas` replicas each.
    """

    end_unix_seconds: float
    seconds: float = 3 * HOUR
    scenarios: tuple[str, ...] = tuple(names())
    calm_seconds: float = math.inf
    models: int = 0
    replicas: int = 0

    @property
    def begin_unix_seconds(self) -> float:
        return self.end_unix_seconds - self.seconds

    @property
    def parts(self) -> tuple[Part, ...]:
        if self.models:
            return grown(self.models, self.replicas, self.end_unix_seconds, self.seconds)
        lengths = {name: load(name).duration_seconds + self.calm_seconds for name in self.scenarios}
        return tuple(Part(name, self.end_unix_seconds, min(self.seconds, length)) for name, length in lengths.items())


def week_settings() -> Settings:
    """The defaults with every objective set, at a sample a minute."""
    settings = default_settings()
    limits = {"ttft": 2.5, "itl": 0.1, "e2e": 40.0}
    slo = {
        name: replace(objective, threshold_seconds=limits.get(name, objective.threshold_seconds))
        for name, objective in settings.slo.items()
    }
    return replace(settings, scrape_interval_seconds=MINUTE, slo=slo)


def queries(settings: Settings) -> Iterable[str]:
    """All that dashboards ask."""
    for made in build_dashboards(settings):
        document: dict[str, Any] = made.document
        yield from (target["expr"] for panel in panels_of(document) for target in panel.get("targets", ()))
        yield from (one["expr"] for one in document["annotations"]["list"])
        yield from (one["definition"] for one in document["templating"]["list"] if "definition" in one)


def build(plan: Plan, folder: Path, say: Callable[[str], None] = lambda _text: None) -> Path:
    """Makes a data folder for a Prometheus; returns it."""
    source, data = folder / "week.om", folder / "data"
    with simulated(plan, folder, say) as database, source.open("w") as out:
        out.writelines(_openmetrics(database, read_by_dashboards() | {"ALERTS", "ALERTS_FOR_STATE"}))
    make_blocks(source, data)
    say(f"written to {data}")
    return data


@contextmanager
def simulated(plan: Plan, folder: Path, say: Callable[[str], None] = lambda _text: None) -> Iterator[VictoriaMetrics]:
    """A database that holds everything, rules evaluated."""
    groups = rules_in_order(week_settings())
    wanted = read_by_dashboards() | read_by(groups)
    folder.mkdir(parents=True, exist_ok=True)
    with VictoriaMetrics(folder / "victoria") as database:
        with ProcessPoolExecutor(2) as pool:
            work = partial(_lines, plan, wanted, folder)
            for made in pool.map(work, range(len(plan.parts))):
                database.take_file(made)
                say(f"simulated {made.stem}")
        database.take(_others(plan, wanted).encode())
        database.flush()
        say("simulated; the rules follow")
        for number, together in enumerate(steps(groups)):
            file = folder / f"rules-{number}.yml"
            file.write_text(groups_text(together))
            replay(folder, database, [file], plan.begin_unix_seconds, plan.end_unix_seconds)
        say("evaluated")
        yield database


def read_by_dashboards() -> frozenset[str]:
    """The series that they read, exported or recorded."""
    return frozenset(name for query in queries(week_settings()) for name in NAME.findall(query))


def _lines(plan: Plan, wanted: frozenset[str], folder: Path, number: int) -> Path:
    part = plan.parts[number]
    path = folder / f"{part.name}.lines"
    with path.open("w") as out:
        out.writelines(part.past(plan.begin_unix_seconds))
        part.write(out, wanted)
    return path


def _others(plan: Plan, wanted: frozenset[str]) -> str:
    now = plan.begin_unix_seconds

    def clock() -> float:
        return now

    exporters: dict[str, Recorded | Own] = {"exporter": Own(plan.end_unix_seconds, clock)}
    if not plan.models:
        exporters |= {name: Recorded(name, clock, clock, MINUTE) for name in RECORDED}
    lines = []
    while now <= plan.end_unix_seconds:
        for instance, exporter in exporters.items():
            for name, labels, value in exporter.samples():
                if name in wanted or name.removesuffix("_bucket") in wanted:
                    text = labels_text({**labels, "job": "llm-serving", "instance": f"{instance}:10077"})
                    lines.append(f"{name}{text} {value!r} {now * 1000:.0f}\n")
        now += MINUTE
    return "".join(lines)


def _openmetrics(database: VictoriaMetrics, names: frozenset[str]) -> Iterator[str]:
    """Of series that are asked for: promtool takes its time."""
    for row in database.rows(f'{{__name__=~"{"|".join(sorted(names))}"}}'):
        made = json.loads(row)
        labels = made["metric"]
        series = labels.pop("__name__") + labels_text(labels)
        stamps = zip(made["values"], made["timestamps"], strict=True)
        yield from (f"{series} {value} {stamp / 1000:.3f}\n" for value, stamp in stamps if value is not None)
    yield "# EOF\n"
