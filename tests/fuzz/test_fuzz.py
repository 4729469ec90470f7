"""Mutated pages, configurations and requests: a bounded number with a fixed seed, and all that ever made something fail.

FUZZ_INPUTS=1000000 tries that many instead of a few hundred, FUZZ_SEED another beginning. `python -m tests.fuzz.guided pages` looks for new
ones by what code they reach.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.harness import DOORS, be_quiet, check_configuration, check_page, check_request, check_ticks
from tests.fuzz.mutations import damage, mutate, seeds
from tests.support.paths import ROOT

CORPUS = Path(__file__).parent / "corpus"
INPUTS = int(os.environ.get("FUZZ_INPUTS", "300"))
SEED = int(os.environ.get("FUZZ_SEED", "20"))
FEW = 10_000  # of so many each is compared with what another parser reads, of more every tenth
PIECES = 4  # for as many processes
TICKS = 3  # of each pipeline: a good page, and what became of it

REQUESTS = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    b"GET /metrics?target=a%20b HTTP/1.1\r\nHost: a\r\nAccept: application/openmetrics-text;version=1.0.0;q=0.5,*/*\r\n"
    b"Accept-Encoding: gzip;q=0\r\n\r\n",
    b"HEAD / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /debug/targets HTTP/1.1\r\nHost: a\r\n\r\n",
    b"POST /-/reload HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\nAuthorization: Basic YTpi\r\n\r\nabc",
    b"GET http://a:1/x?y HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n\r\nGET / HTTP/1.1\r\n\r\n",
)
TOKENS = (
    b"\r\n", b"\r", b"\n", b"\0", b":", b" ", b"HTTP/1.1", b"HTTP/0.9", b"HTTP/2.0", b"Transfer-Encoding: chunked\r\n", b"Host: ",
    b"Content-Length: 99999999999999999999\r\n", b"Content-Length: -1\r\n", b"//", b"/..", b"%", b"%zz", b"?", b"\xff", b"*", b"CONNECT",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"Upgrade: h2c\r\n", b"\x16\x03\x01",
)  # fmt: skip
WORDS = (
    "- ", ": ", "{", "}", "[", "]", "&a ", "*a", "!!python/object:os.system ", "|", ">", "'", '"', "\\", "#", "\t", "~", "null", "true",
    "0x1", "1e999", "-1", "5s", "1y", "http://a:1", "http://a:b@c:1", "\u2028", "\x00", "? ", "<<: ", "---\n", "...\n", "%TAG ! x\n",
    "é", "9" * 400,
)  # fmt: skip


def numbered(piece: int) -> range:
    return range(piece, INPUTS, PIECES)


def random_for(*what: object) -> Random:
    return Random(repr((SEED, *what)))


@pytest.fixture(scope="module", autouse=True)
def quiet() -> Iterator[None]:
    with be_quiet():
        yield


@pytest.fixture(scope="module")
def pages() -> list[bytes]:
    return seeds()


@pytest.mark.parametrize("piece", range(PIECES))
def test_mutated_pages_are_read_as_the_oracle_reads_them(piece: int, pages: list[bytes]) -> None:
    for number in numbered(piece):
        random = random_for("page", number)
        page = mutate(random, random.choice(pages), random.choice(pages))
        check_page(page, asks_oracle=INPUTS <= FEW or number // PIECES % 10 == 0)


@pytest.mark.parametrize("piece", range(PIECES))
def test_no_mutated_page_breaks_a_tick_or_what_is_published(piece: int, pages: list[bytes]) -> None:
    for number in numbered(piece)[::10]:  # a tick with all that follows costs as much as twenty pages
        random = random_for("tick", number)
        good, other = random.choice(pages), random.choice(pages)
        # most mutations that break no line, else nothing but the parser is tried
        check_ticks([good, *(mutate(random, good, other, most=3) for _ in range(TICKS - 1))])


@pytest.mark.parametrize("piece", range(PIECES))
def test_no_mutated_configuration_does_more_than_be_refused(piece: int) -> None:
    examples = [path.read_text() for path in sorted((ROOT / "deploy").glob("*.example.yml"))]
    examples += [path.read_text() for path in sorted((ROOT / "deploy" / "compose").glob("exporter.yml"))]
    for number in numbered(piece):
        random = random_for("configuration", number)
        text = random.choice(examples)
        if random.random() < 0.5:
            text = text.replace("# ", "")  # what is only shown there is tried too
        for _ in range(random.randint(1, 6)):
            at = random.randrange(len(text) + 1)
            text = text[:at] + random.choice(WORDS) + text[at + random.choice([0, 0, 1, 5, 40]) :]
        check_configuration(damage(random, text.encode()) if random.random() < 0.2 else text.encode())


@pytest.mark.parametrize("piece", range(PIECES))
def test_no_mutated_request_gets_half_an_answer(piece: int) -> None:
    for number in numbered(piece):
        random = random_for("request", number)
        data = b"".join(random.choices(REQUESTS, k=random.randint(1, 3)))
        for _ in range(random.randint(1, 5)):
            at = random.randrange(len(data) + 1)
            data = (
                data[:at]
                + random.choice(TOKENS) * random.choice([1, 1, 1, 300])
                + data[at + random.choice([0, 0, 1, 9]) :]
            )
        check_request(damage(random, data) if random.random() < 0.3 else data)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_once_failed_holds(path: Path) -> None:
    DOORS[path.parent.name](path.read_bytes())


def test_mutations_come_far_enough_to_try_what_is_behind_the_parser(pages: list[bytes]) -> None:
    """Of the pages that ticks are tried with, at least a third is read: a fuzzer whose inputs are all refused tries one line."""
    from llm_serving_exporter.errors import ExpositionError
    from llm_serving_exporter.parse.exposition import parse_text

    good = 0
    for number in range(60):
        random = random_for("far", number)
        try:
            parse_text(mutate(random, random.choice(pages), random.choice(pages), most=3).decode(), openmetrics=False)
        except (ExpositionError, UnicodeDecodeError):
            continue
        good += 1
    assert good >= 20
