"""Figures, the steps of derive, and what it is handed at each tick.

Each figure names its inputs, and each is computed at most once a tick, when somebody asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from graphlib import TopologicalSorter
from typing import Any, Generic, TypeVar, overload

from llm_serving_exporter.catalogue.standstill import SPAN_SECONDS
from llm_serving_exporter.derive.lengths import LengthHistories
from llm_serving_exporter.model.derived import EngineDerived
from llm_serving_exporter.model.hardware import Hardware
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.target import Role, Siblings
from llm_serving_exporter.model.window import DeviceSample, EngineWindow, EngineWindows, Window

# --- Figures.
#
# The order of computation follows from the inputs. An input is a Figure object, so it has to exist before the figure that reads it does: a
# circle of figures cannot be written down, Python refuses it with a NameError or ImportError.


T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Figure(Struct, Generic[T_co], frozen=True, eq=False):
    """One value of one engine at one tick. `figure` makes one that is computed, `given` one that is handed in."""

    name: str  # for messages: the function's name, or the argument of `given`
    # the values of `inputs`, in their order, -> the figure's; None: it is handed in
    compute: Callable[..., T_co] | None
    inputs: tuple[Figure[Any], ...] = ()  # what the function is called with


def given(name: str) -> Figure[Any]:
    """A figure that whoever asks has to hand in."""
    return Figure(name, None)


@overload
def figure(compute: Callable[[A], T], a: Figure[A], /) -> Figure[T]: ...
@overload
def figure(compute: Callable[[A, B], T], a: Figure[A], b: Figure[B], /) -> Figure[T]: ...
@overload
def figure(compute: Callable[[A, B, C], T], a: Figure[A], b: Figure[B], c: Figure[C], /) -> Figure[T]: ...
@overload
def figure(
    compute: Callable[[A, B, C, D], T], a: Figure[A], b: Figure[B], c: Figure[C], d: Figure[D], /
) -> Figure[T]: ...
@overload
def figure(
    compute: Callable[[A, B, C, D, E], T], a: Figure[A], b: Figure[B], c: Figure[C], d: Figure[D], e: Figure[E], /
) -> Figure[T]: ...
def figure(compute: Callable[..., T], /, *inputs: Figure[Any]) -> Figure[T]:
    """A figure that a pure function computes from the values of its inputs."""
    return Figure(getattr(compute, "__name__", repr(compute)), compute, inputs)


@overload
def needs_all(compute: Callable[[A], T], a: Figure[A | Absence], /) -> Figure[T | Absence]: ...
@overload
def needs_all(
    compute: Callable[[A, B], T], a: Figure[A | Absence], b: Figure[B | Absence], /
) -> Figure[T | Absence]: ...
@overload
def needs_all(
    compute: Callable[[A, B, C], T], a: Figure[A | Absence], b: Figure[B | Absence], c: Figure[C | Absence], /
) -> Figure[T | Absence]: ...
def needs_all(compute: Callable[..., T], /, *inputs: Figure[Any]) -> Figure[T | Absence]:
    """As `figure`, of inputs that may be absent: where one of them is, so is the figure, for the first one's reason."""

    def compute_present(*values: Any) -> T | Absence:
        for value in values:
            if type(value) is Absence:
                return value
        return compute(*values)

    return Figure(getattr(compute, "__name__", repr(compute)), compute_present, inputs)


def order_figures(wanted: Iterable[Figure[Any]]) -> tuple[Figure[Any], ...]:
    """The figures and all that they are computed from, each after its inputs, without those that are handed in.

    Raises graphlib.CycleError where figures depend on each other in a circle.
    """
    inputs: dict[Figure[Any], tuple[Figure[Any], ...]] = {}
    open_ends = list(wanted)
    while open_ends:
        one = open_ends.pop()
        if one not in inputs:
            inputs[one] = one.inputs
            open_ends += one.inputs
    return tuple(one for one in TopologicalSorter(inputs).static_order() if one.compute is not None)


class Computed:
    """The figures of one engine at one tick, as far as somebody has asked for them."""

    def __init__(self, handed_in: Mapping[Figure[Any], Any]) -> None:
        """`handed_in`: a value for each figure that `given` made; any other figure may be handed in too, and is not computed then."""
        self._values: dict[Figure[Any], Any] = dict(handed_in)
        self._known = self._values.__getitem__

    def compute(self, ordered: Iterable[Figure[Any]]) -> Mapping[Figure[Any], Any]:
        """The values of all of `ordered`, which is `order_figures`' answer: so nobody need ask whether an input is known."""
        values, known = self._values, self._known
        for one in ordered:
            if one not in values:
                assert one.compute is not None
                values[one] = one.compute(*map(known, one.inputs))
        return values

    def value(self, wanted: Figure[T]) -> T:
        """The figure's value, computed now if nobody has asked before. Raises LookupError where an input was not handed in."""
        values = self._values
        if wanted in values:
            found: T = values[wanted]
            return found
        if wanted.compute is None:
            raise LookupError(f"the figure {wanted.name!r} was not handed in")
        for one in wanted.inputs:
            if one not in values:
                self.value(one)
        found = values[wanted] = wanted.compute(*map(self._known, wanted.inputs))
        return found


# --- What derive is handed at each tick, and the figures that are read off it.


class DeriveSettings(Struct, frozen=True):
    """What derive needs beside the window."""

    # thresholds in seconds by name of the latency SLO: ttft, itl, e2e; one that is not there is not configured
    slo_seconds: Mapping[str, float] = field(default_factory=dict)
    slo_errors: bool = True  # whether requests that ended in an error are counted
    hardware: Hardware = field(default_factory=Hardware)  # peaks and number of the GPUs of one engine
    # facts, or why there are none, by the model's name on the page; a name that is not there is unknown
    models: Mapping[str, ModelFacts | Absence] = field(default_factory=dict)
    device: DeviceSample | None = None  # the newest pass over the target's GPUs, for the window; None without one
    significant_digits: int | None = None  # digits that the page prints numbers with; None: all of them
    errors_counted: bool = True  # whether the runtime tells requests that ended in an error from others
    role: Role = Role.UNIFIED  # what the target does of a request
    # whether the page's time to first token is the client's, which a front door's need not be
    first_token_is_clients: bool = True
    # lengths of the last finished requests by model and engine, this page's included
    lengths: LengthHistories = field(default_factory=dict)
    # for how long nothing moves while requests are there, from which on an engine is stalled
    stalled_after_seconds: float = SPAN_SECONDS
    # ranks of the same replica on other targets' pages; None: none is known, or the replica is on one page
    siblings: Siblings | None = None
    # bucket edges of the runtime's latency histograms by SLO name, unless it is configured otherwise
    default_edges: Mapping[str, tuple[float, ...]] = field(default_factory=dict)


# the engine's readings within its windows, of which each figure takes the one that its fields need
WINDOWS: Figure[EngineWindows] = given("windows")
# all engines of the target, and its GPUs
TARGET_WINDOW: Figure[Window] = given("target_window")
SETTINGS: Figure[DeriveSettings] = given("settings")
# the ranks that share the engine's experts, as far as they are read; None where they share none
RANKS: Figure[Siblings | None] = given("ranks")
# the same engine's at the last tick of this life; None without one
EARLIER: Figure[EngineDerived | None] = given("earlier")


# the figures that are one of the engine's windows
_CHOSEN: list[Figure[EngineWindow]] = []


def window_by(choose: Callable[[EngineWindows], EngineWindow]) -> Figure[EngineWindow]:
    """One of the engine's windows. `choose` is not asked where there is only one: most engines have no other, at every tick."""
    chosen = figure(choose, WINDOWS)
    _CHOSEN.append(chosen)
    return chosen


def window_over(*fields: str) -> Figure[EngineWindow]:
    """The engine's readings within the window that the increase of these fields needs."""
    return window_by(lambda windows: windows.cover(fields))


def hand_in_windows(windows: EngineWindows) -> dict[Figure[Any], Any]:
    """The windows, and where there is only one, each figure that would choose one."""
    values: dict[Figure[Any], Any] = {} if windows.spans.longer else dict.fromkeys(_CHOSEN, windows.configured)
    values[WINDOWS] = windows
    return values


def _devices(window: Window) -> tuple[DeviceSample, ...]:
    spans = window.spans
    return window.devices if spans is None or not spans.longer else window.cut(spans.configured_seconds).devices


def _tick(window: EngineWindow, target: Window) -> EngineWindow | None:
    """The engine between the last two pages; None where it was not on both."""
    if len(window.readings) < 2:
        return None
    before = target.snapshots[-2]
    span = target.snapshots[-1].monotonic_seconds - before.monotonic_seconds
    return EngineWindow(window.readings[-2:], span, before.still_zero)


def _awaited(window: Window) -> frozenset[str]:
    # with several engines, a counter that has not appeared yet cannot be assigned to one of them
    return window.later.awaited if len(window.later.engines) == 1 else frozenset()


# the engine's readings within the configured window: for what is live, and for gauges
WINDOW = window_by(lambda windows: windows.configured)
# the engine between the last two pages; None where it was not on both
TICK = figure(_tick, WINDOW, TARGET_WINDOW)
MODEL: Figure[ModelFacts | Absence] = figure(
    lambda settings, window: settings.models.get(window.last.model_name, Absence.MODEL_UNKNOWN), SETTINGS, WINDOW
)
HARDWARE = figure(lambda settings: settings.hardware, SETTINGS)
# the passes over the target's GPUs within the window
DEVICES = figure(_devices, TARGET_WINDOW)
# fields that the engine certainly has and will show with their first event
AWAITED = figure(_awaited, TARGET_WINDOW)
