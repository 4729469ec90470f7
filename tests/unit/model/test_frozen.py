"""Sped-up dataclasses behave as dataclasses do; the reference is the standard library's own."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field

import pytest

from llm_serving_exporter.model import frozen
from llm_serving_exporter.model.frozen import replace_fields, speed_up
from llm_serving_exporter.model.histogram import Histogram
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.snapshot import EngineSnapshot
from llm_serving_exporter.model.target import Target


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


@pytest.mark.parametrize("cls", sorted(frozen._copiers, key=lambda cls: cls.__qualname__), ids=lambda cls: cls.__name__)
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


@pytest.mark.parametrize("cls", [WithoutSlots, Thawed, ByName, Child, int])
def test_other_classes_are_refused(cls: type) -> None:
    with pytest.raises(TypeError, match=cls.__name__):
        speed_up(cls)
