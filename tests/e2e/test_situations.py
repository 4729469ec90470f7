"""What people are told of each situation: who is paged first and when, with which labels, how often in all, and when it is over.

`python -m tests.e2e.notifications` prints the same as a table.
"""

from collections.abc import Mapping

import pytest

from tests.e2e.notifications import SITUATIONS, write_table
from tests.e2e.situations.judge import ASPECTS
from tests.e2e.situations.play import Told, play


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Told]:
    """All situations but those that only the soak test plays."""
    chosen = [one for one in SITUATIONS.values() if not one.slow]
    return play(chosen, tmp_path_factory.mktemp("situations"))


@pytest.fixture(scope="module")
def found_slow(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Told]:
    """The others."""
    chosen = [one for one in SITUATIONS.values() if one.slow]
    return play(chosen, tmp_path_factory.mktemp("slow-situations"))


def assert_holds(told: Told, aspect: str) -> None:
    wrong = ASPECTS[aspect](told)
    assert wrong == "", f"{wrong}\n{write_table([told])}"


def _cases(*, slow: bool) -> list[tuple[str, str]]:
    return [(name, aspect) for name, one in SITUATIONS.items() if one.slow is slow for aspect in ASPECTS]


@pytest.mark.e2e
@pytest.mark.parametrize(("name", "aspect"), _cases(slow=False))
def test_situation(name: str, aspect: str, found: Mapping[str, Told]) -> None:
    assert_holds(found[name], aspect)


@pytest.mark.soak
@pytest.mark.parametrize(("name", "aspect"), _cases(slow=True))
def test_slow_situation(name: str, aspect: str, found_slow: Mapping[str, Told]) -> None:
    assert_holds(found_slow[name], aspect)
