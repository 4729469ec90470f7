"""A file over time: what counts as a change, what stays while the file is bad, how often it is read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.files.watched import Watched, stamp_file


class Numbers:
    """A watched file that holds a whole number, and how often it was read."""

    def __init__(self, path: Path) -> None:
        self.path, self.reads = path, 0
        self.file = Watched(str(path), self._read, -1)

    def _read(self) -> int:
        self.reads += 1
        try:
            return int(self.path.read_text())
        except (OSError, ValueError) as error:
            raise LLMServingExporterError(str(error)) from None


@pytest.fixture
def numbers(tmp_path: Path) -> Numbers:
    (tmp_path / "number").write_text("1")
    return Numbers(tmp_path / "number")


def test_a_file_is_read_when_it_changes_and_only_then(numbers: Numbers) -> None:
    assert numbers.file.has_changed()
    assert numbers.file.refresh()
    assert (numbers.file.value, numbers.file.problem) == (1, None)
    assert not numbers.file.has_changed()
    assert not numbers.file.refresh()
    numbers.path.write_text("23")
    assert numbers.file.refresh()
    assert (numbers.file.value, numbers.reads) == (23, 2)


def test_a_bad_file_leaves_the_last_good_value_and_is_read_once(numbers: Numbers) -> None:
    numbers.file.refresh()
    numbers.path.write_text("many")
    assert numbers.file.refresh()
    assert not numbers.file.refresh()
    assert numbers.file.value == 1
    assert "many" in str(numbers.file.problem)
    numbers.path.unlink()
    assert numbers.file.refresh()
    assert not numbers.file.refresh()
    assert numbers.file.value == 1
    assert "No such file" in str(numbers.file.problem)
    numbers.path.write_text("2")
    assert numbers.file.refresh()
    assert (numbers.file.value, numbers.file.problem) == (2, None)


def test_the_first_value_stays_until_there_is_a_good_one(tmp_path: Path) -> None:
    for impossible in ("\0", "/dev/null/number", "x" * 5000, str(tmp_path / "missing")):
        file = Numbers(Path(impossible)).file
        assert file.refresh()
        assert not file.refresh()
        assert file.value == -1
        assert file.problem is not None


def test_what_counts_as_a_change(numbers: Numbers, tmp_path: Path) -> None:
    numbers.file.refresh()
    before = numbers.path.stat()
    # another file of the same size and time under the same name, as an atomic rename makes it
    other = tmp_path / "other"
    other.write_text("2")
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.rename(numbers.path)
    assert numbers.file.refresh()
    assert numbers.file.value == 2
    numbers.path.chmod(0o600)
    assert numbers.file.refresh()
    # written in place, and its time set back
    status = numbers.path.stat()
    numbers.path.write_text("3")
    os.utime(numbers.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert numbers.file.refresh()
    assert numbers.file.value == 3
    # a Kubernetes volume is swapped by a link
    (tmp_path / "new").write_text("3")
    numbers.path.unlink()
    numbers.path.symlink_to(tmp_path / "new")
    assert numbers.file.refresh()


def test_reread_reads_a_file_that_stayed_as_it_is(numbers: Numbers) -> None:
    numbers.file.refresh()
    numbers.file.reread()
    assert numbers.reads == 2


def test_a_change_while_the_file_is_read_is_seen_next_time(tmp_path: Path) -> None:
    path = tmp_path / "number"
    path.write_text("1")

    def read() -> str:
        said = path.read_text()
        if said == "1":
            path.write_text("22")
        return said

    file = Watched(str(path), read, "")
    assert file.refresh()
    assert file.value == "1"
    assert file.refresh()
    assert file.value == "22"
    assert not file.refresh()


def test_files_that_a_reading_names_are_watched_too_even_if_it_fails(tmp_path: Path) -> None:
    listing, part = tmp_path / "listing", tmp_path / "part"
    listing.write_text(str(part))

    def read() -> str:
        named = listing.read_text()
        file.watch(named)
        try:
            return Path(named).read_text()
        except OSError as error:
            raise LLMServingExporterError(str(error)) from None

    file = Watched(str(listing), read, "")
    assert file.refresh()
    assert file.problem is not None
    assert not file.refresh()
    part.write_text("here now")
    assert file.refresh()
    assert (file.value, file.problem) == ("here now", None)
    other = tmp_path / "other"
    other.write_text("another")
    listing.write_text(str(other))
    assert file.refresh()
    assert file.value == "another"
    part.write_text("nobody reads it any more")
    assert not file.refresh()


def test_the_stamp_of_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stamp_file(str(tmp_path / "missing"))
    with pytest.raises(ValueError, match="null"):
        stamp_file("\0")
