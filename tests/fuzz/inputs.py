"""Inputs by number: the same number and seed give the same input on every machine. `KINDS` tries each kind with what must hold for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from random import Random
from zlib import crc32

from tests.fuzz.harness import check_configuration, check_page, check_request, check_successor, check_ticks
from tests.fuzz.mutations import damage, mutate, revalue, seeds
from tests.support.paths import ROOT

SEED = int(os.environ.get("FUZZ_SEED", "20"))
FEW = 10_000  # of so many pages each is compared with what another parser reads, of those after them every tenth
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


def random_for(*what: object) -> Random:
    """Chance that depends on the seed and on what it is for, not on what was tried before."""
    return Random(repr((SEED, *what)))


pages = cache(seeds)


@cache
def _configurations() -> tuple[str, ...]:
    examples = [*sorted((ROOT / "deploy").glob("*.example.yml")), ROOT / "deploy" / "compose" / "exporter.yml"]
    return tuple(path.read_text() for path in examples)


def make_page(number: int) -> bytes:
    """A mutated page."""
    random = random_for("page", number)
    return mutate(random, random.choice(pages()), random.choice(pages()))


def make_successors(number: int) -> list[bytes]:
    """A page, and one that comes after it: the same one or the server's next, with other values, and at times with more that differs."""
    random = random_for("successor", number)
    at = random.randrange(len(pages()))
    before, after = pages()[at], revalue(random, pages()[random.choice((at, at ^ 1))])
    if random.random() < 0.3:
        after = mutate(random, after, random.choice(pages()), most=2)
    if random.random() < 0.2:
        before, after = before + b"# EOF\n", after + b"# EOF\n"
    return [before, after]


def try_successors(number: int) -> None:
    """Reads a page after another one, by parsers that want all samples, or those of some names."""
    before, after = make_successors(number)
    quarters = number % 5
    # not by hash(), which differs from one process to the next
    wanted = None if quarters == 4 else lambda name: crc32(name.encode()) % 4 < quarters
    check_successor(before, after, openmetrics=before.endswith(b"# EOF\n"), wanted=wanted)


def make_ticks(number: int) -> list[bytes]:
    """A page that a server sent, and what became of it one tick after the other."""
    random = random_for("tick", number)
    good, other = random.choice(pages()), random.choice(pages())
    # most mutations that break no line, else nothing but the parser is tried
    return [good, *(mutate(random, good, other, most=3) for _ in range(TICKS - 1))]


def make_configuration(number: int) -> bytes:
    """A mutated configuration."""
    random = random_for("configuration", number)
    text = random.choice(_configurations())
    if random.random() < 0.5:
        text = text.replace("# ", "")  # what is only shown there is tried too
    for _ in range(random.randint(1, 6)):
        at = random.randrange(len(text) + 1)
        text = text[:at] + random.choice(WORDS) + text[at + random.choice([0, 0, 1, 5, 40]) :]
    return damage(random, text.encode()) if random.random() < 0.2 else text.encode()


def make_request(number: int) -> bytes:
    """What a client sends: requests, mutated."""
    random = random_for("request", number)
    data = b"".join(random.choices(REQUESTS, k=random.randint(1, 3)))
    for _ in range(random.randint(1, 5)):
        at = random.randrange(len(data) + 1)
        token = random.choice(TOKENS) * random.choice([1, 1, 1, 300])
        data = data[:at] + token + data[at + random.choice([0, 0, 1, 9]) :]
    return damage(random, data) if random.random() < 0.3 else data


# what is tried with each number; raises where something does not hold
KINDS: dict[str, Callable[[int], None]] = {
    "pages": lambda number: check_page(make_page(number), asks_oracle=number < FEW or number % 10 == 0),
    "successors": try_successors,
    "ticks": lambda number: check_ticks(make_ticks(number)),
    "configurations": lambda number: check_configuration(make_configuration(number)),
    "requests": lambda number: check_request(make_request(number)),
}
