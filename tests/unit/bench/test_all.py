"""What bench.all makes of figures, with figures by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.all import Step, draw_fleets, keep_tables, list_pages, list_steps, run_step, tabulate_fleets
from tests.support.quick import keep_quick


def _fleet(targets: int, unscraped: float, scraped: float, theirs: float) -> dict[str, Any]:
    return {
        "targets": targets,
        "cpu_share": {
            "unscraped": {"ours": unscraped, "vmagent": theirs},
            "scraped": {"ours": scraped, "vmagent": theirs},
        },
        "peak_resident_bytes": {"ours": 45_400_000, "vmagent": 17_200_000},
    }


def test_a_row_for_each_number_of_targets() -> None:
    *_, first, second = tabulate_fleets([_fleet(200, 0.015, 0.024, 0.02), _fleet(1, 0.001, 0.002, 0.0)])
    assert first == "| 200 | 1.50 %, 0.75 x | 2.40 %, 1.20 x | 2.00 % | 45 MB | 17 MB |"
    # nothing was counted of vmagent: there is no ratio
    assert second == "| 1 | 0.10 % | 0.20 % | 0.00 % | 45 MB | 17 MB |"


def test_pages_by_size_the_usual_one_as_the_median_of_runs() -> None:
    runs = [
        {"vmagent": theirs, "scraped every third tick": ours} for ours, theirs in ((1.0, 2.0), (3.0, 1.0), (1.2, 1.4))
    ]
    pages = [
        {"bytes": 544_000, "vmagent_ms": 12.0, "ours_ms": 7.0},
        {"bytes": 102_000, "vmagent_ms": 1.5, "ours_ms": 1.1},
    ]
    assert list_pages({"runs": runs, "pages": pages}, 56_379) == [(56, 1.2, 1.4), (102, 1.1, 1.5), (544, 7.0, 12.0)]
    # without peers, or where the bench failed
    assert list_pages({"runs": [], "pages": []}, 56_379) == []
    assert list_pages(None, 56_379) == []


def test_only_tables_are_kept_of_what_a_bench_prints() -> None:
    assert keep_tables("measuring …\n\n| a | b |\n|---|---|\n| 1 | 2 |\ndone\n") == [
        "| a | b |",
        "|---|---|",
        "| 1 | 2 |",
    ]


def test_what_was_too_little_to_be_counted_is_not_drawn(tmp_path: Path) -> None:
    draw_fleets([_fleet(1, 0.0, 0.0, 0.0)], tmp_path)
    assert not (tmp_path / "targets.svg").exists()
    draw_fleets([_fleet(1, 0.0, 0.001, 0.0), _fleet(200, 0.015, 0.024, 0.02)], tmp_path)
    text = (tmp_path / "targets.svg").read_text()
    assert "ours, nobody reads /metrics: 1.5 at 200;" in text
    assert "ours, /metrics read every 15 s: 0.1 at 1, 2.4 at 200;" in text


def test_only_the_last_fleet_draws_ticks(tmp_path: Path) -> None:
    drawing = [step.file for step in list_steps(tmp_path) if "--picture" in step.arguments]
    assert drawing == ["fleet-2000"]


@pytest.mark.process
def test_a_bench_that_fails_is_told(tmp_path: Path) -> None:
    printed, problem = run_step(Step("no_such_bench", "none", figures=False), tmp_path)
    assert problem == "bench.no_such_bench ended with 1"
    assert "No module named bench.no_such_bench" in printed
    assert (tmp_path / "none.txt").read_text() == printed


@pytest.mark.process
@pytest.mark.parametrize("name", keep_quick(["cycle", "fleet", "start"], lambda name: name == "fleet"))
def test_a_bench_takes_what_it_is_given(name: str, tmp_path: Path) -> None:
    step = next(step for step in list_steps(tmp_path) if step.name == name)
    printed, problem = run_step(Step(name, name, ("--help",), figures=False), tmp_path)
    assert not problem
    given = [word for word in step.arguments if word.startswith("--")] + ["--json"] * step.figures
    assert [word for word in given if word not in printed] == []
