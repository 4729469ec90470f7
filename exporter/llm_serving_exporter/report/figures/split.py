"""Why the spend changed: an exact split into price, volume, mix and utilisation, without a residual.

Spend of a cell (model, role, phase) = T x s x h x p: all tokens T, the cell's share s, allocated GPU-hours per token h, USD per GPU-hour p.
LMDI-I (B. W. Ang, Energy Policy 33 (2005) 867-871): each factor's part is the sum over cells of L(C1, C0) x ln(factor1 / factor0), L the
logarithmic mean; the logarithms add up to ln(C1 / C0), so that the parts add up to the change.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log, log1p

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Cell:
    """A week of one model, role and phase. Idle and down time is included: what the target did bears it."""

    # computed or generated
    tokens: float
    # allocated GPU-hours
    gpu_hours: float
    # allocated cost
    usd: float


@dataclass(frozen=True, slots=True)
class Split:
    """USD by cause; they add up to the change."""

    # another price of a GPU-hour
    price: float
    # more or fewer tokens
    volume: float
    # another spread over models and phases
    mix: float
    # more or fewer GPU-hours for a token
    utilisation: float

    @property
    def total(self) -> float:
        """The change."""
        return self.price + self.volume + self.mix + self.utilisation


def logarithmic_mean(a: float, b: float) -> float:
    """(a - b) / ln(a / b), or a where both are equal. Both are above 0."""
    if a == b:
        return a
    off = (a - b) / b
    # near each other ln(a / b) has lost its digits, ln(1 + off) has not
    return (a - b) / (log1p(off) if abs(off) < 0.5 else log(a / b))


def split_change(
    before: Mapping[Key, Cell], after: Mapping[Key, Cell], tokenless_before: float = 0.0, tokenless_after: float = 0.0
) -> Split:
    """Splits the change from one week to the next.

    Cells that only one week has are mix. `tokenless_…`: cost of targets that computed no tokens, which counts as utilisation.
    """
    volumes = _tokens(before), _tokens(after)
    price = volume = mix = utilisation = 0.0
    for key in sorted(before.keys() | after.keys()):
        old, new = before.get(key), after.get(key)
        if old is None or new is None or not (_whole(old) and _whole(new)):
            mix += (new.usd if new else 0.0) - (old.usd if old else 0.0)
            continue
        weight = logarithmic_mean(new.usd, old.usd)
        volume += weight * log(volumes[1] / volumes[0])
        mix += weight * log((new.tokens / volumes[1]) / (old.tokens / volumes[0]))
        utilisation += weight * log((new.gpu_hours / new.tokens) / (old.gpu_hours / old.tokens))
        price += weight * log((new.usd / new.gpu_hours) / (old.usd / old.gpu_hours))
    return Split(price, volume, mix, utilisation + tokenless_after - tokenless_before)


def scale_to_million(cells: Mapping[Key, Cell]) -> dict[Key, Cell]:
    """The same cells scaled to a million tokens in all, so that splitting them shows no volume."""
    tokens = _tokens(cells)
    scale = 1e6 / tokens if tokens else 0.0
    return {key: Cell(cell.tokens * scale, cell.gpu_hours * scale, cell.usd * scale) for key, cell in cells.items()}


def _tokens(cells: Mapping[Key, Cell]) -> float:
    return _sum(cell.tokens for cell in cells.values())


def _sum(values: Iterable[float]) -> float:
    return sum(values)


def _whole(cell: Cell) -> bool:
    """Whether the cell has every factor."""
    return cell.tokens > 0 and cell.gpu_hours > 0 and cell.usd > 0
