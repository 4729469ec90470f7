"""Replicas on nodes behind a router, in simulated seconds: the whole state of a scenario, without clock, thread or socket."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from llm_serving_exporter.model.record import Struct
from llm_serving_simulator.fleet.books import MARK_SECONDS, Counts, Ledger, Totals, Truth
from llm_serving_simulator.fleet.engine import Engine
from llm_serving_simulator.fleet.pages import LoggedGauges, leave_out, log_gauges, write_sglang_page, write_vllm_page
from llm_serving_simulator.fleet.spec import VLLM, EngineSpec
from llm_serving_simulator.fleet.workload import Outcome, Quiet, Record, Request

# --- One replica: an engine that starts, loads, serves, drains, and goes down.


class ReplicaState(StrEnum):
    """What a replica is doing. A hung engine is ready: nothing outside can tell."""

    STOPPED = "stopped"  # not wanted, or being replaced
    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"  # serves what it has, gets nothing new
    DOWN = "down"  # its node is gone


class ReplicaSpec(Struct, frozen=True):
    """A replica as a scenario states it."""

    name: str  # unique in the fleet
    nodes: tuple[str, ...]  # that it spans, its GPUs spread evenly over them
    engine: EngineSpec  # model, GPUs and limits

    def __post_init__(self) -> None:
        if not self.nodes or self.engine.gpus % len(self.nodes):
            raise ValueError(
                f"replica {self.name}: {self.engine.gpus} GPUs do not spread evenly over {len(self.nodes)} nodes"
            )


class Replica:
    """`engine` is there while it is ready or drains. `started_seconds`: of the process that is, or was last."""

    def __init__(self, spec: ReplicaSpec, on_first_token: Callable[[Record], None]) -> None:
        self.spec = spec
        self.state = ReplicaState.STOPPED
        self.engine: Engine | None = None
        self.started_seconds = 0.0
        self.ready_seconds = 0.0
        self.starts = 0
        self.past = Counts()
        self.wanted = True
        self.held = 0  # requests that its front end keeps back
        self._logged = LoggedGauges()
        self._on_first_token = on_first_token

    @property
    def name(self) -> str:
        """Its name, which no other has."""
        return self.spec.name

    @property
    def ready(self) -> bool:
        """Whether the router may choose it."""
        return self.state is ReplicaState.READY

    @property
    def load(self) -> int:
        """Requests that it has."""
        return self.engine.load + self.held if self.engine else 0

    @property
    def counts(self) -> Counts:
        """Over all its lives."""
        return self.past + self.engine.books.counts if self.engine else self.past

    def start(self, at_seconds: float) -> None:
        """A new process, which loads the model first."""
        self.state, self.started_seconds = ReplicaState.LOADING, at_seconds
        self.ready_seconds = at_seconds + self.spec.engine.loading_seconds
        self.starts += 1
        self.held = 0

    def serve(self) -> None:
        """The model is loaded."""
        self.state = ReplicaState.READY
        self._logged = LoggedGauges()
        self.engine = Engine(self.spec.engine, self.ready_seconds, on_first_token=self._on_first_token)

    def drain(self) -> None:
        """Takes nothing new."""
        self.state = ReplicaState.DRAINING

    def end(self, state: ReplicaState) -> list[Record]:
        """The process is gone; the requests that went with it."""
        self.state = state
        if self.engine is None:
            return []
        lost = self.engine.crash()
        self.past = self.past + self.engine.books.counts
        self.engine = None
        return lost

    def page(self, started_unix_seconds: float, now_seconds: float) -> bytes | None:
        """Its metrics page at `now_seconds` of simulated time, of a process that started then by the wall; None while it does not serve."""
        if self.engine is None:
            return None
        if self.spec.engine.runtime == VLLM:
            page = write_vllm_page(self.engine, started_unix_seconds)
        else:
            self._logged = log_gauges(self.engine, self._logged, now_seconds)
            page = write_sglang_page(self.engine, self._logged)
        return leave_out(page, self.spec.engine.lacks) if self.spec.engine.lacks else page


# --- Which replica a request goes to.


def least_loaded(replicas: Iterable[Replica]) -> Replica | None:
    """The ready replica with the fewest requests, of several the one that has had the fewest so far; None where none is ready."""
    ready = [
        (len(engine.running) + len(engine.waiting) + replica.held, engine.books.counts.submitted, replica.name, replica)
        for replica in replicas
        # asked for each request: most of what it costs to pass one on
        if (engine := replica.engine) is not None and replica.state is ReplicaState.READY
    ]
    return min(ready)[3] if ready else None


# --- The fleet


# how long a replica that is to stop may finish its requests, and how often it is looked whether it has
DRAIN_SECONDS, DRAIN_LOOK_SECONDS = 120.0, 1.0
MOST_TRIES = 3


class Workload(Protocol):
    """Where requests come from."""

    def requests(self) -> Iterable[Request | Quiet]:
        """Requests in order of time, and where it is quiet for long until when."""
        ...


class Fleet:
    """`advance` moves it on; everything that is done to it happens at `now_seconds`, or by `at` at a time to come.

    All replicas serve at second 0. `retry`: a request that is lost with its replica is tried again at once, at most three times in all.
    Replicas beyond the first `ready` (None: all) are stopped at first. `epoch_unix_seconds`: what a wall clock shows at second 0; only
    pages tell it. `unix_speed`: simulated seconds that pass while that clock goes on by one. Raises FactsError or ValueError for engines
    that cannot be.
    """

    def __init__(
        self,
        replicas: Sequence[ReplicaSpec],
        workload: Workload,
        *,
        retry: bool = False,
        ready: int | None = None,
        epoch_unix_seconds: float = 0.0,
    ) -> None:
        self.now_seconds = 0.0
        self.epoch_unix_seconds, self.unix_speed = epoch_unix_seconds, 1.0
        self.retry = retry
        self.ledger = Ledger()
        self.replicas = {spec.name: Replica(spec, self.ledger.first_token) for spec in replicas}
        self.nodes = tuple(dict.fromkeys(node for spec in replicas for node in spec.nodes))
        self.lost_nodes: set[str] = set()
        self.unreachable: set[str] = set()  # replicas that an exporter cannot ask, though they serve
        self.throttled: set[str] = set()  # replicas whose GPUs say that they are too hot
        self._first_token_delays: dict[str, float] = {}
        # which replica gets a request; None where none is ready
        self.choose_replica: Callable[[Collection[Replica], Request], Replica | None]
        self.choose_replica = lambda replicas, _request: least_loaded(replicas)
        self._error_share = 0.0
        self._totals = Totals(Counts())
        self._requests = iter(workload.requests())
        self._next = next(self._requests, None)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._numbered = 0
        self._marks = 0
        for number, replica in enumerate(self.replicas.values()):
            replica.wanted = ready is None or number < ready
            if replica.wanted:
                replica.starts, replica.state = 1, ReplicaState.READY
                replica.serve()
        self._mark()

    def replica(self, name: str) -> Replica:
        """By name. Raises KeyError."""
        return self.replicas[name]

    def page(self, name: str) -> bytes | None:
        """A replica's metrics page as it is now, None while it does not serve. Raises KeyError."""
        replica = self.replicas[name]
        return replica.page(self.unix_seconds(replica.started_seconds), self.now_seconds)

    def unix_seconds(self, seconds: float) -> float:
        """What the wall clock shows at a simulated second."""
        return self.epoch_unix_seconds + seconds / self.unix_speed

    # --- time -----------------------------------------------------------------------------------------------------

    def call_at(self, seconds: float, action: Callable[[], None]) -> None:
        """Has `action` called at a time to come; of several at one time, in the order in which they were asked for."""
        heapq.heappush(self._events, (max(seconds, self.now_seconds), self._numbered, action))
        self._numbered += 1

    def advance(self, until_seconds: float) -> None:
        """Everything that happens until then."""
        while True:
            event = self._events[0][0] if self._events else float("inf")
            arrival = self._next.at_seconds if self._next else float("inf")
            mark = self._marks * MARK_SECONDS
            nearest = min(event, arrival, mark)
            if nearest > until_seconds:
                break
            # a router asks who has how much to do, and no more
            self._move(nearest, book=nearest in (event, mark))
            if event == nearest:
                heapq.heappop(self._events)[2]()
            elif mark == nearest:
                self._mark()
            else:
                assert self._next is not None
                request, self._next = self._next, next(self._requests, None)
                if isinstance(request, Request):
                    self._arrive(request)
        self._move(until_seconds)

    def _move(self, to: float, *, book: bool = True) -> None:
        self.now_seconds = now = max(self.now_seconds, to)
        for replica in self.replicas.values():
            engine = replica.engine
            if engine is not None and (book or engine.due_seconds <= now):
                (engine.advance if book else engine.settle)(now)

    def _mark(self) -> None:
        self.ledger.waiting(self.waiting)
        self.ledger.mark(self._marks * MARK_SECONDS, self.totals())
        self._marks += 1

    # --- truth ----------------------------------------------------------------------------------------------------

    @property
    def waiting(self) -> int:
        """Requests that wait, at all replicas."""
        return sum([len(engine.waiting) for replica in self.replicas.values() if (engine := replica.engine)])

    @property
    def running(self) -> int:
        """Requests that run, at all replicas."""
        return sum(len(replica.engine.running) for replica in self.replicas.values() if replica.engine)

    def totals(self) -> Totals:
        """Counts since the beginning, as they are now."""
        counts = sum((replica.counts for replica in self.replicas.values()), Counts())
        now = self._totals
        return Totals(counts, now.arrived, now.lost, now.retried, now.unrouted)

    def truth(self, begin_seconds: float, end_seconds: float) -> Truth:
        """What happened between two times, to the precision of a mark (10 s)."""
        return self.ledger.truth_between(begin_seconds, min(end_seconds, self.now_seconds))

    # --- requests -------------------------------------------------------------------------------------------------

    def _arrive(self, request: Request) -> None:
        self._totals.arrived += 1
        record = Record(request, self.now_seconds)
        self.ledger.records.append(record)
        self._route(record)

    def _route(self, record: Record) -> None:
        chosen = self.choose_replica(self.replicas.values(), record.request)
        if chosen is None or chosen.engine is None:
            self._totals.unrouted += 1
            record.outcome, record.ended_seconds = Outcome.UNROUTED, self.now_seconds
            return
        record.replica = chosen.name
        delay = self._first_token_delays.get(chosen.name, 0.0)
        if delay:
            self._hold(chosen, record, delay)
            return
        chosen.engine.submit(record.request, self.now_seconds, record)
        self.ledger.waiting(self.waiting)

    def _hold(self, replica: Replica, record: Record, delay_seconds: float) -> None:
        """The front end of the replica keeps a request for a while; to clients and histograms it has arrived."""
        start = replica.starts
        replica.held += 1

        def pass_on() -> None:
            if replica.starts != start or replica.engine is None:
                self._lose([record])
                return
            replica.held -= 1
            replica.engine.submit(record.request, self.now_seconds, record, held_seconds=delay_seconds)
            self.ledger.waiting(self.waiting)

        self.call_at(self.now_seconds + delay_seconds, pass_on)

    def _lose(self, records: Iterable[Record]) -> None:
        for record in records:
            if self.retry and record.tries < MOST_TRIES:
                record.tries += 1
                self._totals.retried += 1
                self._route(record)
            else:
                self._totals.lost += 1
                record.outcome, record.ended_seconds = Outcome.LOST, self.now_seconds

    # --- lives of replicas ----------------------------------------------------------------------------------------

    def lose_node(self, node: str) -> None:
        """The node is gone, and every replica that touches it. Raises KeyError for a node that is not there."""
        if node not in self.nodes:
            raise KeyError(node)
        self.lost_nodes.add(node)
        lost: list[Record] = []
        for replica in self.replicas.values():
            if node in replica.spec.nodes and replica.state is not ReplicaState.DOWN:
                lost += replica.end(ReplicaState.DOWN)
        self._lose(lost)

    def return_node(self, node: str) -> None:
        """The node is back; replicas that have all their nodes again start. Raises KeyError for a node that is not there."""
        if node not in self.nodes:
            raise KeyError(node)
        self.lost_nodes.discard(node)
        for replica in self.replicas.values():
            if replica.state is ReplicaState.DOWN and self.lost_nodes.isdisjoint(replica.spec.nodes):
                replica.state = ReplicaState.STOPPED
                if replica.wanted:
                    self._start(replica)

    def restart(self, name: str, *, loading_seconds: float | None = None) -> None:
        """The process of a replica ends, with its requests, and a new one starts. Raises KeyError. A replica whose node is gone stays
        down."""
        replica = self.replicas[name]
        if replica.state is ReplicaState.DOWN:
            return
        lost = replica.end(ReplicaState.STOPPED)
        self._start(replica, loading_seconds)
        self._lose(lost)

    def stop(self, name: str) -> None:
        """A replica drains and stops, though it is wanted, until `restart`. Raises KeyError."""
        if self.replicas[name].ready:
            self._drain(self.replicas[name], _nothing)

    def scale(self, replicas: int) -> None:
        """The first `replicas` are wanted: those that are not there start, the others finish what they have and stop."""
        for number, replica in enumerate(self.replicas.values()):
            replica.wanted = number < replicas
            if replica.wanted and replica.state is ReplicaState.DRAINING:
                replica.state = ReplicaState.READY
            elif replica.wanted and replica.state is ReplicaState.STOPPED:
                self._start(replica)
            elif not replica.wanted and replica.state is ReplicaState.LOADING:
                replica.end(ReplicaState.STOPPED)
            elif not replica.wanted and replica.ready:
                self._drain(replica, _nothing)

    def rolling_update(self) -> None:
        """Every wanted replica is replaced, one after the other: it drains, stops, starts and is ready before the next one's turn. Ends
        where a replica is lost while it drains."""
        self._roll([replica for replica in self.replicas.values() if replica.wanted])

    def upgrade(self, names: Iterable[str] | None = None) -> None:
        """Each of the replicas (None: all that are wanted) is replaced by the next one that was never started, as a Deployment does with a
        surge of one: that one starts, and once it serves the old one drains and is wanted no more. Waits for ever where one never serves.

        Raises KeyError for a replica that is not there, ValueError where there are not as many others.
        """
        outgoing = [replica for replica in self.replicas.values() if replica.wanted]
        if names is not None:
            outgoing = [self.replicas[name] for name in names]
        incoming = [replica for replica in self.replicas.values() if not replica.starts]
        if len(incoming) < len(outgoing):
            raise ValueError(
                f"{len(outgoing)} replicas are to be replaced, and only {len(incoming)} were never started"
            )
        self._replace(outgoing, incoming)

    def _replace(self, outgoing: list[Replica], incoming: list[Replica]) -> None:
        if not outgoing:
            return
        old, new = outgoing[0], incoming[0]
        new.wanted = True
        self._start(new)

        def stop_old() -> None:
            if not new.ready:
                return
            old.wanted = False
            if old.ready:
                self._drain(old, _nothing)
            self._replace(outgoing[1:], incoming[1:])

        self.call_at(new.ready_seconds, stop_old)

    def _roll(self, left: list[Replica]) -> None:
        if not left:
            return
        replica, rest = left[0], left[1:]
        if not replica.ready:
            self._roll(rest)
            return

        def replaced(_replica: Replica) -> None:
            self._start(replica)
            self.call_at(replica.ready_seconds, lambda: self._roll(rest))

        self._drain(replica, replaced)

    def _start(self, replica: Replica, loading_seconds: float | None = None) -> None:
        replica.start(self.now_seconds)
        if loading_seconds is not None:
            replica.ready_seconds = self.now_seconds + loading_seconds
        start = replica.starts

        def loaded() -> None:
            # another start, or the loss of its node, may have come between
            if replica.state is ReplicaState.LOADING and replica.starts == start:
                replica.serve()
                assert replica.engine is not None
                replica.engine.error_share = self._error_share

        self.call_at(replica.ready_seconds, loaded)

    def _drain(self, replica: Replica, then: Callable[[Replica], None]) -> None:
        replica.drain()
        deadline, start = self.now_seconds + DRAIN_SECONDS, replica.starts

        def end_when_drained() -> None:
            if replica.state is not ReplicaState.DRAINING or replica.starts != start:
                return
            if replica.load and self.now_seconds < deadline:
                self.call_at(self.now_seconds + DRAIN_LOOK_SECONDS, end_when_drained)
                return
            lost = replica.end(ReplicaState.STOPPED)
            then(replica)
            self._lose(lost)

        end_when_drained()

    # --- faults of engines; `names` None: of all ------------------------------------------------------------------

    def engines(self, names: Iterable[str] | None = None) -> list[Engine]:
        """Those that are there, of the replicas that are named. Raises KeyError."""
        chosen = self.replicas.values() if names is None else [self.replicas[name] for name in names]
        return [replica.engine for replica in chosen if replica.engine is not None]

    def slow_down(self, factor: float, names: Iterable[str] | None = None) -> None:
        """Steps take `factor` times as long."""
        for engine in self.engines(names):
            engine.slow_down(factor, self.now_seconds)

    def throttle(self, factor: float, names: Iterable[str] | None = None) -> None:
        """GPUs are too hot and say so: steps take `factor` times as long. 1 ends it."""
        chosen = list(self.replicas if names is None else names)
        self.slow_down(factor, chosen)
        self.throttled = self.throttled - set(chosen) if factor == 1 else self.throttled | set(chosen)

    def delay_first_tokens(self, seconds: float, names: Iterable[str] | None = None) -> None:
        """The front end keeps each request so long before the engine has it, as a slow tokeniser does. 0 ends it. Raises KeyError."""
        for name in self.replicas if names is None else names:
            self._first_token_delays[self.replicas[name].name] = seconds

    def cut_off(self, names: Iterable[str] | None = None) -> None:
        """An exporter's questions are not answered any more, while clients are served as before. Raises KeyError."""
        self.unreachable |= {self.replicas[name].name for name in (self.replicas if names is None else names)}

    def reconnect(self, names: Iterable[str] | None = None) -> None:
        """Ends `cut_off`."""
        self.unreachable -= set(self.replicas if names is None else names)

    def hang(self, names: Iterable[str] | None = None) -> None:
        """Engines make no step any more; pages and health checks answer as before."""
        for engine in self.engines(names):
            engine.hang(self.now_seconds)

    def resume(self, names: Iterable[str] | None = None) -> None:
        """Engines that hang go on."""
        for engine in self.engines(names):
            if engine.hung:
                engine.resume(self.now_seconds)

    def fail(self, share: float, names: Iterable[str] | None = None) -> None:
        """A share of requests ends with an error. For all replicas it holds for engines that start later too."""
        if names is None:
            self._error_share = share
        for engine in self.engines(names):
            engine.error_share = share

    def reset_prefix_cache(self, names: Iterable[str] | None = None) -> None:
        """Everything that is cached and not in use is forgotten."""
        for engine in self.engines(names):
            engine.reset_prefix_cache(self.now_seconds)

    def look_up_prefixes(self, on: bool, names: Iterable[str] | None = None) -> None:
        """Off: nothing is found in the prefix cache, although it is asked."""
        for engine in self.engines(names):
            engine.prefix_lookups = on


def _nothing(_of: object) -> None:
    """What nobody waits for."""
