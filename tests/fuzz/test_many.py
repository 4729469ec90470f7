"""A long run of the fuzzer: nothing of it is lost, and nothing is tried twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import many
from tests.fuzz.inputs import SEED

pytestmark = pytest.mark.process


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which each number goes that is tried; 7 does not hold."""
    file = tmp_path / "tried"

    def note(number: int) -> None:
        with file.open("a") as lines:
            print(number, file=lines)
        assert number != 7

    monkeypatch.setattr(many, "FOLDER", tmp_path)
    monkeypatch.setattr(many, "PART_INPUTS", 5)
    monkeypatch.setitem(many.KINDS, "requests", note)
    return file


def numbers(file: Path) -> list[int]:
    return sorted(map(int, file.read_text().split()))


def test_each_number_is_tried_once_and_what_does_not_hold_is_kept(
    tried: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert many.main(["requests", "--until", "12", "--processes", "2"]) == 1
    assert numbers(tried) == list(range(12))
    assert "12 inputs of seed 20, 1 for which" in capsys.readouterr().out.replace(f"seed {SEED}", "seed 20")
    found = tried.parent / "found" / f"requests-{SEED}-7"
    assert found.with_name(f"{found.name}.0").read_bytes() == many.make_request(7)
    assert "AssertionError" in found.with_name(f"{found.name}.txt").read_text()


def test_a_run_that_was_interrupted_goes_on_with_what_is_left(tried: Path) -> None:
    parts = tried.parent / f"requests.{SEED}.parts"
    # a line that was being written when it ended
    parts.write_text("0 5 0 .\n1 5")
    assert many.main(["requests", "--until", "10"]) == 1
    assert numbers(tried) == list(range(5, 10))
    tried.unlink()
    assert many.main(["requests", "--until", "12"]) == 1
    assert numbers(tried) == [10, 11]


def test_an_input_that_does_not_end_is_found(tried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def spin(_number: int) -> None:
        while True:
            pass

    monkeypatch.setattr(many, "MOST_SECONDS", 0.05)
    monkeypatch.setitem(many.KINDS, "requests", spin)
    assert many.main(["requests", "--until", "1"]) == 1
    assert "TooSlowError" in (tried.parent / "found" / f"requests-{SEED}-0.txt").read_text()
