"""SLO thresholds out of the settings file of the alert rules: what is read of it, what wins over it, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.settings.config import SloConfig
from tests.support.builders.configuration import load_flags, load_text, problems_of
from tests.support.rows import check_rows

RULES = Path(__file__).parent / "rules.yml"
TARGET = "targets: ['http://a:1']\n"
FROM_FILE = "targets: ['http://a:1']\nslo: {file: rules.yml}\n"
VARIABLE = "LLM_SERVING_EXPORTER_SLO_"


def rules(folder: Path, text: str) -> Path:
    path = folder / "rules.yml"
    path.write_text(text)
    return path


def test_the_thresholds_are_the_files() -> None:
    config = load_flags("--target", "a:1", "--slo.file", str(RULES))
    assert config.slo == SloConfig(ttft_seconds=0.5, itl_seconds=None, e2e_seconds=30.0, errors=True)


def test_a_relative_path_starts_at_the_configuration_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: 1s}}\n")
    monkeypatch.chdir(Path(__file__).parent)  # where a rules.yml with another threshold is
    assert load_text(tmp_path, FROM_FILE).slo.ttft_seconds == 1.0
    assert load_text(tmp_path, TARGET, "--slo.file", "rules.yml").slo.ttft_seconds == 0.5


def test_a_threshold_that_the_file_does_not_have_is_the_default(tmp_path: Path) -> None:
    for text in ("slo: {itl: {threshold: 50ms}}\n", "slo: {itl: {threshold: 50ms}, ttft: , e2e: {objective: 0.9}}\n"):
        rules(tmp_path, text)
        assert load_text(tmp_path, FROM_FILE).slo == SloConfig(itl_seconds=0.05)


def test_off_in_the_file_wins_over_a_default_that_is_on(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: off}}\n")
    assert SloConfig().ttft_seconds is not None
    assert load_text(tmp_path, FROM_FILE).slo.ttft_seconds is None


def test_what_else_is_in_the_file_is_not_the_exporters(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {errors: {threshold: 1s}, itl: {objective: many, of: x}, later: {}}\nalerts: [1, 2]\n")
    config = load_text(tmp_path, FROM_FILE)
    assert (config.slo, config.warnings) == (SloConfig(), ())


def test_a_slip_of_the_pen_is_warned_of_because_the_default_would_be_counted_by(tmp_path: Path) -> None:
    path = rules(tmp_path, "slo: {tftt: 3, itl: {treshold: x, objective: many}}\n")
    config = load_text(tmp_path, FROM_FILE)
    assert config.slo == SloConfig()
    assert config.warnings == (
        f"{path}: slo.tftt: not read, because this key is not known; did you mean ttft?",
        f"{path}: slo.itl.treshold: not read, because this key is not known; did you mean threshold?",
    )


def test_an_explicit_threshold_wins_and_a_warning_names_both_places(tmp_path: Path) -> None:
    path = rules(tmp_path, "slo: {ttft: {threshold: 1s}, itl: {threshold: 50ms}, e2e: {threshold: 30s}}\n")
    text = "targets: ['http://a:1']\nslo: {file: rules.yml, ttft: 2.5s}\n"
    config = load_text(tmp_path, text, "--slo.e2e", "off", environ={VARIABLE + "ITL": "100ms"})
    assert config.slo == SloConfig(ttft_seconds=2.5, itl_seconds=0.1, e2e_seconds=None)
    assert config.warnings == (
        f"{path}: slo.ttft.threshold: not used, because {tmp_path}/config.yml: slo.ttft takes its place",
        f"{path}: slo.itl.threshold: not used, because environment variable {VARIABLE}ITL takes its place",
        f"{path}: slo.e2e.threshold: not used, because flag --slo.e2e takes its place",
    )


def test_thresholds_of_the_file_are_held_against_the_buckets_too(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: 3s}}\n")
    (warning,) = load_text(tmp_path, FROM_FILE).warnings
    assert warning.startswith("slo.ttft: 3 s lies between the bucket edges 2.5 s and 5 s")


def test_the_hash_follows_the_thresholds_wherever_they_stand(tmp_path: Path) -> None:
    plain = load_text(tmp_path, TARGET + "slo: {ttft: 1s}\n").config_hash
    rules(tmp_path, "slo: {ttft: {threshold: 1s, objective: 0.99}}\n")
    assert load_text(tmp_path, FROM_FILE).config_hash == plain
    rules(tmp_path, "# for the rules only\nslo: {ttft: {threshold: 1000ms, objective: 0.999}}\n")
    assert load_text(tmp_path, FROM_FILE).config_hash == plain
    rules(tmp_path, "slo: {ttft: {threshold: 750ms, objective: 0.99}}\n")
    assert load_text(tmp_path, FROM_FILE).config_hash != plain


EXAMPLE = "Write slo: {ttft: {threshold: 2.5s}} into it, or do not give slo.file."


@check_rows(
    ("text", "problem"),
    [
        (None, "the file does not exist. Check the path."),
        ("", f"there is no section slo in this file, which CONFIG: slo.file names. {EXAMPLE}"),
        ("alerts: {}\n", f"there is no section slo in this file, which CONFIG: slo.file names. {EXAMPLE}"),
        ("- slo\n", f"there is no section slo in this file, which CONFIG: slo.file names. {EXAMPLE}"),
        ("slo:\n  # ttft: 1s\n", f"there is no section slo in this file, which CONFIG: slo.file names. {EXAMPLE}"),
        ("slo: 2.5s\n", f"slo: must be a mapping (key: value), not text. {EXAMPLE}"),
        ("slo: {ttft: 2.5s}\n", "slo.ttft: must be a mapping (key: value), not text. Write ttft: {threshold: 2.5s}, or off for 2.5s."),
        (
            "slo: {e2e: {threshold: 30}}\n",
            'slo.e2e.threshold: the duration "30" has no unit. Write 30s for seconds, 30ms for milliseconds. '
            "To count no events for this SLO write off.",
        ),
        (
            "slo: {itl: {threshold: }}\n",
            "slo.itl.threshold: the key has no value. Write a duration such as 2.5s, or off, or remove the line.",
        ),
        (
            "slo: {itl: {threshold: [1s]}}\n",
            "slo.itl.threshold: must be a duration such as 2.5s, or off, not a list. Write a single value.",
        ),
    ],
)  # fmt: skip
def test_a_file_that_is_no_good_is_refused_with_its_place_and_what_to_do(
    tmp_path: Path, text: str | None, problem: str
) -> None:
    if text is not None:
        rules(tmp_path, text)
    expected = f"{tmp_path}/rules.yml: " + problem.replace("CONFIG", f"{tmp_path}/config.yml")
    assert problems_of(tmp_path, FROM_FILE) == [expected]


def test_a_file_that_is_not_yaml_is_refused_where_it_is_not(tmp_path: Path) -> None:
    rules(tmp_path, "slo: {ttft: {threshold: 1s}\n")
    with pytest.raises(ConfigError) as caught:
        load_text(tmp_path, FROM_FILE)
    (problem,) = caught.value.problems
    assert problem.file.startswith(f"{tmp_path}/rules.yml")
    assert problem.fix
