"""A file with a secret key: what is a key, and what must be another file."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_exporter.files.watched import KeyFileError, read_key_file


@pytest.mark.parametrize(
    "content", [b"0123456789abcdef", b"0123456789abcdef\r\n", 4096 * b"k"], ids=["bare", "line", "longest"]
)
def test_a_key_is_all_of_the_file_but_its_line_end(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "key").write_bytes(content)
    assert read_key_file(str(tmp_path / "key"), 16) == content.rstrip()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (4097 * b"k", "is larger than 4096 bytes, which no key is"),
        (4096 * b"k" + b"\n", "is larger than 4096 bytes, which no key is"),
        (b"0123456789abcde\n", "holds 15 bytes, which is short enough to be guessed"),
    ],
    ids=["larger", "larger with its line end", "short"],
)
def test_a_file_that_is_no_key_is_refused_and_not_quoted(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "key").write_bytes(content)
    with pytest.raises(KeyFileError) as refused:
        read_key_file(str(tmp_path / "key"), 16)
    assert str(refused.value) == problem
