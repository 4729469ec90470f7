"""What evaluating the rules costs: `make bench`, or `python -m bench.rules --targets 200 --hours 24` for one fleet.

A simulated fleet with everything that is recorded of it is laid side by side: labels and counts of series come from the exporter's own
collector beside simulated replicas, and from the rules themselves. A model of four simulated replicas, each with a node and its GPUs,
becomes one of twenty; every other two models are the pools of one, prefill and decode.

Every rule is asked once of a real Prometheus, one after the other, over blocks with the history of everything that rules read. CPU is that
of Prometheus' process meanwhile: nanoseconds of its threads, the least of a few runs. A round is the time between two scrapes, in
which a group with a longer interval has its share. Answers are sent instead of stored. A fixed
query in the same run says how fast the machine is.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.blocks import Series, Shape, end_before, write_blocks
from bench.peers import ask_query
from bench.shared import make_parser, say
from llm_serving_alerts.render import rule_groups
from llm_serving_alerts.rules import AlertRule, Group, Record
from llm_serving_alerts.settings import Settings
from llm_serving_alerts.settings_file import default_settings
from llm_serving_exporter.model.record import replace
from tests.simweek.build import Plan, simulated, week_settings
from tests.support.servers.prometheus_server import PrometheusServer

SCENARIOS = ("calm-day", "kv-pressure")
# of the simulation: what is kept of it, and repeated, is the end
_SECONDS, _KEPT_MINUTES = 4500.0, 60
_COPIES_A_MODEL = 5
_SINGLE = ("target", "node", "gpu", "instance")
_MINUTE_MS = 60_000
# of a query
_LOOK_BACK_MS = 5 * _MINUTE_MS
_NAME = re.compile(
    r"(?<![:\w])(?:(?:\w+:)?llm_serving_\w+(?::\w+)?|process_\w+|alertmanager_\w+|prometheus_\w+|kube_\w+)"
)


@dataclass(frozen=True)
class Fleet:
    # series of the simulated fleet, each with its name among its labels
    templates: tuple[tuple[dict[str, str], Shape], ...]
    targets: int  # of one copy

    def copies(self, targets: int) -> int:
        """How many models each simulated one has to become for so many targets, or a few more."""
        return math.ceil(targets / (self.targets * _COPIES_A_MODEL))

    def targets_of(self, models: int) -> int:
        return self.targets * models * _COPIES_A_MODEL

    def series(self, models: int) -> list[Series]:
        """All of them, each once."""
        found: dict[tuple[tuple[str, str], ...], Series] = {}
        for template, shape in self.templates:
            for labels in _copied(template, models):
                own = tuple(sorted(labels.items()))
                found.setdefault(own, Series(own, shape))
        return list(found.values())


def simulate(groups: Iterable[Group], interval_ms: int, folder: Path) -> Fleet:
    """Simulates the fleet for an hour and keeps what these rules read, at the interval of a scrape and of those who record."""
    known = tuple(groups)
    wanted = read_by(known)
    recorded = {
        rule.record: round(1000 * group.interval_seconds) if group.interval_seconds else interval_ms
        for group in known
        for rule in group.rules
        if isinstance(rule, Record)
    }
    plan = Plan(time.time() // 3600 * 3600, scenarios=SCENARIOS, seconds=_SECONDS, calm_seconds=0.0)
    templates, shapes = [], dict[tuple[int, tuple[float, ...]], Shape]()
    with simulated(plan, folder, say) as database:
        for row in database.rows('{__name__!=""}'):
            made = json.loads(row)
            name = made["metric"]["__name__"]
            if name not in wanted:
                continue
            values = _minutes(made["timestamps"], made["values"], round(plan.end_unix_seconds * 1000))
            if values is None:
                continue
            own_ms = recorded.get(name, interval_ms)
            key = own_ms, tuple(values)
            shape = shapes.get(key) or shapes.setdefault(key, Shape(list(_between(values, own_ms)), own_ms))
            templates.append((made["metric"], shape))
    targets = {labels["target"] for labels, _ in templates if labels["__name__"] == "llm_serving_target_info"}
    return Fleet(tuple(templates), len(targets))


def read_by(groups: Iterable[Group]) -> frozenset[str]:
    """The series that rules read, scraped and recorded."""
    return frozenset(name for group in groups for rule in group.rules for name in _NAME.findall(rule.expr))


def _minutes(stamps: list[int], values: list[float | None], end_ms: int) -> list[float] | None:
    """Its values minute by minute, the next one where there is none; None for what a query at the end does not find."""
    kept = {stamp: float(value) for stamp, value in zip(stamps, values, strict=True) if value is not None}
    last = max(kept, default=0)
    if last <= end_ms - _LOOK_BACK_MS:
        return None
    before = kept[last]
    found = []
    for ago in range(_KEPT_MINUTES):
        before = kept.get(end_ms - ago * _MINUTE_MS, before)
        found.append(before)
    return found[::-1]


def _between(values: list[float], interval_ms: int) -> Iterator[float]:
    """The same at another interval over two hours: the hour twice, what lies between two minutes on a line; counts stay whole."""
    for at_ms in range(0, 2 * _KEPT_MINUTES * _MINUTE_MS, interval_ms):
        minute, rest = divmod(at_ms, _MINUTE_MS)
        first, second = values[minute % len(values)], values[(minute + 1) % len(values)]
        if not rest or minute % len(values) == len(values) - 1:
            yield first
            continue
        between = first + (second - first) * rest / _MINUTE_MS
        yield float(math.floor(between)) if first.is_integer() and second.is_integer() else between


def _copied(labels: dict[str, str], models: int) -> Iterator[dict[str, str]]:
    """A model's series once a model, a replica's, a node's, a GPU's or an exporter's once a copy of it; all others once."""
    single = [name for name in _SINGLE if name in labels]
    for model in range(models if "model_name" in labels or single else 1):
        for copy in range(_COPIES_A_MODEL if single else 1):
            found = {**labels, **{name: f"{labels[name]}-{model}-{copy}" for name in single}}
            pool = model % 4 - 2
            if "model_name" in labels:
                # a pair of pools has one name
                found["model_name"] = f"{labels['model_name']}-{model - max(pool, 0)}"
            if labels.get("role") == "unified" and pool >= 0:
                found["role"] = ("prefill", "decode")[pool]
            yield found


# --- what Prometheus uses to answer each rule once

FIXED = "sum(rate(bench_fixed[2h]))"
_FIXED_SERIES = 2000
_RUNS = 3
_SLOW_SECONDS = 2.0


@dataclass(frozen=True)
class Cost:
    """Of one rule. `samples`: the most that were in memory at once."""

    group: Group
    name: str
    cpu_seconds: float
    samples: int
    series: int  # of its answer


@dataclass(frozen=True)
class Result:
    """Of one fleet. CPU in seconds."""

    targets: int
    hours: int
    interval_seconds: float
    fixed_cpu_seconds: float
    rules: tuple[Cost, ...]

    def share(self, group: Group) -> float:
        """How often a group is evaluated in a round."""
        return self.interval_seconds / (group.interval_seconds or self.interval_seconds)

    def of_group(self, name: str) -> float:
        """One evaluation of a group."""
        return sum(rule.cpu_seconds for rule in self.rules if rule.group.name == name)

    @property
    def round_cpu_seconds(self) -> float:
        """All groups, each by its share."""
        return sum(rule.cpu_seconds * self.share(rule.group) for rule in self.rules)

    @property
    def groups(self) -> list[Group]:
        """The dearest first."""
        found = {rule.group.name: rule.group for rule in self.rules}
        return sorted(found.values(), key=lambda group: -self.of_group(group.name))


class Evaluator(PrometheusServer):
    """A Prometheus over a data folder, asked at one moment."""

    def __init__(self, folder: Path, at_unix_seconds: float) -> None:
        bounds = "--query.max-samples=1000000000", "--query.timeout=10m"
        super().__init__(folder, "global: {}\n", *bounds, retention="100y")
        self._time = f"{at_unix_seconds:.3f}"

    def cost(self, expression: str) -> tuple[float, int, int]:
        """CPU seconds, peak samples and series of the answer. What takes long is asked once more, the rest a few times."""
        ask_query(self, "/api/v1/query", expression, time=self._time)
        least = float("inf")
        for _ in range(_RUNS):
            cost, data = ask_query(self, "/api/v1/query", expression, time=self._time)
            least = min(least, cost.cpu_seconds)
            if least > _SLOW_SECONDS:
                break
        return least, cost.peak_samples, len(data["result"])


def fixed_series(interval_ms: int) -> list[Series]:
    shape = Shape([float(17 * number) for number in range(2 * 3_600_000 // interval_ms)], interval_ms)
    return [Series((("__name__", "bench_fixed"), ("n", str(number))), shape) for number in range(_FIXED_SERIES)]


def measure(fleet: Fleet, groups: Sequence[Group], interval_ms: int, targets: int, hours: int) -> Result:
    models = fleet.copies(targets)
    end_ms = end_before(int(time.time() * 1000))
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as name:
        folder = Path(name)
        begun = time.monotonic()
        series = fleet.series(models)
        say(f"writing {hours} h of {fleet.targets_of(models)} targets, {len(series)} series …")
        samples = write_blocks([*series, *fixed_series(interval_ms)], folder / "data", end_ms, hours)
        del series
        say(f"{samples / 1e6:.0f} million samples in {time.monotonic() - begun:.0f} s; asking the rules …")
        # between two scrapes
        with Evaluator(folder, (end_ms - interval_ms + 1000) / 1000) as server:
            fixed = [server.cost(FIXED)[0]]
            rules, told = [], time.monotonic()
            for number, group in enumerate(groups):
                for rule in group.rules:
                    rules.append(Cost(group, _title(rule), *server.cost(rule.expr)))
                if time.monotonic() - told > _SLOW_SECONDS:
                    told = time.monotonic()
                    say(f"{number + 1} of {len(groups)} groups: {group.name} asked")
                if number == len(groups) // 2:
                    fixed.append(server.cost(FIXED)[0])
            fixed.append(server.cost(FIXED)[0])
    return Result(fleet.targets_of(models), hours, interval_ms / 1000, sorted(fixed)[1], tuple(rules))


def _title(rule: Record | AlertRule) -> str:
    if isinstance(rule, Record):
        return " ".join((rule.record, *(f'{label}="{text}"' for label, text in rule.labels.items())))
    return f"{rule.alert} {rule.labels['severity']}"


# --- the tables

# targets and hours of history
SIZES = ((200, 24), (1000, 24), (200, 2), (1000, 2), (3000, 2))
# of the project: CPU seconds of 1,000 targets; samples of a query of 3,000
MOST_A_ROUND, MOST_A_GROUP, MOST_SAMPLES = 4.0, 2.0, 10_000_000


def report(result: Result, shown: int) -> None:
    total, fixed = result.round_cpu_seconds, result.fixed_cpu_seconds
    spent = f"{total:.2f} CPU s a round of {result.interval_seconds:g} s, {total / fixed:.1f} x the fixed query"
    say(f"\n{result.targets} targets, {result.hours} h: {spent} ({fixed:.3f} s)")
    say(f"{'group':<52}{'CPU s':>8}{'x fixed':>9}{'a round':>9}{'peak samples':>14}")
    for group in sorted(result.groups, key=lambda group: -result.of_group(group.name) * result.share(group))[:shown]:
        cost = result.of_group(group.name)
        peak = max(rule.samples for rule in result.rules if rule.group.name == group.name)
        say(f"{group.name:<52}{cost:>8.2f}{cost / fixed:>9.1f}{cost * result.share(group):>9.2f}{peak:>14,}")
    say(f"{'rule':<90}{'CPU s':>8}{'a round':>9}{'series':>8}{'peak samples':>14}")
    for rule in sorted(result.rules, key=lambda rule: -rule.cpu_seconds * result.share(rule.group))[:shown]:
        part = rule.cpu_seconds * result.share(rule.group)
        say(f"{rule.name:<90}{rule.cpu_seconds:>8.3f}{part:>9.3f}{rule.series:>8}{rule.samples:>14,}")
    peak = max(result.rules, key=lambda rule: rule.samples)
    say(f"most samples at once: {peak.samples:,} (at most {MOST_SAMPLES:,}), {peak.name}")


def summarise(results: Sequence[Result]) -> None:
    """The project's bounds, held against 1,000 targets."""
    for result in results:
        if result.targets >= 1000 and result.hours >= 24:
            per = 1000 / result.targets
            dearest = result.groups[0]
            say(
                f"\nof 1,000 targets: {result.round_cpu_seconds * per:.2f} CPU s a round (at most {MOST_A_ROUND:g}), "
                f"{result.of_group(dearest.name) * per:.2f} in {dearest.name} (at most {MOST_A_GROUP:g})"
            )


def settings_at_scrape() -> Settings:
    """The defaults with every objective set."""
    return replace(week_settings(), scrape_interval_seconds=default_settings().scrape_interval_seconds)


def main() -> None:
    parser = make_parser("rules", __doc__)
    parser.add_argument(
        "--targets", type=int, nargs="+", help="default: 200 and 1000 by 24 h, 200, 1000 and 3000 by 2 h"
    )
    parser.add_argument(
        "--hours", type=int, default=24, help="of history with --targets, an even number up to 26 (default 24)"
    )
    parser.add_argument("--shown", type=int, default=12, help="groups and rules in a table (default 12)")
    arguments = parser.parse_args()
    if arguments.hours % 2 or not 2 <= arguments.hours <= 26:
        parser.error("--hours must be an even number from 2 to 26")
    sizes = [(targets, arguments.hours) for targets in arguments.targets] if arguments.targets else SIZES
    settings = settings_at_scrape()
    groups = [group for found in rule_groups(settings).values() for group in found]
    interval_ms = round(1000 * settings.scrape_interval_seconds)
    say("simulating two models and everything that is recorded of them, a minute or two …")
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as name:
        fleet = simulate(groups, interval_ms, Path(name))
    results = []
    for targets, hours in sizes:
        results.append(measure(fleet, groups, interval_ms, targets, hours))
        report(results[-1], arguments.shown)
    summarise(results)


if __name__ == "__main__":
    main()
