"""A target that was removed, one that went with its exporter, one whose exporter was dead: only the last is a gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from llm_serving_review.evidence.gaps import Reason, Silence, Watching, divide_silence, watch_exporters
from llm_serving_review.evidence.names import Asking
from llm_serving_review.settings.settings import Settings
from tests.support.builders.costfortnight import blocks
from tests.support.builders.movedfortnight import TARGETS, MovedFortnight
from tests.support.builders.reviews import MONDAY, review_week
from tests.support.servers.prometheus_server import PrometheusServer

MINUTE, HOUR = 60.0, 3600.0
DAY_MINUTES = 1440
WHO = ((), "a:8000")
OWN, OTHER = ("llm", "own:10077"), ("llm", "other:10077")


def minutes(*spans: tuple[float, float]) -> bytearray:
    """Ones from an hour to an hour, exclusive."""
    found = bytearray(DAY_MINUTES)
    for begin, end in spans:
        found[round(begin * 60) : round(end * 60)] = b"\1" * (round(end * 60) - round(begin * 60))
    return found


def watched(**seen: object) -> Watching:
    """Data from 0 to 8 h and from 20 h on, by one exporter."""
    counted = {WHO: {OWN: minutes((0, 8), (20, 24))}}
    return Watching(0.0, DAY_MINUTES, counted, **seen)


SILENCE = Silence(WHO, 8 * HOUR - MINUTE, 20 * HOUR)


def divided(watching: Watching) -> list[tuple[Reason | None, float]]:
    """Reasons and their hours."""
    return [
        (part.reason, round(((part.silence.end or 24 * HOUR) - part.silence.begin) / HOUR, 1))
        for part in divide_silence(SILENCE, watching, 24 * HOUR)
    ]


def test_a_target_that_a_living_exporter_no_longer_has_was_removed() -> None:
    assert divided(watched(answered={OWN: minutes((0, 24))})) == [(Reason.REMOVED, 12.0)]
    # an exporter that has it and counts nothing does not know what its GPUs are
    has = {(OWN, "a:8000"): minutes((8, 20))}
    assert divided(watched(answered={OWN: minutes((0, 24))}, uncounted=has)) == [(Reason.UNCOUNTED, 12.0)]


def test_one_that_went_with_its_exporter_was_removed_while_others_are_scraped() -> None:
    own = {OWN: minutes((0, 8), (20, 24))}
    assert divided(watched(answered=own, jobs={("llm",): minutes((0, 24))})) == [(Reason.GONE, 12.0)]
    # none of its job, but others
    alone = {("llm",): minutes((0, 8), (20, 24))}
    assert divided(watched(answered=own, jobs=alone, anything={(): minutes((0, 24))})) == [(Reason.GONE, 12.0)]
    assert divided(watched(answered=own, jobs=alone)) == [(Reason.NOTHING, 12.0)]


def test_scrapes_that_fail_are_a_gap_until_nobody_tries_any_more() -> None:
    seen = watched(
        answered={OWN: minutes((0, 8), (20, 24))}, failed={OWN: minutes((8, 11))}, jobs={("llm",): minutes((0, 24))}
    )
    assert divided(seen) == [(Reason.DOWN, 3.0), (Reason.GONE, 9.0)]
    # a pod that ends fails its last scrapes
    seen = watched(
        answered={OWN: minutes((0, 8), (20, 24))}, failed={OWN: minutes((8, 8.1))}, jobs={("llm",): minutes((0, 24))}
    )
    assert divided(seen) == [(Reason.GONE, 12.0)]
    # one of a pair that is down hides nothing that the other says
    pair = Watching(
        0.0,
        DAY_MINUTES,
        {WHO: {OWN: minutes((0, 8), (20, 24)), OTHER: minutes((0, 8), (20, 24))}},
        answered={OTHER: minutes((0, 24))},
        failed={OWN: minutes((8, 20))},
    )
    assert divided(pair) == [(Reason.REMOVED, 12.0)]


def test_what_was_gone_before_nothing_was_scraped_stays_gone() -> None:
    seen = watched(answered={OWN: minutes((0, 8), (20, 24))}, jobs={("llm",): minutes((0, 12))})
    assert divided(seen) == [(Reason.GONE, 12.0)]


def test_what_another_fleet_scrapes_says_nothing_of_this_one() -> None:
    """Two clusters in one store: the same job, and pods of the same address."""
    here, there = (*OWN, "here"), (*OWN, "there")
    seen = Watching(
        0.0,
        DAY_MINUTES,
        {WHO: {here: minutes((0, 8), (20, 24))}},
        answered={here: minutes((0, 8), (20, 24)), there: minutes((0, 24))},
        jobs={("llm", "here"): minutes((0, 8), (20, 24)), ("llm", "there"): minutes((0, 24))},
        anything={("there",): minutes((0, 24))},
    )
    assert divided(seen) == [(Reason.NOTHING, 12.0)]


def test_without_any_scrape_nothing_is_said() -> None:
    assert divided(watched()) == [(None, 12.0)]


@pytest.mark.e2e
def test_own_series_of_a_central_exporter_are_enough(tmp_path: Path) -> None:
    """Without `up`: one that is removed for good, one that is scaled by day."""
    targets = tuple(one for one in TARGETS if one.name in ("leaver:8000", "day:8000"))
    blocks(MovedFortnight(MONDAY, targets, with_up=False).text, tmp_path / "data")
    with PrometheusServer(tmp_path, "global: {}\n") as server:
        made = review_week(server, Settings())
    assert made.gaps == ()
    assert made.now.usd == pytest.approx(sum(one.usd(1) for one in targets), rel=1e-3)
    assert made.split is not None


class _Asked:
    """A reader of which `up` has no label of the target's."""

    asking = Asking(("team",))

    def read_by_minute(self, query: str, begin: float, end: float, step: float = MINUTE) -> list[object]:
        if "or on (job, instance" in query:
            return [({"job": "llm", "instance": "own:10077"}, [(at * MINUTE, 1.0) for at in range(DAY_MINUTES)])]
        return []


def test_a_label_that_targets_alone_have_hides_no_scrape() -> None:
    who = (("team", "red"),), "a:8000"
    counted = {who: {(*OWN, "red"): minutes((0, 8), (20, 24))}}
    silence = Silence(who, 8 * HOUR - MINUTE, 20 * HOUR)
    end = (DAY_MINUTES - 1) * MINUTE
    watching = watch_exporters(_Asked(), counted, [silence], 0.0, end)
    (part,) = divide_silence(silence, watching, end)
    assert part.reason == Reason.REMOVED
