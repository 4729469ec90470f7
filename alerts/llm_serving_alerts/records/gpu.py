"""GPUs that hold back, minute by minute."""

from __future__ import annotations

from llm_serving_alerts.promql import Dialect, one_of, series
from llm_serving_alerts.rules import Group, Record
from llm_serving_alerts.settings import Settings

# not sw_power_cap: a busy card at its power limit is what was paid for
SLOWDOWNS = ("hw_slowdown", "hw_thermal_slowdown", "sw_thermal_slowdown", "hw_power_brake_slowdown")
SLOWED = "gpu:llm_serving_slowed_while_busy:bool"


def gpu(dialect: Dialect, settings: Settings) -> Group:
    """What an alert counts the minutes of."""
    held = dialect.by_gpu(series("gpu_slowdown", one_of("reason", SLOWDOWNS)))
    busy = dialect.bare(series("gpu_busy_ratio"), "gpu")
    # 0, not nothing, at other moments: a ruler that marks no ends would go on saying 1
    slowed = f"{held} * on ({dialect.key('gpu')}) group_left () ({busy} > bool 0)"
    return Group(
        "llm-serving.gpu",
        (Record(SLOWED, slowed, "1 for a busy GPU whose clocks are held down by heat, hardware or the power brake"),),
    )
