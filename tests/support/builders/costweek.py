"""A simulated fleet over days of which the true spend, tokens and idle hours are known, and what exporters beside it counted.

Five replicas that work by day and rest by night. What happens to them and to their exporter is the same each day that it happens on:
a node is lost and comes back, the exporter restarts or is replaced, a price changes, a replica comes and goes.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.numbers import add_up
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.history import Sample, Watch
from llm_serving_simulator.fleet.spec import EngineSpec
from llm_serving_simulator.fleet.workload import Lengths, Mix, PoissonWorkload, Profile, Step
from tests.support.builders.fleet_history import write_history
from tests.support.servers.tsdb import make_blocks

HOUR, DAY = 3600.0, 86_400.0
GUEST = "guest"
RESERVED, SPOT = Rate("reserved", RateKind.RESERVED, committed_gpus=8), Rate("spot", RateKind.SPOT)
OLD_USD, NEW_USD, GUEST_USD = 2.40, 1.80, 1.20
# answers of minutes: a replica that works always has some
MIX = Mix(Lengths(800, 0.5, most=4000), Lengths(20_000, 0.2, most=26_000))
SERIES = (
    "llm_serving_target_up", "llm_serving_gpu_seconds_total", "llm_serving_cost_usd_total", "llm_serving_gpu_price_usd_per_hour",
    "llm_serving_rate_info", "llm_serving_rate_committed_gpus",
    "llm_serving_target_info", "llm_serving_target_node_info", "llm_serving_target_gpus",
    "llm_serving_prefill_tokens_total", "llm_serving_decode_tokens_total", "llm_serving_prompt_tokens_total",
    "llm_serving_cached_prompt_tokens_total", "llm_serving_requests_finished_total", "llm_serving_cost_attribution_info",
    "llm_serving_prefix_cache_savings_usd_total", "llm_serving_target_state",
)  # fmt: skip


Key = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Plan:
    """Times in seconds since `begin_unix`. Work goes on from `works_from` to `works_until` of each day of 24 h; `rate` in requests/s.

    `outage`: when replica-1's node is away; `restart`: when there is no exporter; `price_change`; `guest`: when the guest is a target.
    `replaced`: the exporter that comes has another address. What an engine counts in between belongs to no series then, and a file of
    samples has no marks that a series ended: an hour in which that is so is known to some minutes.
    """

    begin_unix: float
    seconds: float
    interval: float
    rate: float = 0.3
    works_from: float = 8 * HOUR
    works_until: float = 18 * HOUR
    outage: tuple[float, float] = (10 * HOUR + 5, 11.5 * HOUR + 5)
    restart: tuple[float, float] = (12 * HOUR + 1, 12 * HOUR + 61)
    replaced: bool = False
    price_change: float = 13 * HOUR
    guest: tuple[float, float] = (9 * HOUR, 15 * HOUR)

    @property
    def book(self) -> PriceBook:
        """What GPUs cost."""
        name = EngineSpec().gpu_spec.name
        return PriceBook(
            (
                PriceStatement(Scope.GPU_MODEL, name, OLD_USD, "reserved"),
                PriceStatement(Scope.GPU_MODEL, name, NEW_USD, "reserved", self.begin_unix + self.price_change),
                PriceStatement(Scope.TARGET, GUEST, GUEST_USD, "spot"),
            ),
            (RESERVED, SPOT),
        )


@dataclass
class Truth:
    """By the simulator's own counts. GPU-hours, USD, tokens."""

    gpu_hours: dict[str, float] = field(default_factory=dict)
    usd: float = 0.0
    prompt_tokens: int = 0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    finished: int = 0


class CostWeek:
    """The fleet and the exporters; `write` advances it to its end, once. `last`: what the exporter of the regular replicas said in the end,
    the first one and the one after it."""

    def __init__(self, plan: Plan, seed: int = 11) -> None:
        self.plan = plan
        one, two = EngineSpec(), EngineSpec(tensor=2)
        replicas = [ReplicaSpec(f"replica-{number}", (f"node-{number}",), one) for number in range(3)]
        replicas += [ReplicaSpec("wide", ("node-3",), two), ReplicaSpec(GUEST, ("node-4",), two)]
        days = range(int(plan.seconds // DAY) + 1)
        steps = [Step(0.0, 0.0)]
        for day in days:
            steps += [Step(day * DAY + plan.works_from, 1.0), Step(day * DAY + plan.works_until, 0.0)]
        workload = PoissonWorkload(Profile(plan.rate, steps=tuple(steps)), [MIX], seed)
        self.fleet = Fleet(replicas, workload, ready=4, epoch_unix_seconds=plan.begin_unix)
        fleet = self.fleet
        fleet.call_at(plan.outage[0], lambda: fleet.lose_node("node-1"))
        fleet.call_at(plan.outage[1], lambda: fleet.return_node("node-1"))
        fleet.call_at(plan.guest[0], lambda: fleet.scale(5))
        # just after it was read for the last time
        fleet.call_at(plan.guest[1] + 5.0, lambda: fleet.lose_node("node-4"))
        self._regular = [spec.name for spec in replicas if spec.name != GUEST]
        self._guest: Watch | None = None
        self._own = self._watch(self._regular)
        self._restarted = False
        self.last: tuple[dict[Key, float], dict[Key, float]] = {}, {}

    def _watch(self, names: Iterable[str]) -> Watch:
        return Watch(
            self.fleet, interval_seconds=self.plan.interval, wanted=SERIES, prices=self.plan.book, replicas=names
        )

    def samples(self) -> Iterator[Sample]:
        """What the exporters show now: none while the first restarts."""
        plan, now = self.plan, self.fleet.now_seconds
        if not plan.restart[0] <= now < plan.restart[1]:
            if now >= plan.restart[1] and not self._restarted:
                self._own, self._restarted = self._watch(self._regular), True
            for name, labels, value in self._own.samples():
                self.last[self._restarted][name, tuple(labels.items())] = value
                yield name, {**labels, "instance": f"exporter-{int(self._restarted and plan.replaced)}"}, value
        if plan.guest[0] <= now <= plan.guest[1]:
            if self._guest is None:
                self._guest = self._watch([GUEST])
            yield from (
                (name, {**labels, "instance": "guests"}, value) for name, labels, value in self._guest.samples()
            )

    def write(self, folder: Path) -> None:
        """Blocks of a Prometheus data directory."""
        path = folder / "history.om"
        with path.open("w") as out:
            write_history(
                self.fleet,
                self,
                out,
                until_seconds=self.plan.seconds,
                interval_seconds=self.plan.interval,
                labels={"job": "llm-serving"},
            )
        make_blocks(path, folder / "data", 24)
        path.unlink()

    def truth(self) -> Truth:
        """What really happened."""
        plan, found = self.plan, Truth()
        gpus = {name: replica.spec.engine.gpus for name, replica in self.fleet.replicas.items()}
        there = dict.fromkeys(self._regular, plan.seconds) | {GUEST: plan.guest[1] - plan.guest[0]}
        down = {"replica-1": plan.outage[1] - plan.outage[0]}
        busy = {name: self._worked(name) for name in gpus}
        found.gpu_hours = {
            "busy": add_up(busy[name] * gpus[name] for name in gpus) / HOUR,
            "down": add_up(seconds * gpus[name] for name, seconds in down.items()) / HOUR,
            "idle": add_up((there[name] - busy[name] - down.get(name, 0.0)) * gpus[name] for name in gpus) / HOUR,
        }
        each = plan.price_change * OLD_USD + (plan.seconds - plan.price_change) * NEW_USD
        found.usd = add_up(gpus[name] * each for name in self._regular) / HOUR
        found.usd += gpus[GUEST] * there[GUEST] * GUEST_USD / HOUR
        counts = self.fleet.totals().counts
        found.prompt_tokens, found.decode_tokens = counts.prompt_tokens, counts.generated_tokens
        found.prefill_tokens = counts.prompt_tokens - counts.prompt_hit_tokens
        found.finished = counts.finished
        return found

    def _worked(self, name: str) -> float:
        """Seconds in which the replica had a request."""
        total = until = 0.0
        for begin, end in self._spans(name):
            total += max(0.0, end - max(begin, until))
            until = max(until, end)
        return total

    def _spans(self, name: str) -> list[tuple[float, float]]:
        """From arrival to end, by the requests' own records."""
        return sorted(
            (record.arrived_seconds, record.ended_seconds if record.ended_seconds is not None else self.plan.seconds)
            for record in self.fleet.ledger.records
            if record.replica == name
        )
