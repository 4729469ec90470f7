"""The horizontal pod autoscaler (autoscaling/v2) as Kubernetes documents it, for one external metric with a target of type AverageValue.

https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/#algorithm-details; where the page leaves something open, as the
controller of Kubernetes 1.34 does it (pkg/controller/podautoscaler).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# --horizontal-pod-autoscaler-sync-period
SYNC_SECONDS = 15
# --horizontal-pod-autoscaler-tolerance
TOLERANCE = 0.1
# scaling up in one period of 15 s: at most this many more, or as many again, whichever is more; and no limit on scaling down
_MOST_PODS, _MOST_FACTOR, _PERIOD_SECONDS = 4, 2, 15
_DOWN_WINDOW_SECONDS = 300


@dataclass
class Autoscaler:
    """One autoscaler and the replicas that it sets. `behavior`: as in the object; its policies are Kubernetes' own."""

    replicas: int
    least: int
    most: int
    behavior: Mapping[str, Any] = field(default_factory=dict)
    # before 1.33 a ratio was held against the tolerance by its distance from 1, which differs by one bit at 0.9 and 1.1
    before_1_33: bool = False
    _now: int = 0
    _recommended: list[tuple[int, int]] = field(default_factory=list)
    _added: list[tuple[int, int]] = field(default_factory=list)

    def sync(self, metric: float | None) -> int:
        """One round, 15 s after the one before. `metric`: the sum that an average of 1 a replica is wanted of; None: there is none."""
        self._now += SYNC_SECONDS
        if metric is None:
            return self.replicas
        desired = self._stabilised(self._recommendation(metric))
        desired = min(max(desired, self.least), self.most, self._most_now())
        if desired > self.replicas:
            self._added.append((self._now, desired - self.replicas))
        self.replicas = desired
        return desired

    def _recommendation(self, metric: float) -> int:
        # metrics are whole thousandths
        total = math.ceil(metric * 1000)
        ratio = total / (1000 * self.replicas)
        return self.replicas if self._is_within(ratio) else math.ceil(total / 1000)

    def _is_within(self, ratio: float) -> bool:
        up, down = (
            float(self.behavior.get(direction, {}).get("tolerance", TOLERANCE))
            for direction in ("scaleUp", "scaleDown")
        )
        if self.before_1_33:
            return abs(1.0 - ratio) <= TOLERANCE
        return 1.0 - down <= ratio <= 1.0 + up

    def _window(self, direction: str, default: int) -> int:
        return int(self.behavior.get(direction, {}).get("stabilizationWindowSeconds", default))

    def _stabilised(self, desired: int) -> int:
        up, down = self._window("scaleUp", 0), self._window("scaleDown", _DOWN_WINDOW_SECONDS)
        lowest = min([desired, *(number for at, number in self._recommended if at > self._now - up)])
        highest = max([desired, *(number for at, number in self._recommended if at > self._now - down)])
        self._recommended = [one for one in self._recommended if one[0] > self._now - max(up, down)]
        self._recommended.append((self._now, desired))
        return min(max(self.replicas, lowest), highest)

    def _most_now(self) -> int:
        added = sum(number for at, number in self._added if at > self._now - _PERIOD_SECONDS)
        before = self.replicas - added
        return max(self.replicas, before + _MOST_PODS, before * _MOST_FACTOR)
