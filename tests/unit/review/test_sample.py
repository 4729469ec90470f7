"""The sample page of the documentation; `make check` says whether it is what today's code makes."""

from __future__ import annotations

from tests.support.builders.samplereview import make_sample


def test_the_sample_shows_everything() -> None:
    """Each part of the page has something to show, or a reader would not see that it exists."""
    made = make_sample()
    assert len(made.actions) == 3
    assert made.change is not None
    assert made.beyond.month is not None
    assert sum(1 for week in made.beyond.trend if week.known is None) == 2
    assert [day.day for day in made.beyond.unusual] == [3]
    assert made.gaps
    assert made.notes == () or made.missing_parts == ()
