"""Energy of a target's GPUs between two ticks."""

from __future__ import annotations

from llm_serving_exporter.model.gpu import GpuReadings
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.reading import TargetReading


class Joules:
    """Counts from tick to tick. `last`: what the counter of each GPU stood at, by UUID."""

    def __init__(self) -> None:
        self.last: dict[str, float] = {}

    def count(self, reading: TargetReading, gpus: GpuReadings | None) -> float | None:
        """Joules of the target's GPUs since the last tick, of each its own share of it; None where one of them does not say.

        Only GPUs that the target has now are remembered. What others use a GPU for while it is theirs is not counted here, also where
        the target gets it back.
        """
        uuids = reading.gpu_uuids
        self.last = {uuid: known for uuid, known in self.last.items() if uuid in uuids}
        if gpus is None or not uuids:
            return None
        by_uuid = {gpu.identity.uuid: gpu.energy_joules_total for gpu in gpus.gpus}
        now = {uuid: joules for uuid in uuids if (joules := by_uuid.get(uuid)) is not None}
        if len(now) < len(uuids):
            return None
        before, self.last = self.last, now
        # one may be its own and another shared: a mean share of their sum would take too much of the one that draws less
        shares = {uuid: _find_share(reading, uuid) for uuid in uuids}
        # a driver that was reloaded counts from 0
        return add_up(shares[uuid] * max(0.0, joules - before.get(uuid, joules)) for uuid, joules in now.items())


def _find_share(reading: TargetReading, uuid: str) -> float:
    part = reading.gpu_parts.get(uuid)
    known = reading.target.gpu_share or (1.0 if part is None else part.share)
    return known or reading.gpu_share or 1.0
