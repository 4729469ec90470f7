"""The price in force for a target, in words: one wording for the landing page and for `once`."""

from __future__ import annotations

from llm_serving_exporter.model.cost import TargetCost
from llm_serving_exporter.model.reading import TargetReading
from llm_serving_exporter.render.numbers import usd_to_the_cent

BEFORE_COMMITMENTS = ", before commitments"


def describe_price(reading: TargetReading, found: TargetCost) -> str | None:
    """`2 GPUs x share 0.5 at $2.49 an hour (rate reserved)`; None where no price is in force, or the GPUs are not known."""
    price, gpus = found.price, reading.target_gpus
    if price is None or gpus is None:
        return None
    share = "" if reading.gpu_share in (None, 1.0) else f" x share {reading.gpu_share:.3g}"
    before = BEFORE_COMMITMENTS if price.before_commitments else ""
    count = f"{gpus.count} GPU{'' if gpus.count == 1 else 's'}{share}"
    return f"{count} at {usd_to_the_cent(price.usd_per_gpu_hour)} an hour (rate {price.rate.name}{before})"
