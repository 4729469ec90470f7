"""What Prometheus uses to answer each rule once, over the history of a fleet of a given size."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from bench.blocks import Series, end_before, write_blocks
from bench.chunks import Shape
from bench.cycle import say
from bench.rule_fleet import Fleet
from bench.servers import Program, free_port, need
from llm_serving_alerts.rules import AlertRule, Group, Record

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


class Server:
    """A Prometheus over a data folder, asked at one moment."""

    def __init__(self, folder: Path, at_unix_seconds: float) -> None:
        config, port = folder / "prometheus.yml", free_port()
        config.write_text("global: {}\n")
        self._at, self._url = at_unix_seconds, f"http://127.0.0.1:{port}"
        self.program = Program(
            need("prometheus"), f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}", "--storage.tsdb.retention.time=100y",
            "--query.max-samples=1000000000", "--query.timeout=10m", ready_url=f"{self._url}/-/ready",
        )  # fmt: skip
        self._http = requests.Session()
        self._http.trust_env = False

    def ask(self, expression: str) -> dict[str, Any]:
        """The data of an answer. Raises SystemExit for an expression that is refused."""
        fields = {"query": expression, "time": f"{self._at:.3f}", "stats": "all"}
        answer = self._http.post(f"{self._url}/api/v1/query", data=fields, timeout=600).json()
        if answer["status"] != "success":
            raise SystemExit(f"{answer['error']}: {expression}")
        found: dict[str, Any] = answer["data"]
        return found

    def cost(self, expression: str) -> tuple[float, int, int]:
        """CPU seconds, peak samples and series of the answer. What takes long is asked once more, the rest a few times."""
        found = self.ask(expression)
        least = float("inf")
        for _ in range(_RUNS):
            before = self.program.thread_cpu_seconds()
            self.ask(expression)
            least = min(least, self.program.thread_cpu_seconds() - before)
            if least > _SLOW_SECONDS:
                break
        return least, int(found["stats"]["samples"]["peakSamples"]), len(found["result"])


def fixed_series(interval_ms: int) -> list[Series]:
    """What the fixed query reads: as much of it at every size."""
    shape = Shape([float(17 * number) for number in range(2 * 3_600_000 // interval_ms)], interval_ms)
    return [Series((("__name__", "bench_fixed"), ("n", str(number))), shape) for number in range(_FIXED_SERIES)]


def measure(fleet: Fleet, groups: Sequence[Group], interval_ms: int, targets: int, hours: int) -> Result:
    """Writes the history of so many targets and asks every rule."""
    models = fleet.copies(targets)
    end_ms = end_before(int(time.time() * 1000))
    with tempfile.TemporaryDirectory(prefix="bench-rules-") as name:
        folder = Path(name)
        begun = time.monotonic()
        series = fleet.series(models)
        say(f"writing {hours} h of {fleet.targets_of(models)} targets, {len(series)} series …")
        written = write_blocks([*series, *fixed_series(interval_ms)], folder / "data", end_ms, hours)
        del series
        say(f"{written.samples / 1e6:.0f} million samples in {time.monotonic() - begun:.0f} s; asking the rules …")
        # between two scrapes
        server = Server(folder, (end_ms - interval_ms + 1000) / 1000)
        with server.program:
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
