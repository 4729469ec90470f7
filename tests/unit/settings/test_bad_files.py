"""One broken file for each rule. Its first lines say the exact messages, in order."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.errors import ConfigError
from tests.support.builders.configuration import load_flags
from tests.support.rows import check_rows

FOLDER = Path(__file__).parent / "bad"
FILES = sorted(FOLDER.glob("*.yml"))


def test_there_are_broken_files() -> None:
    assert len(FILES) > 100


@check_rows("path", FILES, ids=lambda path: path.stem)
def test_every_problem_is_reported_with_its_place_and_what_to_do(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    expected = [
        line.removeprefix("# expect ").replace("FILE", path.name, 1)
        for line in path.read_text().splitlines()
        if line.startswith("# expect ")
    ]
    with pytest.raises(ConfigError) as caught:
        load_flags("--config.file", path.name, environ={"HOME": "/"})
    assert [str(problem) for problem in caught.value.problems] == expected
    assert expected


@check_rows("path", FILES, ids=lambda path: path.stem)
def test_no_message_shows_a_secret(path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load_flags("--config.file", str(path), environ={"HOME": "/"})
    assert "hunter" not in str(caught.value)
    assert "123456" not in str(caught.value)
