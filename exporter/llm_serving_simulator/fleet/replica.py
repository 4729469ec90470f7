"""One replica: an engine that starts, loads, serves, drains, and goes down."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from llm_serving_exporter.model.record import Struct
from llm_serving_simulator.fleet.books import Counts
from llm_serving_simulator.fleet.engine import Engine
from llm_serving_simulator.fleet.exposition import leave_out
from llm_serving_simulator.fleet.page_sglang import LoggedGauges, log_gauges, write_sglang_page
from llm_serving_simulator.fleet.page_vllm import write_vllm_page
from llm_serving_simulator.fleet.request import Record
from llm_serving_simulator.fleet.spec import VLLM, EngineSpec


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
