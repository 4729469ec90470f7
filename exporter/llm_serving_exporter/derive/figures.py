"""Figures, the steps of derive: each names its inputs, and each is computed at most once a tick, when somebody asks for it.

The order of computation follows from the inputs. An input is a Figure object, so it has to exist before the figure that reads it does:
a circle of figures cannot be written down, Python refuses it with a NameError or ImportError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from graphlib import TopologicalSorter
from typing import Any, Generic, TypeVar, overload

from llm_serving_exporter.model.record import Struct

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")


class Figure(Struct, Generic[T_co], frozen=True, eq=False):
    """One value of one engine at one tick. `figure` makes one that is computed, `given` one that is handed in."""

    # for messages: the function's name, or the argument of `given`
    name: str
    # the values of `inputs`, in their order, -> the figure's; None: it is handed in
    compute: Callable[..., T_co] | None
    # what the function is called with
    inputs: tuple[Figure[Any], ...] = ()


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
