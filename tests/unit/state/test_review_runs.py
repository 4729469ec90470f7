"""The file that reviews leave beside them: what it keeps, and what becomes of one that is spoilt or cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.errors import ReviewRunsError
from llm_serving_exporter.state.review_runs import NAME, Runs, begin_runs, read_runs, record_attempt, record_run
from tests.support.rows import check_rows


def test_the_file_keeps_the_last_success_and_since_when_it_is_known(tmp_path: Path) -> None:
    folder = str(tmp_path / "reviews")
    assert read_runs(folder) is None
    assert begin_runs(folder, 100.0) == Runs(100.0)
    assert begin_runs(folder, 200.0) == Runs(100.0)
    record_run(folder, 300.0, succeeded=True)
    record_run(folder, 400.0, succeeded=False)
    assert read_runs(folder) == Runs(100.0, 400.0, 300.0)
    # of a run that failed, those who have it are kept until everybody has
    record_run(folder, 500.0, succeeded=False, week="2026-W46", sent_to=("the webhook",))
    record_run(folder, 600.0, succeeded=False, week="2026-W46", sent_to=("mail:25",))
    assert read_runs(folder) == Runs(100.0, 600.0, 300.0, "2026-W46", ("the webhook", "mail:25"))
    # one that came to no week, because Prometheus did not answer, forgets nobody
    record_run(folder, 650.0, succeeded=False)
    assert read_runs(folder) == Runs(100.0, 650.0, 300.0, "2026-W46", ("the webhook", "mail:25"))
    record_run(folder, 700.0, succeeded=False, week="2026-W47")
    assert read_runs(folder) == Runs(100.0, 700.0, 300.0)
    record_run(folder, 800.0, succeeded=True, week="2026-W47", sent_to=("the webhook",))
    assert read_runs(folder) == Runs(100.0, 800.0, 800.0, earlier_successes=(300.0,))
    # without a daemon the first run is when it is known from
    record_run(str(tmp_path / "other"), 500.0, succeeded=True)
    assert read_runs(str(tmp_path / "other")) == Runs(500.0, 500.0, 500.0)
    assert [path.name for path in (tmp_path / "reviews").iterdir()] == [NAME]


def test_the_first_run_for_a_due_time_is_remembered(tmp_path: Path) -> None:
    folder = str(tmp_path)
    begin_runs(folder, 100.0)
    record_attempt(folder, 200.0, 150.0)
    record_run(folder, 210.0, succeeded=False)
    record_attempt(folder, 300.0, 150.0)
    assert read_runs(folder) == Runs(100.0, 300.0, tried_since=200.0)
    record_attempt(folder, 400.0, 350.0)
    assert read_runs(folder) == Runs(100.0, 400.0, tried_since=400.0)
    record_run(folder, 410.0, succeeded=True)
    assert read_runs(folder) == Runs(100.0, 410.0, 410.0)


def test_what_would_happen_later_is_not_known(tmp_path: Path) -> None:
    begin_runs(str(tmp_path), 9000.0)
    record_run(str(tmp_path), 9000.0, succeeded=True)
    record_attempt(str(tmp_path), 9500.0, 9400.0)
    known = begin_runs(str(tmp_path), 100.0)
    assert known.drop_future(100.0) == Runs(0.0)
    assert known.drop_future(9490.0) == known


def test_a_file_that_is_none_is_put_aside_and_another_begun(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / NAME).write_text("{")
    assert begin_runs(str(tmp_path), 200.0, 150.0) == begin_runs(str(tmp_path), 300.0, 250.0) == Runs(150.0)
    assert (tmp_path / f"{NAME}.bad").read_text() == "{"
    assert caplog.text.count("is not what a review leaves") == 1


@check_rows(
    "content",
    [b"", b"[]", b'{"version": 2}', b'{"version": 1}', b"\xff", b"[" * 9000, b'{"version": 1, "since_unix_seconds": true}',
     b'{"version": 1, "since_unix_seconds": 1, "sent": [1]}',
     b'{"version": 1, "since_unix_seconds": 1, "last_run_unix_seconds": "x"}', b" " * 100_000],
)  # fmt: skip
def test_a_file_that_is_none_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ReviewRunsError, match="is not what a review leaves"):
        read_runs(str(tmp_path))
    with pytest.raises(ReviewRunsError):
        record_run(str(tmp_path), 1.0, succeeded=True)
    assert (tmp_path / NAME).read_bytes() == content


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ReviewRunsError, match="cannot be"):
        begin_runs(str(tmp_path / "file" / "below"), 1.0)
