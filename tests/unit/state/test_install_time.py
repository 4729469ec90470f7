"""The state file that holds the time of the first start: what is said where it cannot be had."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from llm_serving_exporter.state import install_time
from llm_serving_exporter.state.install_time import read_or_write_install_time
from tests.support.rows import check_rows

NOW, LATER = 1.8e9, 1.9e9
Log = pytest.LogCaptureFixture


def test_the_first_start_writes_it_and_the_next_ones_read_it(tmp_path: Path) -> None:
    path = str(tmp_path / "state.json")
    assert read_or_write_install_time(path, NOW) == NOW
    assert read_or_write_install_time(path, LATER) == NOW
    assert read_or_write_install_time(None, LATER) is None


def test_a_clock_that_is_not_set_yet_is_never_the_first_start(tmp_path: Path, caplog: Log) -> None:
    """A board without a battery for its clock boots in 1970."""
    path = tmp_path / "state.json"
    assert read_or_write_install_time(str(path), 12.5) is None
    assert "the clock is not set: when the exporter was installed is written to" in caplog.text
    assert not path.exists()
    # as an earlier version wrote it
    path.write_text('{"installed_unix_seconds": 12.5}')
    assert read_or_write_install_time(str(path), NOW) == NOW
    assert read_or_write_install_time(str(path), LATER) == NOW


@check_rows("content", [
        "", "{", "[]", "{}", '{"installed_unix_seconds": "today"}', '{"installed_unix_seconds": NaN}', '{"installed_unix_seconds": -5}',
        '{"installed_unix_seconds": 1e400}', '{"installed_unix_seconds": true}', "[" * 60_000, "\x00" * 100_000,
    ])  # fmt: skip
def test_a_file_of_something_else_is_to_be_removed(content: str, tmp_path: Path, caplog: Log) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    assert read_or_write_install_time(str(path), NOW) is None
    assert f"state file {path} is none of this exporter's (" in caplog.text
    assert caplog.text.rstrip().endswith("remove it to start a new one")
    assert path.read_text() == content


def test_a_file_that_may_not_be_read_is_not_to_be_removed(
    tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as the kernel refuses whoever is not root, which tests may be
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert read_or_write_install_time(str(tmp_path / "state.json"), NOW) is None
    assert caplog.records[0].getMessage() == (
        f"state file {tmp_path}/state.json cannot be read (Permission denied); give the exporter's user the right to read it, "
        "or choose another with --state-file"
    )
    assert "remove" not in caplog.text


def test_a_file_that_cannot_be_written_is_said_with_what_to_do(tmp_path: Path, caplog: Log) -> None:
    # a folder that is none refuses root too
    (tmp_path / "file").write_text("")
    for path, cause in ((tmp_path, "Is a directory"), (tmp_path / "file" / "state.json", "Not a directory")):
        caplog.clear()
        assert read_or_write_install_time(str(path), NOW) is None
        assert cause in caplog.text
        assert "choose another with --state-file" in caplog.text
        assert "remove" not in caplog.text


def test_a_folder_that_may_not_be_written_is_said(tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(install_time, "write_atomically", refuse)
    assert read_or_write_install_time(str(tmp_path / "state.json"), NOW) is None
    assert (
        "cannot be written (Permission denied); give the exporter's user the right to write its folder" in caplog.text
    )
