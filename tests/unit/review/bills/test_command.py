"""`report --bill` from the flag to the files, with what answers as Prometheus would."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from tests.support.builders import bills as made
from tests.support.servers.fakeprometheus import FakePrometheus

# Monday noon: the last complete week is 2026-W46, of which the last hour is younger than 72 h
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp()


def report(out: Path, *words: str) -> int:
    with FakePrometheus(NOW) as server:
        return main(["report", "--prometheus.url", server.url, "--output-dir", str(out), *words])


def test_a_bill_is_compared_and_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bill = tmp_path / "bill.csv"
    bill.write_text(made.write_csv(made.list_focus_rows((made.SAME,))))
    mapped = tmp_path / "map.csv"
    mapped.write_text(f"resource,target\n{made.SAME.id},a:8000\n")
    (tmp_path / "report.yml").write_text("bills: {mapping_file: map.csv}\n")
    assert report(tmp_path / "out", "--config.file", str(tmp_path / "report.yml"), "--bill", str(bill)) == 0
    said = capsys.readouterr().out
    # the stand-in meters $672 of a:8000, without a word of its machines
    assert "Against the bill: Preliminary: metered $672.00 after commitments, billed $5,281.92 effective" in said
    page = (tmp_path / "out" / "cost-2026-W46.html").read_text()
    assert "<h2>Against the bill</h2>" in page
    assert "Metered, not billed" not in page


def test_a_bill_in_another_currency_leaves_the_review(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bill = tmp_path / "bill.csv"
    bill.write_text(made.write_csv(made.list_focus_rows((made.SAME,))).replace("USD", "CHF"))
    assert report(tmp_path, "--bill", str(bill)) == 0
    said = capsys.readouterr()
    assert "warning: The bill is not compared: " in said.err
    assert 'bill.csv, line 2, column BillingCurrency: the bill is in "CHF", not in USD' in said.err
    assert (tmp_path / "cost-2026-W46.html").exists()


def test_a_bill_that_is_not_there_is_bad_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--prometheus.url", "http://127.0.0.1:1", "--bill", str(tmp_path / "none.csv")]) == 2
    assert "flag --bill: no file has this name" in capsys.readouterr().err
