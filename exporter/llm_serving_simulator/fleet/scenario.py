"""Scenarios of a fleet: what they state, and how a file of one is read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from llm_serving_exporter.errors import ConfigError, FactsError, Problem
from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import parse_yaml
from llm_serving_exporter.settings.keys import Key, Keys, elements, mapping, names_of, read_keys, table, value
from llm_serving_exporter.settings.kinds import Kind, parse_duration
from llm_serving_exporter.settings.problems import InvalidValueError, Node, Place, did_you_mean, shown
from llm_serving_simulator.fleet.fleet import Fleet, ReplicaSpec
from llm_serving_simulator.fleet.spec import RUNTIMES, EngineSpec
from llm_serving_simulator.fleet.workload import (
    DAY_SECONDS,
    Burst,
    Daily,
    Lengths,
    Mix,
    PoissonWorkload,
    Prefixes,
    Profile,
    Step,
)

# --- A scenario: a fleet, what it is asked for, what happens to it, and which alerts that must raise.


class Event(Struct, frozen=True):
    """Something that is done at a time of the scenario."""

    at_seconds: float  # of the scenario
    what: str  # one of `ACTIONS`, which says which of the others count
    node: str = ""  # that it happens to
    replicas: tuple[str, ...] | None = None  # that it happens to; None: all of them
    value: float = 0.0  # factor, rate or seconds, by `what`


class Alert(Struct, frozen=True):
    """An alert that must fire."""

    name: str  # without its prefix
    after_seconds: float = 0.0  # of the scenario: not before
    within_seconds: float | None = None  # after `after_seconds`; None: at any time after it


class Chapter(Struct, frozen=True):
    """What somebody who looks on is told."""

    at_seconds: float  # of the scenario
    says: str  # a sentence or two


class History(Struct, frozen=True):
    """Load before the scenario begins, for baselines: the same workload without its steps, bursts and changes."""

    days: float  # before the scenario
    factor: float = 1.0  # of the rate

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.days * DAY_SECONDS


class Slo(Struct, frozen=True):
    """Thresholds that the exporter beside the fleet is given; None: none."""

    ttft: float | None = None  # seconds
    itl: float | None = None  # seconds
    e2e: float | None = None  # seconds


def _each(call: Callable[[Fleet, str], None], fleet: Fleet, event: Event) -> None:
    for name in fleet.replicas if event.replicas is None else event.replicas:
        call(fleet, name)


ACTIONS: dict[str, Callable[[Fleet, Event], None]] = {
    "lose-node": lambda fleet, event: fleet.lose_node(event.node),
    "return-node": lambda fleet, event: fleet.return_node(event.node),
    "restart": partial(_each, Fleet.restart),
    "hang": lambda fleet, event: fleet.hang(event.replicas),
    "resume": lambda fleet, event: fleet.resume(event.replicas),
    "slow": lambda fleet, event: fleet.slow_down(event.value, event.replicas),
    "throttle": lambda fleet, event: fleet.throttle(event.value, event.replicas),
    "delay-first-tokens": lambda fleet, event: fleet.delay_first_tokens(event.value, event.replicas),
    "cut-off": lambda fleet, event: fleet.cut_off(event.replicas),
    "reconnect": lambda fleet, event: fleet.reconnect(event.replicas),
    "upgrade": lambda fleet, event: fleet.upgrade(event.replicas),
    "errors": lambda fleet, event: fleet.fail(event.value, event.replicas),
    "scale": lambda fleet, event: fleet.scale(int(event.value)),
    "rolling-update": lambda fleet, event: fleet.rolling_update(),
    "prefix-cache-reset": lambda fleet, event: fleet.reset_prefix_cache(event.replicas),
    "prefix-cache-off": lambda fleet, event: fleet.look_up_prefixes(False, event.replicas),
    "prefix-cache-on": lambda fleet, event: fleet.look_up_prefixes(True, event.replicas),
}
# which key of the file an action's value stands under
VALUES = {"slow": "factor", "throttle": "factor", "delay-first-tokens": "seconds", "errors": "share", "scale": "to"}
OF_NODES = frozenset({"lose-node", "return-node"})
OF_REPLICAS = frozenset(ACTIONS) - OF_NODES - {"scale", "rolling-update"}


class Scenario(Struct, frozen=True):
    """A fleet, its load, and what happens to it. Times are seconds from the scenario's beginning."""

    name: str  # as on the command line
    summary: str  # one line
    duration_seconds: float  # of simulated time
    replicas: tuple[ReplicaSpec, ...]  # all that there ever are
    rate: Profile  # of requests
    mixes: tuple[Mix, ...]  # what requests are like, in order of time
    seed: int = 1  # of every random number
    retry: bool = False  # whether requests of a lost replica are sent again
    ready: int | None = None  # replicas that serve at first; None: all of them
    events: tuple[Event, ...] = ()  # in order of time
    slo: Slo = field(default_factory=Slo)  # objectives of the exporter beside it
    expected_replicas: int | None = None  # that the exporter is configured to expect; None: nothing
    history: History | None = None  # None: none
    alerts: tuple[Alert, ...] = ()  # that must fire
    story: tuple[Chapter, ...] = ()  # in order of time

    def fleet(self, *, with_history: bool = False, epoch_unix_seconds: float = 0.0, seed: int | None = None) -> Fleet:
        """The fleet at its first second. With history the scenario begins after that many seconds: see `begin_seconds`."""
        begin = self.begin_seconds(with_history=with_history)
        workload = PoissonWorkload(
            self._rate(begin), [self._shifted(mix, begin) for mix in self.mixes], self.seed if seed is None else seed
        )
        fleet = Fleet(
            self.replicas, workload, retry=self.retry, ready=self.ready, epoch_unix_seconds=epoch_unix_seconds
        )
        for event in self.events:
            fleet.call_at(begin + event.at_seconds, partial(ACTIONS[event.what], fleet, event))
        return fleet

    def begin_seconds(self, *, with_history: bool) -> float:
        """The fleet's second at which the scenario begins."""
        return self.history.seconds if with_history and self.history is not None else 0.0

    def _rate(self, begin: float) -> Profile:
        rate = self.rate
        if not begin or self.history is None:
            return rate
        first = () if rate.steps and rate.steps[0].at_seconds <= 0 else (Step(begin, 1.0),)
        shifted = (replace(step, at_seconds=begin + step.at_seconds) for step in rate.steps)
        return replace(
            rate,
            daily=replace(rate.daily, begins_seconds=rate.daily.begins_seconds - begin),
            steps=(Step(0.0, self.history.factor), *first, *shifted),
            bursts=tuple(replace(burst, at_seconds=begin + burst.at_seconds) for burst in rate.bursts),
        )

    @staticmethod
    def _shifted(mix: Mix, begin: float) -> Mix:
        return replace(mix, from_seconds=begin + mix.from_seconds) if mix.from_seconds else mix


# --- Sections of a scenario file -> a Scenario; what cannot be used is reported at its place.


T = TypeVar("T")

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


def _number(lowest: float, highest: float, *, above: bool = False) -> Kind[float]:
    bounds = f"{'above' if above else 'from'} {lowest:g} to {highest:g}"

    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not lowest <= number <= highest or (above and number == lowest):
            raise InvalidValueError(f"{shown(text)} is not a number {bounds}", f"Write a number {bounds}.")
        return number

    return Kind(f"a number {bounds}", parse)


_TIME = Kind("a time such as 10m", parse_duration)
_TOKENS = kinds.integer(1, 10_000_000)
_SHARE = _number(0, 1)
_FACTOR = _number(0, 1000)
_POSITIVE = _number(0, 1e6, above=True)

_ENGINE = table(
    model=Key(reads=kinds.text("model")),
    alias=Key(reads=kinds.text("name")),
    version=Key(reads=kinds.text("version")),
    gpu=Key(reads=kinds.text("GPU")),
    runtime=Key(reads=kinds.choice("runtime", RUNTIMES)),
    tensor=Key(reads=kinds.integer(1, 64)),
    pipeline=Key(reads=kinds.integer(1, 64)),
    max_num_seqs=Key(reads=kinds.integer(1, 4096)),
    max_num_batched_tokens=Key(reads=_TOKENS),
    context_limit_tokens=Key(reads=_TOKENS),
    block_tokens=Key(reads=kinds.integer(1, 1024)),
    kv_blocks=Key(reads=_TOKENS),
    memory_utilisation=Key(reads=_number(0, 1, above=True)),
    prefix_caching=Key(reads=kinds.BOOLEAN),
    max_waiting=Key(reads=kinds.integer(0, 1_000_000)),
    bandwidth_efficiency=Key(reads=_number(0, 1, above=True)),
    compute_efficiency=Key(reads=_number(0, 1, above=True)),
    overhead_seconds=Key(name="overhead", reads=_TIME),
    loading_seconds=Key(name="loading", reads=_TIME),
)
_FLEET = table(
    replicas=Key(reads=kinds.integer(1, 1000)),
    nodes_per_replica=Key(reads=kinds.integer(1, 64)),
    replicas_per_node=Key(reads=kinds.integer(1, 64)),
    retry=Key(reads=kinds.BOOLEAN),
    ready=Key(reads=kinds.integer(0, 1000)),
)
_LENGTHS = table(
    median=Key(reads=_POSITIVE, required=True),
    sigma=Key(reads=_number(0, 5)),
    least=Key(reads=_TOKENS),
    most=Key(reads=_TOKENS),
    tail_share=Key(reads=_SHARE),
    tail_from=Key(reads=_POSITIVE),
    tail_alpha=Key(reads=_POSITIVE),
)
_PREFIXES = table(
    share=Key(reads=_SHARE),
    count=Key(reads=kinds.integer(1, 100_000)),
    tokens=Key(reads=_TOKENS),
    zipf=Key(reads=_number(0, 5)),
)
_DAILY = table(amplitude=Key(reads=_SHARE), peak_hour=Key(reads=_number(0, 24)), weekend=Key(reads=_number(0, 10)))
_STEP = table(at_seconds=Key(name="at", reads=_TIME, required=True), factor=Key(reads=_FACTOR, required=True))
_BURST = table(
    at_seconds=Key(name="at", reads=_TIME, required=True),
    for_seconds=Key(name="for", reads=_TIME, required=True),
    factor=Key(reads=_FACTOR, required=True),
    every_seconds=Key(name="every", reads=kinds.DURATION),
)
_BEGINS = table(weekday=Key(reads=kinds.choice("weekday", _WEEKDAYS)), hour=Key(reads=_number(0, 24)))
_EVENT = table(
    at=Key(reads=_TIME, required=True),
    do=Key(reads=kinds.choice("thing to do", ACTIONS), required=True),
    node=Key(reads=kinds.text("node")),
    factor=Key(reads=_POSITIVE),
    share=Key(reads=_SHARE),
    seconds=Key(reads=_TIME),
    to=Key(reads=kinds.integer(0, 1000)),
)
_SLO = table(**{name: Key(reads=kinds.DURATION) for name in ("ttft", "itl", "e2e")})
_HISTORY = table(days=Key(reads=_number(0, 60, above=True), required=True), factor=Key(reads=_FACTOR))
_CHAPTER = table(
    at_seconds=Key(name="at", reads=_TIME, required=True), says=Key(reads=kinds.text("sentence", 500), required=True)
)
_ALERT = table(
    name=Key(reads=kinds.text("name"), required=True),
    after_seconds=Key(name="after", reads=_TIME),
    within_seconds=Key(name="within", reads=kinds.DURATION),
)
SECTIONS = (
    "summary", "seed", "duration", "begins", "engine", "fleet", "workload", "events", "slo", "expected_replicas", "history", "alerts",
    "story",
)  # fmt: skip


class ScenarioReader:
    """Reads the sections of one file; faults go to `place`."""

    def __init__(self, tree: Mapping[str, Node], place: Place) -> None:
        self._tree, self._place = tree, place

    def scenario(self, name: str) -> Scenario | None:
        """The scenario, None where something is wrong."""
        place = self._place
        engine = self._engine()
        replicas, retry, ready = self._fleet(engine)
        rate, mixes = self._workload()
        duration = self._one("duration", kinds.DURATION)
        summary = self._one("summary", kinds.text("summary", 500))
        for key, given in (("duration", duration), ("summary", summary), ("workload", rate), ("fleet", replicas)):
            if given is None and not place.problems:
                place.key(key).refuse("is missing", "Every scenario needs it.")
        events = tuple(
            event
            for node, where in elements(self._tree.get("events"), place.key("events"), "events")
            if (event := self._event(node, where, replicas or ())) is not None
        )
        alerts = tuple(
            alert
            for node, where in elements(self._tree.get("alerts"), place.key("alerts"), "alerts")
            if (alert := self._alert(node, where)) is not None
        )
        story = self._listed(Chapter, _CHAPTER, self._tree.get("story"), place.key("story"))
        slo = _read_as(Slo, _SLO, self._tree.get("slo"), place.key("slo"))
        history = None
        if "history" in self._tree:
            history = _read_as(History, _HISTORY, self._tree["history"], place.key("history"))
        seed = self._one("seed", kinds.integer(0, 2**31))
        expected = self._one("expected_replicas", kinds.integer(0, 10_000))
        if place.problems or not (replicas and rate and mixes and duration and summary and slo):
            return None
        return Scenario(
            name=name,
            summary=summary,
            duration_seconds=duration,
            replicas=replicas,
            rate=rate,
            mixes=mixes,
            seed=1 if seed is None else seed,
            retry=retry,
            ready=ready,
            events=tuple(sorted(events, key=lambda event: event.at_seconds)),
            slo=slo,
            expected_replicas=expected,
            history=history,
            alerts=alerts,
            story=tuple(sorted(story, key=lambda chapter: chapter.at_seconds)),
        )

    def _one(self, key: str, kind: Kind[T]) -> T | None:
        return value(self._tree.get(key), self._place.key(key), kind)

    def _engine(self) -> EngineSpec | None:
        place = self._place.key("engine")
        engine = _read_as(EngineSpec, _ENGINE, self._tree.get("engine"), place)
        try:
            if engine is not None:
                _ = engine.cost, engine.usable_blocks
        except FactsError as error:
            place.refuse(error.what, f"{error.fix[:1].upper()}{error.fix[1:]}." if error.fix else "")
            return None
        except ValueError as error:
            place.refuse(str(error), "")
            return None
        return engine

    def _fleet(self, engine: EngineSpec | None) -> tuple[tuple[ReplicaSpec, ...] | None, bool, int | None]:
        place = self._place.key("fleet")
        given = _values(self._tree.get("fleet"), place, _FLEET)
        wide, together = given.get("nodes_per_replica", 1), given.get("replicas_per_node", 1)
        if "replicas" not in given:
            if not place.problems:
                place.key("replicas").refuse("is missing", "Say how many replicas there are.")
            return None, False, None
        if wide > 1 and together > 1:
            place.refuse("replicas span nodes or share them, not both", "Leave one of the two out.")
        if engine is None or place.problems:
            return None, False, None
        replicas = []
        for number in range(given["replicas"]):
            first = number * wide if wide > 1 else number // together
            nodes = tuple(f"node-{first + offset}" for offset in range(wide))
            try:
                replicas.append(ReplicaSpec(f"replica-{number}", nodes, engine))
            except ValueError as error:
                place.refuse(str(error), "Choose engine.tensor and engine.pipeline so that it does.")
                return None, False, None
        return tuple(replicas), given.get("retry", False), given.get("ready")

    def _workload(self) -> tuple[Profile | None, tuple[Mix, ...]]:
        place = self._place.key("workload")
        given = mapping(self._tree.get("workload"), place, ("rate", "prompt", "output", "prefixes", "changes"))
        first = self._mix(given, place, 0.0, None)
        mixes = [] if first is None else [first]
        for node, where in elements(given.get("changes"), place.key("changes"), "changes"):
            change = mapping(node, where, ("at", "prompt", "output", "prefixes"))
            at = value(change.get("at"), where.key("at"), _TIME)
            if at is None:
                where.key("at").refuse("is missing", "Say when it changes.")
            elif mixes and (mix := self._mix(change, where, at, mixes[-1])) is not None:
                mixes.append(mix)
        mixes.sort(key=lambda mix: mix.from_seconds)
        return self._rate(given.get("rate"), place.key("rate")), tuple(mixes)

    def _mix(self, given: Mapping[str, Node], place: Place, at: float, before: Mix | None) -> Mix | None:
        """The lengths from `at` on. What is not given stays as it was in `before`."""
        parts: dict[str, Any] = {}
        for key, keys, make in (
            ("prompt", _LENGTHS, Lengths),
            ("output", _LENGTHS, Lengths),
            ("prefixes", _PREFIXES, Prefixes),
        ):
            if key in given:
                parts[key] = _read_as(make, keys, given[key], place.key(key))
            elif before is not None:
                parts[key] = getattr(before, key)
            elif keys is _LENGTHS:
                place.key(key).refuse("is missing", "Say how long they are: {median: 500}.")
        if place.problems:
            return None
        return Mix(**parts, from_seconds=at)

    def _rate(self, node: Node | None, place: Place) -> Profile | None:
        given = mapping(node, place, ("base", "daily", "steps", "bursts"))
        base = value(given.get("base"), place.key("base"), _number(0, 10_000))
        if base is None:
            if not place.problems:
                place.key("base").refuse("is missing", "Write requests per second of the whole fleet.")
            return None
        daily = _values(given.get("daily"), place.key("daily"), _DAILY)
        steps = self._listed(Step, _STEP, given.get("steps"), place.key("steps"))
        bursts = self._listed(Burst, _BURST, given.get("bursts"), place.key("bursts"))
        return Profile(
            base,
            Daily(**daily, begins_seconds=self._begins()),
            tuple(sorted(steps, key=lambda step: step.at_seconds)),
            tuple(bursts),
        )

    def _begins(self) -> float:
        given = _values(self._tree.get("begins"), self._place.key("begins"), _BEGINS)
        weekday, hour = str(given.get("weekday", "monday")), float(given.get("hour", 0.0))
        return _WEEKDAYS.index(weekday) * 86_400.0 + hour * 3600.0

    @staticmethod
    def _listed(make: Callable[..., T], keys: Keys, node: Node | None, place: Place) -> list[T]:
        read = (_read_as(make, keys, element, where) for element, where in elements(node, place, "mappings"))
        return [entry for entry in read if entry is not None]

    def _event(self, node: Node, place: Place, replicas: tuple[ReplicaSpec, ...]) -> Event | None:
        tree = mapping(node, place, (*names_of(_EVENT), "replicas"))
        given = read_keys(_EVENT, tree, place)
        if not _is_complete(given, place, _required(_EVENT)):
            return None
        what = given["do"]
        allowed = {"at", "do", *((VALUES[what],) if what in VALUES else ())}
        needed = [VALUES[what]] if what in VALUES else []
        if what in OF_NODES:
            allowed.add("node")
            needed.append("node")
        if what in OF_REPLICAS:
            allowed.add("replicas")
        for key in tree:
            if key not in allowed:
                place.key(key).refuse(f"does not go with {what}", f"Keys of it: {', '.join(sorted(allowed))}.")
        if not _is_complete(given, place, needed):
            return None
        nodes = {node for spec in replicas for node in spec.nodes}
        if "node" in given and given["node"] not in nodes:
            place.key("node").refuse(f"there is no node {shown(given['node'])}", did_you_mean(given["node"], nodes))
        chosen = self._replica_names(tree.get("replicas"), place.key("replicas"), replicas)
        number = given.get(VALUES.get(what, ""), 0.0)
        return Event(given["at"], what, given.get("node", ""), chosen, float(number))

    @staticmethod
    def _replica_names(node: Node | None, place: Place, replicas: tuple[ReplicaSpec, ...]) -> tuple[str, ...] | None:
        if node is None:
            return None
        names = [spec.name for spec in replicas]
        chosen = []
        for element, where in elements(node, place, "replicas' names"):
            name = value(element, where, kinds.text("replica"))
            if name is not None and name not in names:
                where.refuse(f"there is no replica {shown(name)}", did_you_mean(name, names))
            elif name is not None:
                chosen.append(name)
        return tuple(chosen)

    @staticmethod
    def _alert(node: Node, place: Place) -> Alert | None:
        return _read_as(Alert, _ALERT, node, place)


def _values(node: Node | None, place: Place, keys: Keys) -> dict[str, Any]:
    """The values that are given and usable, by field."""
    return read_keys(keys, mapping(node, place, names_of(keys)), place)


def _required(keys: Keys) -> list[str]:
    return [key.field for key in keys.values() if key.required]


def _is_complete(given: Mapping[str, Any], place: Place, needed: Collection[str], keys: Keys = _EVENT) -> bool:
    """Whether all that is needed is given; what is missing is reported unless something else was."""
    missing = [field for field in needed if field not in given]
    if missing and not place.problems:
        place.key(keys[missing[0]].name).refuse("is missing", "Write it, or leave the whole entry out.")
    return not missing


def _read_as(make: Callable[..., T], keys: Keys, node: Node | None, place: Place) -> T | None:
    """What `make` makes of a mapping's values; None where something is missing or does not go together, which is then reported."""
    given = _values(node, place, keys)
    if not _is_complete(given, place, _required(keys), keys):
        return None
    try:
        return make(**given)
    except ValueError as error:
        place.refuse(str(error), "")
        return None


# --- Scenario files: YAML -> Scenario, or every fault with its place and what to do.


_LARGEST_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def names() -> list[str]:
    """The scenarios that are shipped."""
    folder = files("llm_serving_simulator.fleet").joinpath("scenarios")
    return sorted(entry.name.removesuffix(".yml") for entry in folder.iterdir() if entry.name.endswith(".yml"))


def load(name_or_path: str) -> Scenario:
    """A shipped scenario by its name, or a file by its path. Raises ConfigError with every fault."""
    if name_or_path in names():
        entry = files("llm_serving_simulator.fleet").joinpath("scenarios", f"{name_or_path}.yml")
        return parse(entry.read_text(encoding="utf-8"), f"{name_or_path}.yml", name_or_path)
    path = Path(name_or_path)
    if not path.suffix and _NAME.fullmatch(name_or_path):
        raise ConfigError(
            Problem(
                "--scenario", "", f"there is no scenario {shown(name_or_path)}", did_you_mean(name_or_path, names())
            )
        )
    try:
        with path.open("rb") as file:
            body = file.read(_LARGEST_FILE_BYTES + 1)
        if len(body) > _LARGEST_FILE_BYTES:
            raise ConfigError(Problem(name_or_path, "", "the file is larger than 1 MiB", "Is it a scenario?"))
        text = body.decode()
    except OSError as error:
        raise ConfigError(
            Problem(
                name_or_path,
                "",
                f"cannot be read: {error.strerror}",
                "Check the path; --list shows those that are shipped.",
            )
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(Problem(name_or_path, "", "this is not UTF-8 text", "Save the file as UTF-8.")) from None
    return parse(text, name_or_path, path.stem)


def load_story(name: str) -> Scenario:
    """A scenario that is shipped to be looked at (`stories/`), not to be measured by its alerts."""
    entry = files("llm_serving_simulator.fleet").joinpath("stories", f"{name}.yml")
    return parse(entry.read_text(encoding="utf-8"), f"{name}.yml", name)


def parse(text: str, file: str, name: str) -> Scenario:
    """A scenario's text. `file` is for messages. Raises ConfigError with every fault."""
    problems: list[Problem] = []
    top = Place(file, "", problems)
    tree = parse_yaml(text, top)
    scenario = ScenarioReader(mapping(tree, top, SECTIONS), top).scenario(name) if not problems else None
    if problems or scenario is None:
        raise ConfigError(*problems)
    return scenario
