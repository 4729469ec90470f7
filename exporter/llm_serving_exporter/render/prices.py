"""The price in force for a target, in words: one wording for the landing page and for `once`."""

from __future__ import annotations

from llm_serving_exporter.model.cost import CostPhase, TargetCost
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import usd_to_the_cent

BEFORE_COMMITMENTS = ", before commitments"


def describe_price(reading: TargetReading, found: TargetCost) -> str | None:
    """`2 GPUs x share 0.5 at $2.49 an hour (rate reserved)`; None where no price is in force, or the GPUs are not known."""
    price, gpus = found.price, reading.gpus.total
    if price is None or gpus is None:
        return None
    by = " by the memory that its processes hold" if reading.gpus.shares_by_memory else ""
    share = "" if reading.gpu_share in (None, 1.0) else f" x share {reading.gpu_share:.3g}{by}"
    before = BEFORE_COMMITMENTS if price.before_commitments else ""
    count = f"{count_nouns(gpus.count, 'GPU')}{share}"
    return f"{count} at {usd_to_the_cent(price.usd_per_gpu_hour)} an hour (rate {price.rate.name}{before})"


def describe_split(found: TargetCost) -> str:
    """How busy time is divided between prefill and decode, or that it is not, as where the model's facts are not known."""
    usd = {phase.value: 0.0 for phase in CostPhase}
    for one in found.engines:
        for (phase, _rate, _method), amount in one.totals.usd.items():
            usd[phase] = usd.get(phase, 0.0) + amount
    split = usd[CostPhase.PREFILL.value] + usd[CostPhase.DECODE.value]
    if not split and usd[CostPhase.UNATTRIBUTED.value]:
        return f"busy time is not split: what the method {found.method.value} needs is not known"
    return f"busy time split by {found.method.value}"
