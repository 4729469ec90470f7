"""Differences of counters, made fit for increase(): from 0, never falling, whatever restarts."""

from llm_serving_exporter.derive.history import Held, hold_counters
from llm_serving_exporter.model.snapshot import EngineSnapshot, Snapshot

MAY_FALL = frozenset({"prefill_tokens_total"})


def exported(*values: float | None, may_fall: frozenset[str] = MAY_FALL) -> list[float | None]:
    held: Held = {}
    shown = []
    for place, value in enumerate(values):
        engine = EngineSnapshot("m", "0", prefill_tokens_total=value, decode_tokens_total=7.0)
        snapshot, held = hold_counters(held, Snapshot((engine,), "vllm", 0.0, float(place), may_fall=may_fall))
        shown.append(snapshot.engines[0].prefill_tokens_total)
        assert snapshot.engines[0].decode_tokens_total == 7.0
    return shown


def test_it_counts_from_zero_and_never_falls() -> None:
    assert exported(1000.0, 1010.0, 990.0, 1005.0, 1030.0) == [0.0, 10.0, 10.0, 10.0, 30.0]


def test_a_value_that_is_missing_for_a_moment_is_absent_and_goes_on() -> None:
    assert exported(100.0, 130.0, None, 140.0) == [0.0, 30.0, None, 40.0]


def test_counters_that_cannot_fall_are_left_as_they_are() -> None:
    assert exported(1000.0, 1010.0, may_fall=frozenset()) == [1000.0, 1010.0]


def test_two_exporters_agree_on_the_increase() -> None:
    # one started earlier than the other; the engine's own counter grew from 1010 to 1030 meanwhile
    early, late = exported(1000.0, 1010.0, 1030.0), exported(1010.0, 1030.0)
    assert early[2] is not None and early[1] is not None and late[1] is not None and late[0] is not None  # noqa: PT018  # for mypy
    assert early[2] - early[1] == late[1] - late[0] == 20.0


def test_what_was_yet_to_be_born_has_counted_from_zero() -> None:
    def page(value: float | None, unborn: frozenset[str] = frozenset()) -> Snapshot:
        engine = EngineSnapshot("m", "0", prefill_tokens_total=value)
        return Snapshot((engine,), "sglang", 0.0, 0.0, may_fall=MAY_FALL, still_zero=unborn)

    rest, work = page(None, MAY_FALL), page(25.0)
    assert hold_counters({}, work, rest)[0].engines[0].prefill_tokens_total == 25.0
    assert hold_counters({}, work, page(None))[0].engines[0].prefill_tokens_total == 0.0
