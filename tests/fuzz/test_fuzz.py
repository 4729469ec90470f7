"""Mutated pages, configurations and requests: a bounded number with a fixed seed, and all that ever made something fail.

FUZZ_INPUTS=10000 tries that many instead of a few hundred, FUZZ_SEED another beginning. `python -m tests.fuzz.many` tries a million, and
`python -m tests.fuzz.guided pages` looks for new ones by what code they reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from llm_serving_exporter.errors import ExpositionError
from llm_serving_exporter.fetch.exposition import parse_text
from tests.fuzz.harness import CORPUS, DOORS, be_quiet
from tests.fuzz.inputs import KINDS, make_ticks
from tests.support.builders.exposition_oracle import remembered_labels
from tests.support.quick import keep_quick

INPUTS = int(os.environ.get("FUZZ_INPUTS", "300"))
PIECES = 4  # for as many processes
TICK_SHARE = 10  # a pipeline's ticks with all that follows cost as much as twenty pages


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with be_quiet(), remembered_labels():
        yield


@pytest.mark.parametrize("piece", keep_quick(range(PIECES), lambda piece: piece < 2))
@pytest.mark.parametrize("kind", KINDS)
def test_what_must_hold_holds_for_mutated_inputs(kind: str, piece: int) -> None:
    for number in range(piece, INPUTS // (TICK_SHARE if kind == "ticks" else 1), PIECES):
        KINDS[kind](number)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_failed_holds(path: Path) -> None:
    DOORS[path.parent.name](path.read_bytes())


def test_mutations_come_far_enough_to_try_what_is_behind_the_parser() -> None:
    """Of the pages that ticks are tried with, at least a third is read: a fuzzer whose inputs are all refused tries one line."""
    good = 0
    for number in range(60):
        try:
            parse_text(make_ticks(number)[1].decode(), openmetrics=False)
        except (ExpositionError, UnicodeDecodeError):
            continue
        good += 1
    assert good >= 20
