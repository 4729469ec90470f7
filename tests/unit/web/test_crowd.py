"""Whose connection it is, and who makes room."""

from collections import Counter
from dataclasses import dataclass

from llm_serving_exporter.web.crowd import choose_leaving, name_peer
from tests.support.rows import check_rows

NOW = 100.0


@dataclass(eq=False)
class Guest:
    name: str
    peer: str
    since: float = 0.0
    has_earned: bool = False


def leaving(*guests: Guest, wanted: int = 1, reserve: int = 100) -> list[str]:
    counts = Counter(guest.peer for guest in guests)
    return [guest.name for guest in choose_leaving(guests, counts, wanted, reserve)]


@check_rows(
    ("address", "peer"),
    [
        (("192.0.2.7", 5), "192.0.2.7"),
        (("::ffff:192.0.2.7", 5, 0, 0), "192.0.2.7"),
        (("2001:db8:1:2:3:4:5:6", 5, 0, 0), "2001:db8:1:2::/64"),
        (("fe80::1%eth0", 5, 0, 2), "fe80::/64"),
        ("", ""),
        (("/run/x",), ""),
    ],
)
def test_a_peer_is_an_address_or_the_network_of_one_host(address: object, peer: str) -> None:
    assert name_peer(address) == peer


def test_of_the_peer_with_the_most_the_slowest_goes_first() -> None:
    crowd = [Guest(f"c{number}", "crowd", since=float(number)) for number in range(5)]
    alone = Guest("alone", "scraper", since=-50.0)
    assert leaving(alone, *crowd) == ["c0"]
    assert leaving(alone, *crowd, wanted=4) == ["c0", "c1", "c2", "c3"]
    # one of each is left: the slower one goes
    assert set(leaving(alone, *crowd, wanted=5)[:4]) == {"c0", "c1", "c2", "c3"}


def test_the_oldest_goes_first_and_who_was_answered_last() -> None:
    guests = (
        Guest("earned", "p", since=1.0, has_earned=True),
        Guest("newer", "p", since=NOW - 0.4),
        Guest("slow", "p", since=50.0),
        Guest("new", "p", since=NOW - 0.5),
    )
    assert leaving(*guests, wanted=4) == ["slow", "new", "newer", "earned"]


def test_who_was_answered_stays_whoever_has_the_most_and_only_so_many_of_them() -> None:
    asked_once = [Guest(f"a{number}", "crowd", since=float(number), has_earned=True) for number in range(4)]
    alone = Guest("alone", "scraper", since=NOW - 0.1)
    # two are kept; the others leave like anybody else, and a newcomer after them
    assert leaving(*asked_once, alone, wanted=4, reserve=2) == ["a0", "a1", "alone", "a2"]


def test_nobody_leaves_where_nobody_can() -> None:
    assert leaving() == []
    assert leaving(Guest("a", "p"), wanted=9) == ["a"]
