"""What the daemon takes from the review's settings, and what it refuses before it listens."""

from pathlib import Path

import pytest

from llm_serving_exporter.cli import main
from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.settings.config import ReviewSchedule
from llm_serving_exporter.settings.review import with_review
from tests.support.builders.configuration import load_flags
from tests.support.rows import check_rows

GOOD = 'prometheus: {url: "http://prometheus:9090"}\nschedule: "0 7 * * mon"\nout: reviews\ntimezone: Europe/Berlin\n'


def loaded(tmp_path: Path, text: str, *flags: str):
    path = tmp_path / "report.yml"
    path.write_text(text)
    config = load_flags("--target", "a:1", "--report.settings-file", str(path), *flags)
    return with_review(config, {})


def test_the_schedule_of_the_settings(tmp_path: Path) -> None:
    found = loaded(tmp_path, GOOD)
    path = str(tmp_path / "report.yml")
    expected = ReviewSchedule(path, str(tmp_path / "reviews"), "0 7 * * mon", "Europe/Berlin", True)
    assert found.review == expected
    assert loaded(tmp_path, GOOD, "--no-report.run").review.run is False
    # another schedule is another configuration
    assert loaded(tmp_path, GOOD.replace("7", "8")).config_hash != found.config_hash


def test_a_file_that_is_named_by_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "report.yml").write_text(GOOD)
    config = load_flags("--target", "a:1", "--report.settings-file", "report.yml")
    review = with_review(config, {}).review
    assert review.folder == str(tmp_path / "reviews")


@check_rows(
    ("text", "said"),
    [
        (GOOD.replace('prometheus: {url: "http://prometheus:9090"}\n', ""), "there is no Prometheus to ask"),
        (GOOD.replace('schedule: "0 7 * * mon"\n', ""), "there is no schedule"),
        (GOOD.replace("out: reviews\n", ""), "there is no folder for the reviews"),
        (GOOD + "keeep: 3\n", "keeep: this key is not known"),
        ("[", "report.yml"),
    ],
)
def test_what_the_daemon_cannot_do_with_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        loaded(tmp_path, text)


def test_check_config_reads_it_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "report.yml"
    path.write_text("schedule: soon")
    assert main(["check-config", "--target", "a:1", "--report.settings-file", str(path)]) == 2
    said = capsys.readouterr().err
    assert "schedule: " in said
    assert said.count("error: ") >= 1
    path.write_text(GOOD)
    assert main(["check-config", "--target", "a:1", "--report.settings-file", str(path)]) == 0
