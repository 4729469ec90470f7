"""Dataclasses with shared methods, and sped-up ones, behave as dataclasses do; the reference is the standard library's own."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, InitVar, dataclass, field
from typing import Any, ClassVar

import pytest

from llm_serving_exporter.model import frozen
from llm_serving_exporter.model.frozen import replace_fields, speed_up
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.target import Target
from tests.support.rows import check_rows


@speed_up
@dataclass(frozen=True, slots=True)
class Quick:
    first: float
    second: str = "two"
    many: list[int] = field(default_factory=list)
    hidden: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    doubled: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.first)


@dataclass(frozen=True, slots=True)
class Plain:
    first: float
    second: str = "two"
    many: list[int] = field(default_factory=list)
    hidden: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    doubled: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.first)


@pytest.mark.parametrize("arguments", [((1.0,), {}), ((1.0, "x", [3]), {}), ((), {"many": [1], "first": 2.0})])
def test_is_made_as_the_library_makes_it(arguments: tuple[tuple[float, ...], dict[str, object]]) -> None:
    quick, plain = Quick(*arguments[0], **arguments[1]), Plain(*arguments[0], **arguments[1])  # type: ignore[arg-type]
    assert dataclasses.asdict(quick) == dataclasses.asdict(plain)
    assert repr(quick) == repr(plain).replace("Plain", "Quick")
    assert type(quick) is Quick
    assert quick == Quick(*arguments[0], **arguments[1])  # type: ignore[arg-type]


def test_defaults_are_made_anew() -> None:
    assert Quick(1.0).many is not Quick(1.0).many
    assert Quick(1.0).hidden is not Quick(1.0).hidden


def test_stays_frozen() -> None:
    one = Quick(1.0)
    with pytest.raises(FrozenInstanceError):
        one.first = 2.0  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del one.first


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Quick()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Quick(1.0, third=3)  # type: ignore[call-arg]


def test_is_copied_and_pickled() -> None:
    one = Quick(1.0, "x", [3])
    assert copy.deepcopy(one) == one
    assert pickle.loads(pickle.dumps(one)) == one


def test_fields_are_replaced_as_the_library_replaces_them() -> None:
    one = Quick(1.0, "x", [3])
    assert replace_fields(one, first=4.0) == dataclasses.replace(one, first=4.0)
    assert replace_fields(one, first=4.0).doubled == 8.0
    with pytest.raises(TypeError):
        replace_fields(one, third=3)  # type: ignore[call-arg]


@check_rows("cls", sorted(frozen._copiers, key=lambda cls: cls.__qualname__), ids=lambda cls: cls.__name__)
def test_every_class_keeps_its_signature_and_slots(cls: type) -> None:
    again = dataclass(frozen=True, slots=True)(
        type(cls.__name__, (), {"__annotations__": cls.__annotations__, **_class_fields(cls)})
    )
    assert list(inspect.signature(cls).parameters) == list(inspect.signature(again).parameters)
    assert cls.__slots__ == again.__slots__  # type: ignore[attr-defined]
    assert not hasattr(cls, "__dict__") or "__dict__" not in cls.__slots__  # type: ignore[attr-defined]


def _class_fields(cls: type) -> dict[str, object]:
    return {
        one.name: field(
            default=one.default, default_factory=one.default_factory, init=one.init, repr=one.repr, compare=one.compare
        )  # type: ignore[call-overload]
        for one in dataclasses.fields(cls)
        if one.default is not dataclasses.MISSING or one.default_factory is not dataclasses.MISSING or not one.init
    }


def test_what_is_read_at_every_tick_is_sped_up() -> None:
    assert {Histogram, EngineSnapshot, TargetReading} <= frozen._copiers.keys()
    reading = TargetReading(Target("a", "http://127.0.0.1:1"))
    assert replace_fields(reading, up=True) == dataclasses.replace(reading, up=True)


@dataclass(frozen=True)
class WithoutSlots:
    first: float


@dataclass(slots=True)
class Thawed:
    first: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ByName:
    first: float


@dataclass(frozen=True, slots=True)
class Child(Plain):
    third: float = 0.0


@check_rows("cls", [WithoutSlots, Thawed, ByName, Child, int])
def test_other_classes_are_refused(cls: type) -> None:
    with pytest.raises(TypeError, match=cls.__name__):
        speed_up(cls)


def define(make: Any) -> dict[str, Any]:
    """The same classes by another `dataclass`."""

    @make(frozen=True, slots=True)
    class Point:
        """Has a docstring."""

        kinds: ClassVar[int] = 3
        x: float
        y: float = 2.0
        many: list[int] = field(default_factory=list)
        hidden: int = field(default=7, repr=False, compare=False)
        unhashed: list[int] = field(default_factory=list, hash=False, kw_only=True)
        made: float = field(init=False, default=0.5)

        @property
        def length(self) -> float:
            return math.hypot(self.x, self.y)

    @make(frozen=True, slots=True)
    class Alone:
        one: Any = None

    @make(frozen=True, slots=True)
    class Empty:
        pass

    @make(frozen=True, slots=True, eq=False)
    class Same:
        one: Any = None

    @make(frozen=True, slots=True, kw_only=True, weakref_slot=True)
    class ByKey:
        one: Any = None
        two: int

    @make(frozen=True, slots=True)
    class Own:
        one: Any = None

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

    @make(frozen=True, slots=True)
    class Hashed:
        one: Any = None

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

    @make(frozen=True, slots=True)
    class Derived(Alone):
        two: int = 2

    class Open(Alone):
        """Is no dataclass itself."""

    @make(slots=True)
    class Thawed:
        one: Any = None

    @make(frozen=True)
    class Loose:
        one: Any = None

    @make(frozen=True, slots=True, order=True)
    class Ordered:
        one: Any = None

    @make
    class Bare:
        one: Any = None

    found = {name: made for name, made in locals().items() if isinstance(made, type)}
    for made in found.values():
        made.__qualname__ = made.__name__
    return found


LIBRARYS, OURS = define(dataclass), define(frozen.dataclass)
NAN = math.nan

LOOKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "repr": lambda of: [
        repr(of["Point"](1.0, unhashed=[2])),
        repr(of["Own"]()),
        repr(of["Empty"]()),
        repr(of["Derived"](1)),
    ],
    "repr of what holds itself": lambda of: repr(hold_itself(of["Alone"])),
    "equal": lambda of: [of["Point"](1.0) == of["Point"](1.0, 2.0), of["Point"](1.0) == of["Point"](1.0, 3.0)],
    "not compared": lambda of: of["Point"](1.0, hidden=1) == of["Point"](1.0, hidden=2),
    "unlike": lambda of: [
        of["Alone"](1) == of["Derived"](1),
        of["Alone"](1) == 1,
        of["Alone"](1) != of["Alone"](1),
        of["Alone"](1) == of["Open"](1),
    ],
    "another NaN": lambda of: of["Alone"](NAN) == of["Alone"](float("nan")),
    "nothing to compare": lambda of: [of["Empty"]() == of["Empty"](), hash(of["Empty"]()) == hash(of["Empty"]())],
    "by identity": lambda of: [of["Same"](1) == of["Same"](1), of["Same"].__hash__ is object.__hash__],
    "of its own": lambda of: [
        of["Own"](1) == of["Own"](2),
        hash(of["Own"](1)) == hash(of["Own"](1)),
        hash(of["Hashed"]()),
    ],
    "hash": lambda of: [hash(of["Alone"]("a")) == hash(of["Alone"]("a")), hash(of["Alone"](1)) == hash(of["Alone"](2))],
    "as keys": lambda of: len({of["ByKey"](two=1), of["ByKey"](two=1), of["ByKey"](two=2)}),
    "derived": lambda of: [
        of["Derived"](1) == of["Derived"](1),
        len({of["Derived"](1), of["Derived"](1)}),
        dataclasses.astuple(of["Derived"](1)),
    ],
    "set": lambda of: [
        set_and_delete(of[name](*values), "one", 3)
        for name, values in (("Alone", ()), ("Thawed", ()), ("Loose", ()), ("Derived", ()))
    ],
    "set what is no field": lambda of: set_and_delete(of["Loose"](), "three", 3),
    "fields": lambda of: [(one.name, one.init, one.repr, one.kw_only) for one in dataclasses.fields(of["Point"])],
    "asdict": lambda of: dataclasses.asdict(of["Point"](1.0, many=[1])),
    "replace": lambda of: dataclasses.asdict(dataclasses.replace(of["Point"](1.0, unhashed=[1]), y=5.0)),
    "signature": lambda of: [
        [*inspect.signature(of[name]).parameters] for name in ("Point", "Alone", "Empty", "ByKey", "Derived")
    ],
    "kinds of arguments": lambda of: [one.kind for one in inspect.signature(of["Point"]).parameters.values()],
    "match": lambda of: [of[name].__match_args__ for name in of if name != "Open"],
    "slots": lambda of: [getattr(of[name], "__slots__", None) for name in of],
    "docstring": lambda of: of["Point"].__doc__,
    "of the class": lambda of: [of["Point"].kinds, of["Point"](3.0, 4.0).length],
    "order": lambda of: of["Ordered"](1) < of["Ordered"](2),
    "parameters": lambda of: [of[name].__dataclass_params__.frozen for name in of],
    "deep copy": lambda of: dataclasses.asdict(copy.deepcopy(of["Point"](1.0, many=[1], unhashed=[2]))),
    "state": lambda of: of["Point"](1.0).__getstate__(),
    "defaults are made anew": lambda of: of["Point"](1.0).many is of["Point"](1.0).many,
}
FAULTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "too few": lambda of: of["Point"](),
    "too many": lambda of: of["Alone"](1, 2),
    "not known": lambda of: of["Alone"](two=2),
    "by place": lambda of: of["ByKey"](1),
    "not hashable": lambda of: hash(of["Point"](1.0)),
    "not hashable, thawed": lambda of: hash(of["Thawed"]()),
    "of no order": lambda of: of["Alone"](1) < of["Alone"](2),
}


def hold_itself(cls: Any) -> Any:
    held: list[Any] = []
    held.append(cls(held))
    return held[0]


def set_and_delete(one: Any, name: str, value: object) -> list[str]:
    """What each of them says."""
    said = []
    for act in (lambda: setattr(one, name, value), lambda: delattr(one, name)):
        try:
            act()
            said.append("done")
        except (AttributeError, FrozenInstanceError) as error:
            said.append(f"{type(error).__name__}: {error}")
    return said


def test_what_holds_a_nan_is_equal_to_itself_on_every_python() -> None:
    """The library's classes compare field by field since 3.13, so that theirs is not."""
    assert [OURS[name](NAN) == OURS[name](NAN) for name in ("Alone", "Point")] == [True, True]


@check_rows("look", LOOKS)
def test_shared_methods_do_what_the_librarys_do(look: str) -> None:
    assert LOOKS[look](OURS) == LOOKS[look](LIBRARYS)


@check_rows("fault", FAULTS)
def test_what_the_library_refuses_is_refused(fault: str) -> None:
    with pytest.raises(TypeError) as expected:
        FAULTS[fault](LIBRARYS)
    with pytest.raises(TypeError) as refused:
        FAULTS[fault](OURS)
    assert str(refused.value).replace("define.<locals>.", "") == str(expected.value).replace("define.<locals>.", "")


def test_a_class_without_a_docstring_says_nothing_wrong() -> None:
    assert LIBRARYS["Alone"].__doc__.startswith("Alone(one: ")
    assert OURS["Alone"].__doc__ is None


def test_an_initvar_is_refused() -> None:
    with pytest.raises(TypeError, match="InitVar"):

        @frozen.dataclass(frozen=True, slots=True)
        class Taking:
            given: InitVar[int]
