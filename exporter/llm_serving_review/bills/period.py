"""Which part of the week a bill can be compared over: its hours, or its whole days in UTC. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, floor, fsum

from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_review.bills.coverage import Span
from llm_serving_review.bills.ledger import Ledger
from llm_serving_review.evidence.week import HOUR_SECONDS, Week

_DAY_HOURS = 24
# lines of the last days are still added and changed: clouds say so of 24 h (AWS, Azure) and of more where usage is reported late
PRELIMINARY_SECONDS = 72 * HOUR_SECONDS


class Period(Struct, frozen=True):
    """What is compared."""

    begin: float  # Unix seconds
    end: float  # Unix seconds
    first: int  # the first slot of the week that counts
    last: int  # the slot after the last
    step: int  # slots that are compared as one: 1, or 24 for whole days in UTC
    # what of it each cloud's bill covers, by the cloud; {} where nobody tells them apart
    by_cloud: Mapping[str, Period] = field(default_factory=dict)

    @property
    def by_days(self) -> bool:
        """Whether whole days in UTC are compared."""
        return self.step == _DAY_HOURS

    @property
    def hours(self) -> float:
        """Its length."""
        return (self.end - self.begin) / HOUR_SECONDS

    def fold(self, slots: Sequence[float]) -> list[float]:
        """Values by slot of the week -> by what is compared."""
        if not slots:
            return [0.0] * len(range(self.first, self.last, self.step))
        return [fsum(slots[at : at + self.step]) for at in range(self.first, self.last, self.step)]

    def of_clouds(self, clouds: Iterable[str]) -> Period:
        """What the bills of these clouds cover; all of it where none of them has a bill."""
        found = [self.by_cloud[cloud] for cloud in clouds if cloud in self.by_cloud]
        return _join(found) if found else self


def find_period(ledger: Ledger, week: Week) -> Period | None:
    """The part of the week that the bill covers; None where it covers none. Each cloud's bill has its own part, and the whole reaches from
    the first of them to the last. With any line of a day it is cut to whole days in UTC."""
    found = {
        cloud: part
        for cloud, covered in ledger.find_covered().items()
        if (part := _cut(covered, ledger, week)) is not None
    }
    return replace(_join(list(found.values())), by_cloud=found) if found else None


def _join(parts: Sequence[Period]) -> Period:
    return Period(
        min(one.begin for one in parts), max(one.end for one in parts), min(one.first for one in parts),
        max(one.last for one in parts), parts[0].step,
    )  # fmt: skip


def _cut(covered: Span, ledger: Ledger, week: Week) -> Period | None:
    begin, end = floor(covered[0] / HOUR_SECONDS), ceil(covered[1] / HOUR_SECONDS)
    step = 1
    if ledger.daily_lines:
        step = _DAY_HOURS
        # a day that the week cuts cannot be compared
        begin = ceil(covered[0] / HOUR_SECONDS / step) * step
        end = floor(covered[1] / HOUR_SECONDS / step) * step
    if begin >= end:
        return None
    first, last = begin - ledger.first_hour, end - ledger.first_hour
    return Period(
        max(week.begin, begin * HOUR_SECONDS), min(week.end, end * HOUR_SECONDS), max(0, first), min(ledger.slots, last), step
    )  # fmt: skip


def is_preliminary(ledger: Ledger, now: float) -> bool:
    """Whether lines may still be added or changed. `now`: Unix seconds."""
    return ledger.covers_to is not None and ledger.covers_to > now - PRELIMINARY_SECONDS
