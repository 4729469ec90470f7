"""What comes back from Prometheus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Labels = Mapping[str, str]
# Unix seconds, value
Points = Sequence[tuple[float, float]]
Series = tuple[Labels, Points]
Sample = tuple[Labels, float]
