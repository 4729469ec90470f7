"""Why the spend changed: USD by cause, exactly, and in cents that add up. The definitions stand in docs/internals-report.md. Pure.

Cost at last week's prices of a cell (model, role, phase) = T x s x e x i x P: all tokens T, the cell's share s, busy GPU-hours a token e,
all GPU-hours over busy ones i, last week's USD per GPU-hour P. LMDI-I (B. W. Ang, Energy Policy 33 (2005) 867-871): each factor's part is
the sum over cells of L(C1, C0) x ln(factor1 / factor0), L the logarithmic mean; the logarithms add up to ln(C1 / C0), so that the parts
add up to the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor, fsum, log, log1p

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, name_fields

Key = tuple[str, ...]


class Split(Struct, frozen=True):
    """USD by cause; they add up to the change."""

    came_and_went: float = 0.0  # targets, workloads and models that only one of the weeks had
    list_price: float = 0.0  # another price of the same kind of GPU at the same rate
    rate: float = 0.0  # the same kind of GPU at another rate
    hardware: float = 0.0  # another kind of GPU
    volume: float = 0.0  # more or fewer tokens
    mix: float = 0.0  # another spread over models and phases
    idle: float = 0.0  # more or fewer GPU-hours in which nothing was served, for each that was busy
    efficiency: float = 0.0  # more or fewer busy GPU-hours for a token
    left_out: float = 0.0  # what only one of the weeks knows: gaps, GPU time without a price

    @property
    def total(self) -> float:
        """The change."""
        return fsum(self.parts().values())

    @property
    def price(self) -> float:
        """List price, rate and hardware."""
        return self.list_price + self.rate + self.hardware

    def parts(self) -> dict[str, float]:
        """USD by the name of the cause."""
        return {name: getattr(self, name) for name in CAUSES}


CAUSES = name_fields(Split)


def add_splits(splits: Iterable[Split]) -> Split:
    """The sum, cause by cause."""
    found = list(splits)
    return Split(**{name: fsum(getattr(one, name) for one in found) for name in CAUSES})


def add_cents(splits: Iterable[Split]) -> Split:
    """The same of splits in whole cents."""
    return Split(**{name: round(value, 2) for name, value in add_splits(splits).parts().items()})


class Cell(Struct, frozen=True):
    """A week of one model, role and phase at last week's prices. Idle and down time is included: what the target did bears it."""

    tokens: float  # computed or generated
    busy_hours: float  # GPU-hours that the phase was busy for
    gpu_hours: float  # the same with the time that the target was not busy
    usd: float  # those at last week's price


def logarithmic_mean(a: float, b: float) -> float:
    """(a - b) / ln(a / b), or a where both are equal. Both are above 0."""
    if a == b:
        return a
    off = (a - b) / b
    # near each other ln(a / b) has lost its digits, ln(1 + off) has not
    return (a - b) / (log1p(off) if abs(off) < 0.5 else log(a / b))


def split_use(before: Mapping[Key, Cell], after: Mapping[Key, Cell]) -> dict[Key, Split]:
    """Splits the change of each cell, at last week's prices, into volume, mix, idle and efficiency.

    Cells that only one week has, or of which a factor is 0, are mix.
    """
    volumes = fsum(cell.tokens for cell in before.values()), fsum(cell.tokens for cell in after.values())
    found = {}
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old is None or new is None or not (_whole(old) and _whole(new)):
            found[key] = Split(mix=(new.usd if new else 0.0) - (old.usd if old else 0.0))
            continue
        weight = logarithmic_mean(new.usd, old.usd)
        volume = weight * log(volumes[1] / volumes[0])
        mix = weight * log((new.tokens / volumes[1]) / (old.tokens / volumes[0]))
        efficiency = weight * log((new.busy_hours / new.tokens) / (old.busy_hours / old.tokens))
        # whatever is left of the logarithm, prices being last week's in both
        found[key] = Split(
            volume=volume, mix=mix, efficiency=efficiency, idle=new.usd - old.usd - volume - mix - efficiency
        )
    return found


def _whole(cell: Cell) -> bool:
    """Whether the cell has every factor."""
    return cell.tokens > 0 and cell.busy_hours > 0 and cell.gpu_hours > 0 and cell.usd > 0


def round_parts(parts: Sequence[float], total_cents: int) -> list[int]:
    """Amounts in USD as whole cents that add up to `total_cents`, each less than a cent from where it was where they add up to it
    before they are rounded. Those that rounding moved furthest give way first."""
    exact = [100 * part for part in parts]
    cents = [floor(value + 0.5) for value in exact]
    while (left := total_cents - add_up(cents)) and cents:
        step = 1 if left > 0 else -1
        # an amount that is 0 stays so as long as another can give way
        at = max(range(len(cents)), key=lambda index: (bool(parts[index]), step * (exact[index] - cents[index])))
        cents[at] += step
    return cents


def round_splits(splits: Mapping[str, Split], total_cents: int) -> dict[str, Split]:
    """Splits in whole cents, by model: the causes of each add up to its change, and the changes to `total_cents`."""
    changes = round_parts([split.total for split in splits.values()], total_cents)
    found = {}
    for (model, split), change in zip(splits.items(), changes, strict=True):
        cents = round_parts(list(split.parts().values()), change)
        found[model] = Split(**{name: value / 100 for name, value in zip(CAUSES, cents, strict=True)})
    return found
