"""Shards: which exporter reads which target, the same everywhere and at every time."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llm_serving_exporter.model.target import MOST_SHARDS, Shard, find_shard
from tests.support.rows import check_rows

NAMES = [f"serving-{number % 7}/chat-{number:05}:8000" for number in range(10_000)]
# a correct hash leaves so many standard deviations in one of 10^11 tests
DEVIATIONS = 6.8


def spread(count: int, share: float) -> float:
    """How far a sum of `count` independent draws may lie from count x share."""
    return DEVIATIONS * math.sqrt(count * share * (1 - share))


@check_rows("count", [1, 2, 3, 4, 7, 16, MOST_SHARDS])
def test_no_name_is_lost_or_doubled(count: int) -> None:
    holders = [sum(Shard(number, count).holds(name) for number in range(1, count + 1)) for name in NAMES[:500]]
    assert set(holders) == {1}
    sizes = Counter(find_shard(name, count) for name in NAMES)
    assert sum(sizes.values()) == len(NAMES)
    assert set(sizes) <= set(range(1, count + 1))
    for number in range(1, count + 1):
        assert abs(sizes[number] - len(NAMES) / count) <= spread(len(NAMES), 1 / count)


@check_rows("count", [1, 2, 4, 9, 63])
def test_one_more_shard_takes_its_part_and_moves_nothing_else(count: int) -> None:
    moved = [
        (find_shard(name, count), find_shard(name, count + 1))
        for name in NAMES
        if find_shard(name, count) != find_shard(name, count + 1)
    ]
    assert {new for _, new in moved} == {count + 1}
    assert abs(len(moved) - len(NAMES) / (count + 1)) <= spread(len(NAMES), 1 / (count + 1))


def test_the_shard_of_a_name_never_changes() -> None:
    # a release that assigned names in another way would lose and double targets while it is rolled out
    assert [find_shard(name, 4) for name in ("serving/chat-0:8000", "gpu-1:8000", "[fd00::7]:8000", "ä", "")] == [
        4,
        1,
        3,
        3,
        3,
    ]


@pytest.mark.process
def test_another_process_with_another_hash_seed_agrees() -> None:
    code = (
        "from llm_serving_exporter.model.target import find_shard; print([find_shard(f'n{i}', 5) for i in range(50)])"
    )
    for seed in ("0", "1", "4242"):
        done = subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        )
        assert done.stdout == f"{[find_shard(f'n{number}', 5) for number in range(50)]}\n"


@given(st.text(), st.integers(1, MOST_SHARDS))
def test_any_name_has_one_shard(name: str, count: int) -> None:
    assert 1 <= find_shard(name, count) <= count


def test_half_of_a_surrogate_pair_has_a_shard_too() -> None:
    assert 1 <= find_shard("\ud800", 3) <= 3
