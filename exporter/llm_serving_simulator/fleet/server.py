"""A fleet that is served, how it is controlled, and an exporter beside it."""

from __future__ import annotations

import argparse
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs, unquote

import yaml

from llm_serving_exporter.errors import ListenError
from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import as_dict, replace
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_exporter.settings.load import load
from llm_serving_simulator.fleet.fleet import Fleet, Replica, ReplicaState
from llm_serving_simulator.fleet.gpus import FleetGpuSource
from llm_serving_simulator.fleet.pages import side_answers
from llm_serving_simulator.fleet.scenario import Scenario
from llm_serving_simulator.options import port_named
from llm_serving_simulator.web import JSON_CONTENT_TYPE, METRICS_CONTENT_TYPE, NOT_FOUND, Answer, Respond, SimServer

# --- A clock that runs faster than the wall: what an exporter must be given beside a fleet that does.


class ScaledClock:
    """Simulated seconds, `speed` to a real one, `begin_seconds` at the moment it is made.

    `monotonic` and `wall` are for the exporter's pipeline: rates that it works out are then per simulated second, timeouts of its requests
    `speed` times shorter than they say. `epoch_unix_seconds`: what `wall` shows at simulated second 0; by default it shows the time now.
    """

    def __init__(
        self,
        speed: float = 1.0,
        epoch_unix_seconds: float | None = None,
        begin_seconds: float = 0.0,
        real_monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if not speed > 0:
            raise ValueError("the speed must be above 0")
        self.speed = speed
        self.epoch_unix_seconds = time.time() - begin_seconds if epoch_unix_seconds is None else epoch_unix_seconds
        self._real = real_monotonic
        self._begin_seconds, self._began = begin_seconds, real_monotonic()

    def monotonic(self) -> float:
        """Simulated seconds."""
        return self._begin_seconds + (self._real() - self._began) * self.speed

    def wall(self) -> float:
        """Simulated unix time."""
        return self.epoch_unix_seconds + self.monotonic()


# --- What can be asked of a running fleet and done to it: requests -> JSON. No socket here.
#
# GET  /fleet                        replicas with their URLs, nodes and states; the time
# GET  /truth?begin=S&end=S          the fleet's own counts between two simulated times (default: from 0 to now)
# POST /nodes/NAME/lose | return
# POST /replicas/NAME/hang | resume | restart
# POST /scale/N   /rolling-update   /slow/FACTOR   /errors/SHARE   /prefix-cache/reset | off | on


Document = dict[str, object]

_QUANTILES = (0.5, 0.9, 0.95, 0.99)


def control(fleet: Fleet, urls: Mapping[str, str], method: str, path: str) -> tuple[int, Document]:
    """One request at a fleet that has been moved on to now: status and JSON. What is wrong with a request is 400 or 404 with a sentence."""
    where, _, query = path.partition("?")
    words = [unquote(word) for word in where.strip("/").split("/")]
    try:
        if method == "GET":
            return _read(fleet, urls, words, parse_qs(query))
        return _apply_command(fleet, words)
    except KeyError as error:
        return 404, {"error": f"there is no {error.args[0]!r} here; see GET /fleet"}
    except ValueError as error:
        return 400, {"error": str(error)}


def fleet_document(fleet: Fleet, urls: Mapping[str, str]) -> Document:
    """GET /fleet."""
    replicas = [
        {
            "name": replica.name,
            "url": urls.get(replica.name),
            "nodes": list(replica.spec.nodes),
            "gpus": replica.spec.engine.gpus,
            "gpu_model": replica.spec.engine.gpu_spec.name,
            "model": replica.spec.engine.served_name,
            "runtime": replica.spec.engine.runtime,
            "state": replica.state.value,
            "hung": bool(replica.engine and replica.engine.hung),
            "ready": replica.ready,
            "starts": replica.starts,
            "running": len(replica.engine.running) if replica.engine else 0,
            "waiting": len(replica.engine.waiting) if replica.engine else 0,
            "kv_usage_ratio": replica.engine.kv.usage_ratio if replica.engine else None,
        }
        for replica in fleet.replicas.values()
    ]
    nodes = [{"name": node, "lost": node in fleet.lost_nodes} for node in fleet.nodes]
    return {
        "seconds": fleet.now_seconds,
        "unix_seconds": fleet.unix_seconds(fleet.now_seconds),
        "replicas": replicas,
        "nodes": nodes,
    }


def truth_document(fleet: Fleet, begin_seconds: float, end_seconds: float) -> Document:
    """GET /truth. Raises ValueError where nothing is known of the interval."""
    truth = fleet.truth(begin_seconds, end_seconds)
    return {
        "begin_seconds": truth.begin_seconds,
        "end_seconds": truth.end_seconds,
        "arrived": truth.arrived,
        "lost": truth.lost,
        "retried": truth.retried,
        "unrouted": truth.unrouted,
        "peak_waiting": truth.peak_waiting,
        "prefill_tokens": truth.prefill_tokens,
        "decode_tokens": truth.decode_tokens,
        "finished": truth.counts.finished,
        "rejected": truth.counts.rejected,
        "counts": as_dict(truth.counts),
        "ttft_seconds": {
            "count": len(truth.ttft_seconds),
            "sum": add_up(truth.ttft_seconds),
            **{f"p{quantile * 100:g}": truth.ttft_quantile_seconds(quantile) for quantile in _QUANTILES},
        },
    }


def _read(
    fleet: Fleet, urls: Mapping[str, str], words: list[str], query: Mapping[str, list[str]]
) -> tuple[int, Document]:
    match words:
        case ["fleet"]:
            return 200, fleet_document(fleet, urls)
        case ["truth"]:
            begin = _number(query.get("begin", ["0"])[0])
            end = _number(query.get("end", [repr(fleet.now_seconds)])[0])
            return 200, truth_document(fleet, begin, end)
    return 404, {"error": "GET /fleet or GET /truth?begin=SECONDS&end=SECONDS"}


def _apply_command(fleet: Fleet, words: list[str]) -> tuple[int, Document]:
    match words:
        case ["nodes", name, "lose"]:
            fleet.lose_node(name)
        case ["nodes", name, "return"]:
            fleet.return_node(name)
        case ["replicas", name, "hang"]:
            fleet.hang([name])
        case ["replicas", name, "resume"]:
            fleet.resume([name])
        case ["replicas", name, "restart"]:
            fleet.restart(name)
        case ["scale", count]:
            fleet.scale(int(_number(count)))
        case ["rolling-update"]:
            fleet.rolling_update()
        case ["slow", factor]:
            fleet.slow_down(_positive(factor))
        case ["errors", share]:
            fleet.fail(_share(share))
        case ["prefix-cache", "reset"]:
            fleet.reset_prefix_cache()
        case ["prefix-cache", "off" | "on" as which]:
            fleet.look_up_prefixes(which == "on")
        case _:
            return 404, {"error": "POST /nodes/NAME/lose|return, /replicas/NAME/hang|resume|restart, /scale/N, /rolling-update, "
                         "/slow/FACTOR, /errors/SHARE or /prefix-cache/reset|off|on"}  # fmt: skip
    return 200, {"done": "/".join(words), "seconds": fleet.now_seconds}


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not a number from 0 up")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if value > 1:
        raise ValueError("a share of requests is a number from 0 to 1")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value == 0:
        raise ValueError("a slow-down is a factor above 0; 1 is none")
    return value


# --- A fleet over HTTP: each replica on a port of its own, in real time or faster.


log = logging.getLogger("llm_serving_exporter.sim")

_HOST = "127.0.0.1"
# how often the fleet is moved on when nobody asks: events and pages come with it, so it need not be fine
_TICK_SECONDS = 0.1

# in words that the exporter takes for loading
_LOADING = Answer(503, JSON_CONTENT_TYPE, b'{"detail":"The model is loading"}')


class FleetServer:
    """Serves a fleet on loopback: a port a replica, fixed for its life, and a control port (see `control`).

    Simulated time is `clock`'s; by default it goes on from the fleet's present, `speed` times as fast as real time. Where the fleet has no
    epoch, its present is now. A replica whose node is lost, or that is stopped or cut off, refuses connections; one that loads answers 503;
    a hung one answers. `first_port`: of the first replica, the others follow; 0 takes free ones. `lock` is held by whoever uses the fleet.
    `real_wall`: pages tell the real time of a start, for a Prometheus whose clock does not run faster.
    Raises ListenError where a port is taken. Use as a context manager or call `close()`.
    """

    def __init__(
        self,
        fleet: Fleet,
        speed: float = 1.0,
        *,
        clock: ScaledClock | None = None,
        first_port: int = 0,
        control_port: int = 0,
        real_wall: bool = False,
    ) -> None:
        self.fleet = fleet
        self.clock = clock or ScaledClock(speed, fleet.epoch_unix_seconds or None, fleet.now_seconds)
        fleet.epoch_unix_seconds = self.clock.epoch_unix_seconds
        if real_wall:
            fleet.unix_speed = self.clock.speed
            fleet.epoch_unix_seconds = time.time() - fleet.now_seconds / fleet.unix_speed
        self.lock = threading.RLock()
        self._stopping = threading.Event()
        self._doors: dict[str, _Door] = {}
        self._control: SimServer | None = None
        self._thread = threading.Thread(target=self._run, name="fleet", daemon=True)
        try:
            for number, replica in enumerate(fleet.replicas.values()):
                port = first_port + number if first_port else 0
                with port_named("--port", port):
                    self._doors[replica.name] = _Door(self._respond(replica), port, replica.name)
            with port_named("--control-port", control_port):
                self._control = SimServer(self._controlled, _HOST, control_port, "fleet-control")
        except ListenError:
            self.close()
            raise
        self._thread.start()

    @property
    def control_url(self) -> str:
        """Where it is controlled."""
        assert self._control is not None
        return self._control.url

    def url(self, name: str) -> str:
        """A replica's server, whether it listens or not. Raises KeyError."""
        return self._doors[name].url

    def advance(self) -> Fleet:
        """The fleet, moved on to now. To be called and used while `lock` is held."""
        self.fleet.advance(self.clock.monotonic())
        for name in self.fleet.replicas:
            self._doors[name].want_open = self._listens(name)
        return self.fleet

    def _listens(self, name: str) -> bool:
        gone = self.fleet.replica(name).state in (ReplicaState.STOPPED, ReplicaState.DOWN)
        return not gone and name not in self.fleet.unreachable

    def close(self) -> None:
        """Ends every server and thread."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._control is not None:
            self._control.close()
        for door in self._doors.values():
            door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stopping.wait(_TICK_SECONDS):
            try:
                with self.lock:
                    self.advance()
                self._move_doors()
            except Exception:
                log.exception("the simulated fleet stands still; this is a bug, please report it")
                return

    def _move_doors(self) -> None:
        """Not while the lock is held: a door that closes waits for answers that need it."""
        for door in self._doors.values():
            try:
                door.move()
            except OSError as error:  # tried again at the next tick
                log.warning("%s does not listen yet: %s", door.url, error.strerror)

    def _respond(self, replica: Replica) -> Respond:
        def respond(method: str, path: str) -> Answer:
            path = path.partition("?")[0]
            with self.lock:
                self.advance()
                if method != "GET" or replica.state in (ReplicaState.STOPPED, ReplicaState.DOWN):
                    return NOT_FOUND
                if replica.engine is None:
                    return _LOADING
                if path == "/metrics":
                    page = self.fleet.page(replica.name)
                    assert page is not None
                    return Answer(200, METRICS_CONTENT_TYPE, page)
                if path == "/health":
                    return Answer(200, None, b"")
                started = self.fleet.unix_seconds(replica.started_seconds)
                body = side_answers(replica.spec.engine, started).get(path)
                return NOT_FOUND if body is None else Answer(200, JSON_CONTENT_TYPE, body)

        return respond

    def _controlled(self, method: str, path: str) -> Answer:
        with self.lock:
            status, document = control(self.advance(), self._urls(), method, path)
            self.advance()
        if method == "POST" and status == 200:
            self._move_doors()
        return Answer(status, JSON_CONTENT_TYPE, json.dumps(document, allow_nan=False).encode())

    def _urls(self) -> dict[str, str]:
        return {name: door.url for name, door in self._doors.items()}


class _Door:
    """A port that is listened on or not, and nobody else's in between."""

    def __init__(self, respond: Respond, port: int, name: str) -> None:
        self._respond, self._name = respond, name
        self.want_open = True
        self._lock = threading.Lock()
        self._closed = False
        # bound and never listened on: connections are refused while the server is shut, and the port stays ours
        self._held = socket.socket(socket.AF_INET)
        self._held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._held.bind((_HOST, port))
            self._port = int(self._held.getsockname()[1])
            self._server: SimServer | None = SimServer(respond, _HOST, self._port, f"fleet-{name}")
        except (OSError, OverflowError):  # the latter beyond the last port
            self._held.close()
            raise
        self.url = f"http://{_HOST}:{self._port}"

    def move(self) -> None:
        """Opens or shuts it as is wanted."""
        with self._lock:
            if self._closed or self.want_open == (self._server is not None):
                return
            if self._server is None:
                self._server = SimServer(self._respond, _HOST, self._port, f"fleet-{self._name}")
            else:
                self._server.close()
                self._server = None

    def close(self) -> None:
        """Gives the port back."""
        with self._lock:
            self._closed = True
            if self._server is not None:
                self._server.close()
                self._server = None
            self._held.close()


# --- The configuration of an exporter beside a served fleet.


def exporter_config(scenario: Scenario, urls: Mapping[str, str], *, interval_seconds: float | None = None) -> str:
    """YAML text: a target a replica with its nodes and GPUs, the scenario's SLO and expected replicas.

    `urls` by replica. `interval_seconds`: None leaves the default.
    """
    targets = []
    for replica in scenario.replicas:
        engine = replica.engine
        targets.append(
            {
                "name": replica.name,
                "url": urls[replica.name],
                "nodes": list(replica.nodes),
                "gpu_count": engine.gpus,
                "gpu_model": engine.gpu_spec.name,
            }
        )
    slo = {
        name: format_duration(seconds)
        for name, seconds in (("ttft", scenario.slo.ttft), ("itl", scenario.slo.itl), ("e2e", scenario.slo.e2e))
        if seconds is not None
    }
    document: dict[str, object] = {"targets": targets, "gpu": {"enabled": False}}
    if slo:
        document["slo"] = slo
    if interval_seconds is not None:
        document["scrape"] = {"interval": format_duration(interval_seconds)}
    if scenario.expected_replicas is not None:
        models = sorted({replica.engine.served_name for replica in scenario.replicas})
        document["expected_replicas"] = [
            {"model_name": model, "replicas": scenario.expected_replicas} for model in models
        ]
    head = f"# written by llm-serving-exporter simulate --scenario {scenario.name}\n"
    return head + yaml.safe_dump(document, sort_keys=False)


# --- An exporter beside a served fleet that is faster than time: its intervals, as everything else, are stated by the fleet's clock.


# simulated seconds between two readings
READ_SECONDS = 10.0
# of one reading: a busy machine answers within a second or two of real time
TIMEOUT_SECONDS = 120.0


def paced_config(
    scenario: Scenario,
    urls: Mapping[str, str],
    folder: Path,
    *listen: str,
    read_seconds: float = READ_SECONDS,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> Config:
    """The configuration of an exporter of these replicas (`urls` by name), which is written to `folder`; listens on `listen`.

    `read_seconds`, `timeout_seconds`: between two readings, and of one; both simulated."""
    file = folder / "exporter.yml"
    file.write_text(exporter_config(scenario, urls), encoding="utf-8")
    read = load(argparse.Namespace(config_file=str(file)), {})

    def paced(target: Target) -> Target:
        http = replace(target.http, timeout_seconds=timeout_seconds)
        return replace(target, interval_seconds=read_seconds, http=http)

    return replace(
        read,
        targets=tuple(map(paced, read.targets)),
        interval_seconds=read_seconds,
        stale_after_seconds=3 * read_seconds + timeout_seconds,
        gpu=replace(read.gpu, enabled=True, interval_seconds=read_seconds),
        web=replace(read.web, listen_addresses=listen),
    )


class ServedGpuSource:
    """A `gpus.source.GpuSource`: the GPUs of a fleet that is served, read while nobody else uses it."""

    def __init__(self, server: FleetServer) -> None:
        self._server = server
        self._source = FleetGpuSource(server.fleet, moved_on=server.advance, monotonic=server.clock.monotonic)

    def read(self) -> GpuReadings:
        """One pass."""
        with self._server.lock:
            return self._source.read()

    def close(self) -> None:
        """Reads nothing any more."""
        self._source.close()
