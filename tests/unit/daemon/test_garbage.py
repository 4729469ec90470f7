"""The collector of cycles: the usual one for a few targets, seldom for many, and still there."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from llm_serving_exporter.daemon.garbage import YOUNG, fit_collector


@pytest.fixture(autouse=True)
def usual_thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


class Cycle:
    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize(("targets", "most"), [(1, 2 * YOUNG), (2000, 60_000)])
def test_cycles_are_collected_after_a_while(targets: int, most: int) -> None:
    fit_collector(targets)
    gone = weakref.ref(Cycle())
    made = 0
    while gone() is not None and made < most:
        Cycle()
        made += 1
    assert 20 * (targets - 1) < made < most
