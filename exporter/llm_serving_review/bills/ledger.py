"""The charges of a week, added up as they come: by machine and UTC hour what is compared, everything else by what it is about.

Memory goes by machines and commitments, which are bounded, and not by lines.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import lru_cache
from itertools import pairwise
from math import ceil, floor, fsum, inf

from llm_serving_exporter.model.record import Struct, field, replace
from llm_serving_review.bills.charge import GPU_FAMILIES, MOST_KEPT, Charge, Kind, is_one_machine, normalise_resource
from llm_serving_review.evidence.week import HOUR_SECONDS, Week

# --- What a bill covers of a week, by the times of its lines of usage. Each cloud writes its bill at its own time, and has one of these.


Span = tuple[float, float]
# an account's bill without a line of anything for longer than that lacks a file
_LONGEST_SILENCE = 72 * HOUR_SECONDS
# within a bill so much without a line of anything is worth a look
_LEAST_HOLE_HOURS = 24


class Coverage:
    """Takes the times of lines in any order."""

    def __init__(self, begin: float, end: float) -> None:
        """The week, Unix seconds."""
        self._begin, self._end = begin, end
        self._first_hour = floor(begin / HOUR_SECONDS)
        # 1 for each UTC hour of the week that any line touches
        self._hours = bytearray(ceil(end / HOUR_SECONDS) - self._first_hour)
        # the first and the last moment of lines that lie in the week, and of those beside it the nearest
        self._first, self._last = inf, -inf
        self._before, self._after = -inf, inf

    def note(self, begin: float, end: float) -> None:
        """One more line."""
        if end <= self._begin:
            self._before = max(self._before, end)
        elif begin >= self._end:
            self._after = min(self._after, begin)
        else:
            self._first, self._last = min(self._first, begin), max(self._last, end)
            first = max(0, floor(begin / HOUR_SECONDS) - self._first_hour)
            last = min(len(self._hours), ceil(end / HOUR_SECONDS) - self._first_hour)
            self._hours[first:last] = b"\1" * (last - first)

    def find(self) -> Span | None:
        """What is covered, Unix seconds; None for nothing. Lines on both sides of a long time without any do not cover it: a file is
        missing there."""
        if self._first > self._last:
            return (self._begin, self._end) if self._after - self._before <= _LONGEST_SILENCE else None
        first = self._begin if self._first - self._before <= _LONGEST_SILENCE else self._first
        last = self._end if self._after - self._last <= _LONGEST_SILENCE else self._last
        return max(first, self._begin), min(last, self._end)

    def find_holes(self) -> list[Span]:
        """A day and more between two lines of the week, Unix seconds."""
        touched = [hour for hour, is_touched in enumerate(self._hours, self._first_hour) if is_touched]
        return [
            ((before + 1) * HOUR_SECONDS, after * HOUR_SECONDS)
            for before, after in pairwise(touched)
            if after - before > _LEAST_HOLE_HOURS
        ]


# --- Which lines of a bill are compared: GPUs of the fleet's accounts. All others are one sum.


class Scope:
    """Decides line by line.

    A line about an instance goes by the instance's type; one that says no type, as on bills that list cores, memory and GPUs of a machine
    each by itself, by whether its machine is known.
    """

    def __init__(
        self, types: Collection[str] = (), accounts: Collection[str] = (), known: Collection[str] = ()
    ) -> None:
        """`types`: of instances, and patterns as in p5.*, which go by upper and lower case alike; () for all that are known to have GPUs.
        `accounts`: () for all. `known`: machines that were metered or are mapped, by `normalise_resource`."""
        any_type = re.compile("|".join(translate(pattern.lower()) for pattern in types or GPU_FAMILIES))
        # whether a type of instances is compared
        self.cover_instance = lru_cache(MOST_KEPT)(lambda text: any_type.match(text.strip().lower()) is not None)
        self._accounts = frozenset(account.lower() for account in accounts)
        self._known = frozenset(known)

    @property
    def has_accounts(self) -> bool:
        """Whether the settings list accounts."""
        return bool(self._accounts)

    def cover_account(self, charge: Charge) -> bool:
        """Whether the line is of an account whose bill is compared."""
        if not self._accounts:
            return True
        # Azure's are paths, such as /subscriptions/…, of which the last part is enough
        account = charge.account.lower()
        return account in self._accounts or account.rsplit("/", 1)[-1] in self._accounts

    def cover_usage(self, charge: Charge) -> bool:
        """Whether a line of usage is compared."""
        if charge.instance_type and self.cover_instance(charge.instance_type):
            return True
        if not charge.instance_type and not charge.is_compute:
            return False
        return self.name_machine(charge)

    def name_machine(self, charge: Charge) -> bool:
        """Whether a line names a machine that was metered or is mapped, whatever it is about."""
        return bool(charge.resource) and normalise_resource(charge.resource) in self._known

    def cover_type(self, instance_type: str) -> bool:
        """Whether a type of instances is compared, or any of a family of them, as p5 by p5.48xlarge."""
        return self.cover_instance(f"{instance_type}.48xlarge") or self.cover_instance(instance_type)


# machines and commitments that have rows of their own; further ones are added up as one
MOST_MACHINES = 10_000
MOST_COMMITMENTS = 2_000
# lines by their numbers: 64 bytes each
MOST_IDENTITIES = 1_000_000
REST = "(all further machines)"
# of types of instances that are named where nothing is compared
_MOST_TYPES = 100
# up to a day is compared by days; at a clock change some bills have a day of 25 hours
_LONGEST_DAY = 25 * HOUR_SECONDS


class Sum(Struct):
    """Lines that are counted and not compared."""

    lines: int = 0
    effective_usd: float = 0.0  # USD, amortised
    billed_usd: float = 0.0  # USD, as invoiced

    def add(self, effective_usd: float, billed_usd: float, lines: int = 1) -> None:
        """One more line, or several with their sums."""
        self.lines += lines
        self.effective_usd += effective_usd
        self.billed_usd += billed_usd


class Machine(Struct):
    """What is billed for a machine, by hour."""

    name: str  # as the bill names it
    instance_type: str  # "" where no line says
    account: str  # that used it; "" where no line says
    effective: array[float]  # USD, amortised
    billed: array[float]  # USD, as invoiced
    hours: array[float]  # hours of an instance; meaningless where `counts_hours` is False
    cloud: str = ""  # whose bill it is on, as `find_cloud_of_provider` names it; of several the first
    counts_hours: bool = True  # whether every line of it counts in hours
    # the time that lines without hours of an instance cover, by slot, in hours; None where that is not known, or every line counts them
    covered: array[float] | None = None
    forgot_hours: bool = False  # whether a line counts no hours and covers more than one, or no single machine
    gpus: float | None = None  # of one instance; None where no line says
    tags: Mapping[str, str] = field(default_factory=dict)  # the tags that the settings name

    def read_hours(self) -> array[float] | None:
        """Hours of an instance by slot: as the lines count them, else the time for which a single machine is billed by the hour. None
        where they say neither."""
        if self.counts_hours:
            return self.hours
        if self.forgot_hours or self.covered is None:
            return None
        return array("d", map(max, self.hours, self.covered))


class Commitment(Struct):
    """A reservation or savings plan."""

    unused: array[float]  # USD by hour that nothing used
    lines: int = 0  # how many lines say so
    instance_type: str = ""  # the type or family of instances that it is for; "" for any
    in_scope_usd: float = 0.0  # USD that it paid for lines that are compared
    covered_usd: float = 0.0  # USD that it paid for any line


class Ledger:
    """Takes charges in any order."""

    def __init__(self, week: Week, scope: Scope) -> None:
        self._scope = scope
        self._begin, self._end = week.begin, week.end
        self.first_hour = floor(week.begin / HOUR_SECONDS)  # the UTC hour of slot 0, in hours since the epoch
        self.slots = ceil(week.end / HOUR_SECONDS) - self.first_hour  # UTC hours that the week touches
        self.machines: dict[str, Machine] = {}  # by normalised name
        self.commitments: dict[str, Commitment] = {}  # by the commitment's id
        self.beside: dict[Kind, Sum] = defaultdict(Sum)  # what is no usage, by what it is about
        self.in_week = Sum()  # every line of which a part lies in the week, compared or not; what came twice once
        self.other_types: set[str] = set()  # some of the types of instances that usage names which is not compared
        self.fleet_lines = 0  # such usage that names a machine of the fleet all the same, because it is no time of one
        self.other_account_lines = 0  # lines of it that are of other accounts than the settings name
        self.others = Sum()  # usage that is not in scope
        self.outside_lines = 0  # lines of which no part lies in the week
        self.repeated_lines = 0  # lines that came twice, by their numbers
        self.unnamed_lines = 0  # compared lines that name no machine
        self.forgot_identities = False  # whether there were too many lines to tell repeated ones
        self.daily_lines = 0  # compared lines that cover more than an hour, up to a day
        self.longer = Sum()  # compared lines that cover more than a day, with what of them counts
        self.covers_to = -inf  # Unix seconds: the last moment that any line of usage covers
        # what the lines cover, by cloud
        self._coverages: dict[str, Coverage] = defaultdict(lambda: Coverage(week.begin, week.end))
        self._compared_clouds: set[str] = set()  # clouds of which lines are compared
        self._seen: set[int] = set()

    def add(self, charge: Charge) -> Machine | None:
        """Takes a charge; the machine whose it is, where it is compared."""
        begin, end = charge.begin, charge.end
        if charge.kind is Kind.USAGE and end - begin <= _LONGEST_DAY:
            self.covers_to = max(self.covers_to, end)
            self._coverages[charge.cloud].note(begin, end)
        if end <= self._begin or begin >= self._end:
            self.outside_lines += 1
            return None
        share = (min(end, self._end) - max(begin, self._begin)) / (end - begin)
        repeated = self.repeated_lines
        machine = self._add_share(charge, share)
        if self.repeated_lines == repeated:
            self.in_week.add(charge.effective_usd * share, charge.billed_usd * share)
        return machine

    def _add_share(self, charge: Charge, share: float) -> Machine | None:
        """`share`: how much of the charge lies in the week."""
        if not self._scope.cover_account(charge):
            self.other_account_lines += 1
            self.others.add(charge.effective_usd * share, charge.billed_usd * share)
        elif charge.kind is Kind.USAGE:
            return self._add_usage(charge, share)
        elif not self._is_repeated(charge):
            if charge.kind is Kind.UNUSED:
                self._add_unused(charge, share)
            else:
                self.beside[charge.kind].add(charge.effective_usd * share, charge.billed_usd * share)
        return None

    def find_covered(self) -> dict[str, Span]:
        """What the bill covers of the week, by the times of its lines, Unix seconds: by cloud, of those whose lines are compared, or of all
        where none is. Each cloud writes its bill at its own time."""
        return {cloud: span for cloud, one in self._list_coverages() if (span := one.find()) is not None}

    def find_holes(self) -> list[Span]:
        """A day and more within the week of which a cloud's bill has no line of any usage, Unix seconds."""
        return sorted({hole for _, one in self._list_coverages() for hole in one.find_holes()})

    def _list_coverages(self) -> list[tuple[str, Coverage]]:
        clouds = self._compared_clouds or self._coverages.keys()
        return [(cloud, one) for cloud, one in self._coverages.items() if cloud in clouds]

    def _add_usage(self, charge: Charge, share: float) -> Machine | None:
        is_compared = self._scope.cover_usage(charge)
        if is_compared and self._is_repeated(charge):
            return None
        if charge.commitment and (commitment := self._find_commitment(charge.commitment)) is not None:
            commitment.covered_usd += charge.effective_usd * share
            if is_compared:
                commitment.in_scope_usd += charge.effective_usd * share
        if not is_compared:
            self.fleet_lines += self._scope.name_machine(charge)
            if charge.instance_type and len(self.other_types) < _MOST_TYPES:
                self.other_types.add(charge.instance_type)
            self.others.add(charge.effective_usd * share, charge.billed_usd * share)
            return None
        length = charge.end - charge.begin
        if length > _LONGEST_DAY:
            self.longer.add(charge.effective_usd * share, charge.billed_usd * share)
        elif length > HOUR_SECONDS:
            self.daily_lines += 1
        self._compared_clouds.add(charge.cloud)
        self.unnamed_lines += not charge.resource
        machine = self._find_machine(charge)
        hours = charge.instance_hours
        covered = None
        is_one = is_one_machine(normalise_resource(charge.resource)) and machine is not self.machines.get(REST)
        if hours is None and (length > HOUR_SECONDS or not is_one):
            machine.forgot_hours = True
        elif hours is None:
            covered = machine.covered = machine.covered or self._zeros()
        for slot, part in self._spread(charge):
            if covered is not None:
                # the parts of a machine are billed for the same time, each by itself
                covered[slot] = max(covered[slot], part * length / HOUR_SECONDS)
            machine.effective[slot] += charge.effective_usd * part
            machine.billed[slot] += charge.billed_usd * part
            if hours is not None:
                machine.hours[slot] += hours * part
        machine.counts_hours = machine.counts_hours and hours is not None
        machine.gpus = charge.gpus or machine.gpus
        return machine

    def _add_unused(self, charge: Charge, share: float) -> None:
        # a fee is invoiced for all of the commitment, used or not
        self.beside[Kind.PURCHASE].add(0.0, charge.billed_usd * share)
        found = self._find_commitment(charge.commitment or "(unnamed)")
        if found is None:
            self.others.add(charge.effective_usd * share, 0.0)
            return
        found.lines += 1
        found.instance_type = found.instance_type or charge.instance_type
        for slot, part in self._spread(charge):
            found.unused[slot] += charge.effective_usd * part

    def _spread(self, charge: Charge) -> Iterator[tuple[int, float]]:
        """The slots that a charge covers, each with its part of the charge; a slot at the week's edge has what lies in the week."""
        begin, end = max(charge.begin, self._begin), min(charge.end, self._end)
        length = charge.end - charge.begin
        slot = floor(begin / HOUR_SECONDS) - self.first_hour
        while begin < end:
            until = min(end, (self.first_hour + slot + 1) * HOUR_SECONDS)
            yield slot, (until - begin) / length
            begin, slot = until, slot + 1

    def _find_machine(self, charge: Charge) -> Machine:
        key = normalise_resource(charge.resource) or f"({charge.instance_type or 'no name'})"
        if key not in self.machines and len(self.machines) >= MOST_MACHINES:
            key = REST
        found = self.machines.get(key)
        if found is None:
            name = charge.resource if key != REST and charge.resource else key
            zeros = self._zeros(), self._zeros(), self._zeros()
            found = Machine(name, charge.instance_type, charge.account, *zeros, charge.cloud)
            self.machines[key] = found
        found.instance_type = found.instance_type or charge.instance_type
        return found

    def _find_commitment(self, name: str) -> Commitment | None:
        """None where there are too many."""
        found = self.commitments.get(name)
        if found is None and len(self.commitments) < MOST_COMMITMENTS:
            found = self.commitments[name] = Commitment(self._zeros())
        return found

    def _is_repeated(self, charge: Charge) -> bool:
        if not charge.identity or self.forgot_identities:
            return False
        # AWS promises numbers that are unique within a file alone: two lines are one where everything else is the same, too
        number = hash(
            (charge.identity, charge.begin, charge.resource, charge.kind, charge.effective_usd, charge.billed_usd)
        )
        if number in self._seen:
            self.repeated_lines += 1
            return True
        self._seen.add(number)
        if len(self._seen) >= MOST_IDENTITIES:
            self.forgot_identities = True
            self._seen.clear()
        return False

    def _zeros(self) -> array[float]:
        return array("d", bytes(8 * self.slots))


# --- Which part of the week a bill can be compared over: its hours, or its whole days in UTC. Pure.


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

    def fold(self, *columns: Sequence[float]) -> list[float]:
        """Columns of values by slot of the week -> their sums by what is compared."""
        slots = columns[0] if len(columns) == 1 else [fsum(values) for values in zip(*columns, strict=True)]
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
    return ledger.covers_to > now - PRELIMINARY_SECONDS
