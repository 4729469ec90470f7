"""Prices and drill results over time: what is in use, what is logged, and how often."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from llm_serving_exporter.daemon.file_jobs import refresh_drills, refresh_prices, watch_drills, watch_prices
from llm_serving_exporter.model.drill import DrillResult, Verdict
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.state.drill_results import record_result

PASSED = DrillResult("m", Role.UNIFIED, 1000.0, 1000.0, Verdict.PASSED)


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
        assert refresh_prices(first)
        assert caplog.messages == ["price file reloaded, 1 prices"]
        # what the configuration was loaded with is no news
        file = watch_prices(str(path), first.value)
        assert not refresh_prices(file)
        assert file.value == first.value
        caplog.clear()
        path.write_text("prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 0}]\nbudget: 3\n")
        assert refresh_prices(file)
        assert not refresh_prices(file)
        assert file.problem is not None
        assert file.value == first.value
        assert len(caplog.messages) == 2
        assert all(
            message.startswith(f"the price file was not reloaded, its last good prices stay: {path}: ")
            for message in caplog.messages
        )
        # bad in another way: nothing that the daemon would have to be told
        path.write_text("")
        assert not refresh_prices(file)
        path.write_text("prices: [{gpu_model: H100 SXM, usd_per_gpu_hour: 2.5}]\n")
        assert refresh_prices(file)
        assert file.problem is None
