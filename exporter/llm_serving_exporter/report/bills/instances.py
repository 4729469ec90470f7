"""Instances with GPUs, by the names that clouds give their types."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import translate

from llm_serving_exporter.report.bills.cells import Remembered

# Families whose instances have GPUs, as the clouds publish them. Accelerators that are no GPUs (Inferentia, Trainium, TPU) are listed
# in settings where they serve.
GPU_FAMILIES = (
    # https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html: P and G
    "p[2-9].*", "p[2-9][a-z]*.*", "p[6-9]-*.*", "g[3-9].*", "g[3-9][a-z]*.*", "gr[6-9]*.*",
    # https://cloud.google.com/compute/docs/gpus: A2, A3, A4, A4X, G2, G4
    "a2-*", "a3-*", "a4-*", "a4x-*", "g2-*", "g4-*",
    # https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated: NC, ND, NG, NV
    "standard_n[cdgv]*", "n[cdgv][0-9]*",
)  # fmt: skip
# what the usage type of EC2 says of hours of an instance, as in USE1-BoxUsage:p5.48xlarge
_INSTANCE_USAGE = re.compile(
    r"(?:^|-)(?:BoxUsage|SpotUsage|DedicatedUsage|HostBoxUsage|HeavyUsage|UnusedBox|UnusedDed|DedicatedRes|Reservation)"
    r"(?::([a-z0-9][a-z0-9.-]*))?$"
)


class InstanceTypes:
    """Which types of instances are in scope. Patterns as in p5.* go by upper and lower case alike."""

    def __init__(self, patterns: Collection[str]) -> None:
        found = re.compile("|".join(translate(pattern.lower()) for pattern in patterns) or r"(?!)")
        self.cover = Remembered(lambda text: found.match(text.strip().lower()) is not None)

    def cover_family(self, family: str) -> bool:
        """Whether any type of a family would be covered, as p5 by p5.48xlarge."""
        return self.cover(f"{family}.48xlarge") or self.cover(family)


def _parse_usage_type(text: str) -> str | None:
    match = _INSTANCE_USAGE.search(text.strip())
    # m1.small is what a usage type without a size means
    return None if match is None else (match[1] or "m1.small")


# the instance type of a usage type of EC2; None where it is not about hours of an instance
read_usage_type = Remembered(_parse_usage_type)
