"""The watcher of a fleet sees what it looks for; needs no API server."""

from __future__ import annotations

from tests.kubernetes.observer import Presence, Record, Seen


def seen(readings: float, *targets: str) -> Seen:
    return Seen(readings, frozenset(targets), {}, {})


def faults(record: Record, page: Seen) -> list[str]:
    return list(record.find_faults(page))


def test_a_new_target_may_lack_for_two_intervals_and_no_longer() -> None:
    record = Record({"a": Presence(10.0)})
    assert faults(record, seen(12.0)) == []
    assert faults(record, seen(13.0)) == ["a is missing at 13.0, it is there since 10.0"]
    assert faults(record, seen(13.0, "a")) == []


def test_one_that_is_gone_may_stay_for_two_intervals_and_no_longer() -> None:
    record = Record({"a": Presence(1.0, 10.0)})
    assert faults(record, seen(12.0, "a")) == []
    assert faults(record, seen(13.0, "a")) == ["a is still shown at 13.0, it is gone since 10.0"]
    assert faults(record, seen(13.0)) == []


def test_one_that_nobody_made_is_a_fault_at_once() -> None:
    assert faults(Record(), seen(1.0, "b")) == ["b was never there"]
