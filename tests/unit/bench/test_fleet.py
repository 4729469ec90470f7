"""What bench.fleet says of spans in which little happened."""

from __future__ import annotations

import pytest

from bench.fleet import OURS, THEIRS, Span, report_span


def test_gaps_and_missed_ticks_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    # gaps of ours: 5, 5.5 and 10 s, of which the last lacks a tick between; of vmagent's: 5 s
    asked = {OURS: {"replica-0": [0.0, 5.0, 10.5, 20.5]}, THEIRS: {"replica-0": [0.0, 5.0]}}
    report_span("quiet", Span(0.0, 30.0, {OURS: 0.04, THEIRS: 0.02}, ()), asked, 5.0)
    said = capsys.readouterr().out
    assert "0.04 CPU s, 4 ticks, 10.000 ms each; off the interval p50 10.0 %" in said
    assert "most 100.0 %; 1 missed" in said
    assert "ours is 2.00 x vmagent's" in said


def test_a_span_too_short_for_a_gap_is_told_without_one(capsys: pytest.CaptureFixture[str]) -> None:
    asked = {OURS: {"replica-0": [1.0]}, THEIRS: {}}
    report_span("short", Span(0.0, 10.0, {OURS: 0.01, THEIRS: 0.0}, ()), asked, 5.0)
    said = capsys.readouterr().out
    assert "1 ticks, 10.000 ms each; no target was asked twice" in said
    assert "0 ticks, none to divide by; no target was asked twice" in said
    # CPU that was too little to be counted is nothing to divide by
    assert "x vmagent's" not in said
