"""Versions as servers write them, and the clauses of a table that they satisfy."""

from __future__ import annotations

import pytest

from llm_serving_exporter.engines.mapping import parse_version, satisfies
from tests.support.rows import check_rows


@check_rows(
    ("text", "version"),
    [
        ("0.32.0", (0, 32, 0)),
        ("v0.9.1", (0, 9, 1)),
        ("0.33.1rc1.dev5+gabc", (0, 33, 1)),
        ("dev", None),
        (None, None),
        ("", None),
    ],
)
def test_versions(text: str | None, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


@check_rows(
    ("version", "versions", "holds"),
    [
        ((0, 9), ">=0.9.0", True), ((0, 8, 5), ">=0.9", False), ((0, 9, 1), ">=0.9,<0.9.2", True), ((0, 9, 2), ">=0.9,<0.9.2", False),
        ((1, 0), "", True), ((0, 10), "<=0.10.0", True), ((0, 10, 1), ">0.10", True),
    ],
)  # fmt: skip
def test_version_clauses(version: tuple[int, ...], versions: str, holds: bool) -> None:
    assert satisfies(version, versions) is holds


def test_a_clause_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"not a version clause: '~=0\.9'"):
        satisfies((0, 9), "~=0.9")
