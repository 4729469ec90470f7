"""Prices and drill results over time: what is in use, what is logged, and how often."""

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from llm_serving_exporter.daemon import file_jobs
from llm_serving_exporter.daemon.file_jobs import PriceFile, refresh_drills, refresh_prices, watch_drills, watch_prices
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.settings.prices import PriceReading, look_at_prices
from llm_serving_exporter.state.drill_results import record_result

PASSED = DrillResult("m", Role.UNIFIED, 1000.0, 1000.0, DrillVerdict.PASSED)


def test_a_missing_or_broken_file_of_drills_leaves_the_last_good_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "drills.json"
    file = watch_drills(str(path))
    with caplog.at_level(logging.INFO, logger="llm_serving_exporter.drill"):
        assert refresh_drills(file) == refresh_drills(file) == ()
        assert caplog.messages == [f"there is no file of drill results {path}; the first drill makes it"]
        record_result(str(path), PASSED)
        assert refresh_drills(file) == (PASSED,)
        caplog.clear()
        path.write_text("{")
        assert refresh_drills(file) == refresh_drills(file) == (PASSED,)
        path.unlink()
        assert refresh_drills(file) == refresh_drills(file) == (PASSED,)
        assert len(caplog.messages) == 2
        assert all(message.endswith(" 1 results that it had before stay.") for message in caplog.messages)
        record_result(str(path), PASSED)
        assert refresh_drills(file) == (PASSED,)
        assert len(caplog.messages) == 2


def test_a_path_that_no_file_can_have_is_told_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    for impossible in ("\0", "/dev/null/drills.json", "x" * 5000):
        file = watch_drills(impossible)
        assert refresh_drills(file) == refresh_drills(file) == ()
    assert len(caplog.records) == 3


def test_a_bad_price_file_leaves_the_last_good_prices_and_each_fault_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "prices.yml"
    path.write_text("prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 2.5}]\n")
    first = watch_prices(str(path), None)
    with caplog.at_level(logging.INFO, logger="llm_serving_exporter.prices"):
        assert looked_at_twice(first)
        assert caplog.messages == ["price file reloaded, 1 prices"]
        # what the configuration was loaded with is no news
        file = watch_prices(str(path), first.value)
        assert not looked_at_twice(file)
        assert file.value == first.value
        caplog.clear()
        path.write_text("prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 0}]\nbudget: 3\n")
        assert looked_at_twice(file)
        assert not looked_at_twice(file)
        assert file.problem is not None
        assert file.value == first.value
        assert len(caplog.messages) == 2
        assert all(
            message.startswith(f"the price file was not reloaded, its last good prices stay: {path}: ")
            for message in caplog.messages
        )
        # bad in another way: nothing that the daemon would have to be told
        path.write_text("")
        assert not looked_at_twice(file)
        path.write_text("prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 2.5}]\n")
        assert looked_at_twice(file)
        assert file.problem is None


def looked_at_twice(file: PriceFile) -> bool:
    """Whether two looks, between which nobody writes, bring news: the first one alone never does."""
    assert not refresh_prices(file)
    return refresh_prices(file)


def usd(file: PriceFile) -> float | None:
    return None if file.value is None else file.value.statements[0].usd_per_gpu_hour


def test_a_price_file_that_is_being_written_is_not_believed(tmp_path: Path) -> None:
    """Of 3600 there is 360 for a while: a valid file, with another price."""
    path = tmp_path / "prices.yml"
    whole = "prices:\n- gpu_model: H100 SXM\n  usd_per_gpu_hour: 3600\n"
    path.write_text(whole)
    file = watch_prices(str(path), None)
    assert looked_at_twice(file)
    for end in range(1, len(whole)):
        path.write_text(whole[:end])
        # a look after every byte, none of them twice at the same content
        assert not refresh_prices(file)
        assert (usd(file), file.problem) == (3600.0, None)
    path.write_text(whole)
    assert not refresh_prices(file)
    assert not refresh_prices(file)
    assert (usd(file), file.problem) == (3600.0, None)


def test_a_price_file_that_changes_while_it_is_read_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "prices.yml"
    path.write_text("prices: [{node: a, usd_per_gpu_hour: 360}]\n")

    def read_and_write(name: str, *, described: Sequence[GpuSpec] = ()) -> PriceReading:
        found = look_at_prices(name)
        path.write_text("prices: [{node: a, usd_per_gpu_hour: 3600}]\n")
        monkeypatch.undo()
        return found

    monkeypatch.setattr(file_jobs, "look_at_prices", read_and_write)
    file = watch_prices(str(path), None, quiet_since=time.time() + 60.0)
    assert not refresh_prices(file)
    assert usd(file) is None
    # it is new, but quiet by the time that was given
    assert refresh_prices(file)
    assert usd(file) == 3600.0


def test_a_price_file_that_nobody_touches_is_believed_at_the_first_look(tmp_path: Path) -> None:
    """A daemon that starts again and again would lose the cost of the time between two looks each time."""
    path = tmp_path / "prices.yml"
    path.write_text("prices: [{node: a, usd_per_gpu_hour: 2}]\n")
    now = path.stat().st_ctime
    assert refresh_prices(watch_prices(str(path), None, quiet_since=now + 1.0))
    assert not refresh_prices(watch_prices(str(path), None, quiet_since=now - 1.0))
    file = watch_prices(str(path), None, quiet_since=now + 1.0)
    refresh_prices(file)
    # later changes are looked at twice, whatever their stamps say
    path.write_text("prices: [{node: a, usd_per_gpu_hour: 3}]\n")
    os.utime(path, (0.0, 0.0))
    assert looked_at_twice(file)
    assert usd(file) == 3.0


def test_a_price_file_without_a_final_newline_is_used_and_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "prices.yml"
    path.write_text("prices: [{node: a, usd_per_gpu_hour: 360}]")
    file = watch_prices(str(path), None)
    with caplog.at_level(logging.WARNING, logger="llm_serving_exporter.prices"):
        assert looked_at_twice(file)
        assert usd(file) == 360.0
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "no final newline" in caplog.text
        caplog.clear()
        path.write_text("prices: [{node: a, usd_per_gpu_hour: 3600}]\r\n")
        assert looked_at_twice(file)
        assert not caplog.records


def test_what_a_price_file_changes_is_told_old_and_new(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "prices.yml"
    path.write_text(
        "prices:\n- {node: a, usd_per_gpu_hour: 2}\n- {node: b, usd_per_gpu_hour: 2, rate: spot}\n"
        "- {target: chat, from: 2026-01-31, usd_per_gpu_hour: 3}\n- {node: same, usd_per_gpu_hour: 9}\n"
        "budget_usd_per_month: 100\n"
    )
    file = watch_prices(str(path), None)
    assert looked_at_twice(file)
    path.write_text(
        "prices:\n- {node: a, usd_per_gpu_hour: 2.5}\n- {node: b, usd_per_gpu_hour: 2, rate: reserved}\n"
        "- {gpu_name: X1, usd_per_gpu_hour: 1}\n- {node: same, usd_per_gpu_hour: 9}\n"
        "power: {usd_per_kwh: 0.3}\nbudget_usd_per_month: 200\n"
        "pools:\n- {name: r, kind: quantity, gpu_name: X1, gpus: 8, usd_per_gpu_hour: 0.5, from: 2026-01-31}\n"
        "- {name: s, kind: spend, usd_per_hour: 4, rates: [{gpu_name: X1, usd_per_gpu_hour: 0.5}]}\n"
        "nodes: [{node: a, region: eu, zone: eu-a}]\n"
    )
    with caplog.at_level(logging.INFO, logger="llm_serving_exporter.prices"):
        assert looked_at_twice(file)
    told = [message.removeprefix("price changed: ") for message in caplog.messages if message.startswith("price c")]
    assert told == [
        'node "a": 2 USD (rate "on_demand") -> 2.5 USD (rate "on_demand")',
        'node "b": 2 USD (rate "spot") -> 2 USD (rate "reserved")',
        'target "chat" from 2026-01-31T00:00:00Z: 3 USD (rate "on_demand") -> none',
        'rate "spot": spot, with power -> none',
        "budget a month in USD: 100 -> 200",
        'gpu_model "X1": none -> 1 USD (rate "on_demand")',
        'rate "reserved": none -> reserved, with power',
        'pool "r": none -> quantity of "X1", 8 GPUs at 0.5 USD, 2026-01-31T00:00:00Z until -',
        'pool "s": none -> spend of 1 rate, 4 USD/h, - until -',
        'node "a" stands: none -> "eu", "eu-a"',
        "USD per kWh: none -> 0.3",
    ]


def test_of_many_changed_prices_the_first_are_told_and_the_others_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "prices.yml"
    file = watch_prices(str(path), None)
    for price in (1, 2):
        path.write_text("prices:\n" + "".join(f"- {{node: n{n}, usd_per_gpu_hour: {price}}}\n" for n in range(30)))
        with caplog.at_level(logging.INFO, logger="llm_serving_exporter.prices"):
            assert looked_at_twice(file)
    assert sum("price changed:" in message for message in caplog.messages) == 20
    assert caplog.messages[-1] == "and 10 more prices changed"
