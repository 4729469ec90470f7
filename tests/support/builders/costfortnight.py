"""Two weeks of a fleet's cost series as a Prometheus would have recorded them, and what they truly come to, by plain addition.

Five targets, each with something that a sum over counters gets wrong easily: `steady` has a price change and a restart of its exporter,
`paired` two exporters, `brief` comes and goes, `unscraped` a time that Prometheus did not see though its counters went on, `dark` one in
which its exporter was dead.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import pi, sin
from pathlib import Path

from tests.support.servers.tsdb import make_blocks

HOUR, DAY = 3600.0, 86_400.0
# an instant query looks back 300 s
TICK = 240.0
# of each target's sample, so that none lies on an hour
OFFSET = 7.0


@dataclass(frozen=True)
class Target:
    """Times in hours since Monday of the second week's midnight. `price` USD per GPU-hour, `later_price` from `price_hour` on."""

    name: str
    model: str
    team: str
    node: str
    gpu: str
    gpus: int
    rate: str
    price: float
    later_price: float | None = None
    price_hour: float = 72.0
    busy: float = 0.5
    begin: float = -168.0
    end: float = 168.0
    restarts: tuple[float, ...] = ()
    unscraped: tuple[tuple[float, float], ...] = ()
    dead: tuple[tuple[float, float], ...] = ()
    exporters: int = 1


TARGETS = (
    Target("steady:8000", "m-large", "red", "n1", "H100", 2, "reserved-1y", 2.0, later_price=2.5, restarts=(36.57,)),
    Target("paired:8000", "m-large", "blue", "n2", "H100", 1, "on-demand", 4.0, exporters=2),
    Target("brief:8000", "m-small", "blue", "n2", "A100", 1, "spot", 1.0, begin=30.5, end=114.2),
    Target("unscraped:8000", "m-small", "red", "n3", "H100", 1, "on-demand", 4.0, unscraped=((58.3351, 61.6682),)),
    Target("dark:8000", "m-small", "red", "n3", "H100", 1, "on-demand", 4.0, busy=0.2, dead=((122.2527, 125.7521),)),
)
KINDS = {"reserved-1y": "reserved", "on-demand": "on_demand", "spot": "spot"}
COMMITTED = 3
BUDGET = 4000.0


@dataclass
class Truth:
    """What one week comes to. Cost by phase, team, model, rate; tokens by kind; hours by state."""

    usd: float = 0.0
    by: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    tokens: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    gpu_hours: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    requests: float = 0.0
    missing_gpu_hours: float = 0.0


def load(hour: float) -> float:
    """Share of a replica's tokens at an hour of the fortnight: day and night, and a tenth more in the second week."""
    return (0.6 + 0.4 * sin(2 * pi * (hour % 24 - 9) / 24)) * (1.1 if hour >= 0 else 1.0)


class Recorded:
    """Samples by hours since `monday`, Unix seconds at which the second week begins. `text` is OpenMetrics."""

    def __init__(self, monday: float) -> None:
        self.monday = monday
        self._lines: dict[str, list[str]] = defaultdict(list)

    @property
    def text(self) -> str:
        return "\n".join([line for name in sorted(self._lines) for line in self._lines[name]] + ["# EOF", ""])

    def put(self, name: str, hour: float, value: float, **labels: str) -> None:
        shown = ",".join(f'{key}="{text}"' for key, text in labels.items())
        self._lines[name].append(f"{name}{{{shown}}} {value:.10g} {self.monday + hour * HOUR + OFFSET:.3f}")


class Fortnight(Recorded):
    """`weeks`: the truth of the first and the second."""

    def __init__(self, monday: float, targets: tuple[Target, ...] = TARGETS) -> None:
        super().__init__(monday)
        self.weeks = (Truth(), Truth())
        for target in targets:
            self._record(target)
        self._record_fleet()

    def _record(self, target: Target) -> None:
        counters = [defaultdict(float) for _ in range(target.exporters)]
        own = {"target": target.name, "model_name": target.model, "role": "unified"}
        hour, step = target.begin, TICK / HOUR
        while hour <= target.end:
            dead = any(begin < hour <= end for begin, end in target.dead)
            truth = self.weeks[0 if hour <= 0 else 1]
            grown = dict(self._grown(target, hour))
            if hour > target.begin:
                if dead:
                    truth.missing_gpu_hours += target.gpus * step
                else:
                    self._true(truth, target, grown)
            for number, counter in enumerate(counters):
                if dead or any(abs(hour - restart) < step / 2 for restart in target.restarts):
                    counter.clear()
                # the second one of a pair had counted before
                fresh = dead or (hour == target.begin and number == 0)
                for key, value in grown.items():
                    counter[key] += 0.0 if fresh else value
                if dead or any(begin < hour < end for begin, end in target.unscraped):
                    continue
                scrape = {"team": target.team, "instance": f"exporter-{number}:10077"}
                for (name, more), value in counter.items():
                    self.put(name, hour, value, **own, engine="0", **dict(more), **scrape)
            hour += step
        # beside the counters, on one exporter
        for key in ("unscraped", "dead"):
            assert len(getattr(target, key)) < 2
        self._gauges(target)

    def _gauges(self, target: Target) -> None:
        scrape = {"team": target.team, "instance": "exporter-0:10077"}
        own = {"target": target.name, "model_name": target.model, "role": "unified"}
        at = {"target": target.name, "gpu_name": target.gpu}
        silent = (*target.unscraped, *target.dead)
        hour = target.begin
        while hour <= target.end:
            if not any(begin < hour < end for begin, end in silent):
                price = target.later_price if target.later_price and hour > target.price_hour else target.price
                self.put("llm_serving_gpu_price_usd_per_hour", hour, price, **at, rate=target.rate, **scrape)
                self.put("llm_serving_target_gpus", hour, target.gpus, **at, **scrape)
                self.put("llm_serving_target_node_info", hour, 1, **own, node=target.node, **scrape)
                engine = {**own, "engine": "0"}
                self.put("llm_serving_bandwidth_ceiling_ratio", hour, 0.42, **engine, source="model", **scrape)
                self.put("llm_serving_batch_utilization_ratio", hour, 0.2, **engine, **scrape)
                how = {"method": "roofline", "inputs": "model,gpu"}
                self.put("llm_serving_cost_attribution_info", hour, 1, **engine, **how, **scrape)
            hour += TICK / HOUR

    def _grown(self, target: Target, hour: float) -> Iterator[tuple[tuple[str, tuple[tuple[str, str], ...]], float]]:
        """A tick's growth that ends at an hour."""
        seconds = TICK * target.gpus
        price = target.later_price if target.later_price and hour > target.price_hour else target.price
        rate = ("rate", target.rate)
        for state, share in (("busy", target.busy), ("idle", 1 - target.busy)):
            yield ("llm_serving_gpu_seconds_total", (("state", state), rate)), share * seconds
        for phase, share in (("prefill", 0.3 * target.busy), ("decode", 0.7 * target.busy), ("idle", 1 - target.busy)):
            key = "llm_serving_cost_usd_total", (("phase", phase), rate, ("method", "roofline"))
            yield key, share * seconds / 3600 * price
        made = load(hour) * TICK * target.gpus
        for name, per_second in (("prefill", 900.0), ("decode", 400.0), ("prompt", 1200.0), ("cached_prompt", 300.0)):
            yield (f"llm_serving_{name}_tokens_total", ()), per_second * made
        yield ("llm_serving_requests_finished_total", (("reason", "stop"),)), 2.0 * made
        for outcome, share in (("good", 0.985), ("bad", 0.015)):
            labels = ("slo", "ttft"), ("outcome", outcome), ("source", "page"), ("threshold", "2.5")
            yield ("llm_serving_slo_events_total", labels), 2.0 * share * made
        yield ("llm_serving_energy_joules_total", ()), 400.0 * seconds
        if target.rate == "on-demand":
            yield ("llm_serving_energy_cost_usd_total", ()), 400.0 * seconds / 3.6e6 * 0.25
        yield ("llm_serving_carbon_grams_total", ()), 400.0 * seconds / 3.6e6 * 380
        yield ("llm_serving_prefix_cache_savings_usd_total", ()), 0.01 * seconds / 3600

    @staticmethod
    def _true(truth: Truth, target: Target, grown: dict[tuple[str, tuple[tuple[str, str], ...]], float]) -> None:
        for (name, more), value in grown.items():
            labels = dict(more)
            if name == "llm_serving_cost_usd_total":
                truth.usd += value
                for label in (labels["phase"], target.team, target.model, target.rate, target.node):
                    truth.by["usd", label] += value
            elif name == "llm_serving_gpu_seconds_total":
                truth.gpu_hours[labels["state"]] += value / 3600
            elif name.endswith("_tokens_total"):
                truth.tokens[name.removeprefix("llm_serving_").removesuffix("_tokens_total")] += value
            elif name == "llm_serving_requests_finished_total":
                truth.requests += value

    def _record_fleet(self) -> None:
        """The book, replicas as the rule pack records them, and alerts: a page twice on Tuesday, a ticket that flaps on Friday."""
        model = {"model_name": "m-large", "role": "unified"}
        hour, step = -168.0, TICK / HOUR
        while hour <= 168.0:
            for rate, kind in KINDS.items():
                power = "false" if kind == "on_demand" else "true"
                self.put("llm_serving_rate_info", hour, 1, rate=rate, kind=kind, includes_power=power)
            self.put("llm_serving_rate_committed_gpus", hour, COMMITTED, rate="reserved-1y")
            self.put("llm_serving_cost_budget_usd_per_month", hour, BUDGET)
            self.put("model:llm_serving_present_replicas:sum", hour, 2, **model)
            night = hour % 24 < 6
            for reserve, needed in (("none", 0.5 if night else 1.0), ("nodes", 1.0 if night else 2.0)):
                self.put("model:llm_serving_required_replicas:ceil", hour, needed, **model, reserve=reserve)
            hour += step
        for begin, minutes, name, severity in (
            (33.0, 20, "LLMServingTTFTBurn", "critical"),
            (40.0, 10, "LLMServingTTFTBurn", "critical"),
            (100.0, 30, "LLMServingKVSaturated", "warning"),
            (-3.0, 30, "LLMServingTargetDown", "warning"),
            (5.0, 60, "LLMServingDrillOverdue", "info"),
            # rules were evaluated from Monday noon on
            (12.0, 60 * 156, "LLMServingWatchdog", "none"),
        ):
            about = {"alertname": name, "alertstate": "firing", "severity": severity, "model_name": "m-large"}
            # its last sample is followed by a stale marker, which OpenMetrics has not: a look back sees it for 5 minutes more
            for minute in range(minutes):
                self.put("ALERTS", begin + minute / 60, 1, **about)


def blocks(text: str, folder: Path) -> None:
    """Makes Prometheus' own blocks of OpenMetrics text, as few as it allows: it reads the text once for each."""
    source = folder.parent / f"{folder.name}.om"
    source.write_text(text)
    make_blocks(source, folder)
