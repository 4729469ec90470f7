"""Instances with GPUs, by the names that clouds give their types."""

from __future__ import annotations

import re
from collections.abc import Collection
from fnmatch import translate

from llm_serving_review.bills.cells import Remembered

# Families whose instances have GPUs, as the clouds publish them. Accelerators that are no GPUs (Inferentia, Trainium, TPU) are listed
# in settings where they serve.
GPU_FAMILIES = (
    # https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html: P and G
    "p[2-9].*", "p[2-9][a-z]*.*", "p[6-9]-*.*", "g[3-9].*", "g[3-9][a-z]*.*", "gr[6-9]*.*",
    # https://cloud.google.com/compute/docs/gpus: A2, A3, A4, A4X, G2, G4
    "a2-*", "a3-*", "a4-*", "a4x-*", "g2-*", "g4-*",
    # https://learn.microsoft.com/azure/virtual-machines/sizes/overview#gpu-accelerated: NC, ND, NG, NV
    "standard_n[cdgv]*", "n[cdgv][0-9]*",
    # https://docs.oracle.com/iaas/Content/Compute/References/computeshapes.htm: shapes of bare metal and virtual machines with GPUs
    "bm.gpu*", "vm.gpu*",
)  # fmt: skip
# GPUs of an instance, by its type, as the pages above have it; parts of a GPU are left out. Names that say it themselves have None
_GPU_COUNTS: tuple[tuple[re.Pattern[str], float | None], ...] = tuple(
    (re.compile(pattern), count)
    for pattern, count in (
        # AWS
        (r"p2\.16xlarge", 16), (r"p2\.8xlarge|p3\.16xlarge|p3dn\.24xlarge|p4d[a-z]*\.24xlarge|p[5-6][a-z0-9-]*\.48xlarge", 8),
        (r"p6e-gb[0-9]+\.36xlarge|p3\.8xlarge", 4), (r"p2\.xlarge|p3\.2xlarge|p5\.4xlarge", 1),
        (r"g3s\.xlarge|g3\.4xlarge", 1), (r"g3\.8xlarge", 2), (r"g3\.16xlarge", 4),
        (r"g4ad\.[24]?xlarge|g5g\.[248]?xlarge", 1), (r"g4ad\.8xlarge|g5g\.(?:16xlarge|metal)", 2), (r"g4ad\.16xlarge", 4),
        (r"g7e\.12xlarge", 2), (r"(?:g4dn|g[5-7]e?|gr6)\.(?:2|4|8|16)?xlarge", 1), (r"(?:g4dn|g[5-7]e?)\.(?:12|24)xlarge", 4),
        (r"g4dn\.metal|g[5-7]e?\.48xlarge", 8),
        # Google Cloud: a3-highgpu-8g
        (r"a[2-4]x?-[a-z]+-([0-9]+)g", None), (r"g2-standard-(?:4|8|12|16|32)|g4-standard-48", 1), (r"g2-standard-24|g4-standard-96", 2),
        (r"g2-standard-48|g4-standard-192", 4), (r"g2-standard-96|g4-standard-384", 8),
        # Azure, of which bills leave Standard_ out at times
        (r"(?:standard_)?nd(?:96|40)[a-z].*", 8), (r"(?:standard_)?nd128.*gb[0-9]+_v6", 4),
        (r"(?:standard_)?nc(?:24ads_a100_v4|40ads_h100_v5|(?:4|8|16)as_t4_v3|6s_v3)", 1),
        (r"(?:standard_)?nc(?:48ads_a100_v4|80adis_h100_v5|12s_v3)", 2), (r"(?:standard_)?nc(?:96ads_a100_v4|64as_t4_v3|24r?s_v3)", 4),
        (r"(?:standard_)?nv(?:36adm?s_a10_v5|12s_v3)", 1), (r"(?:standard_)?nv(?:72ads_a10_v5|24s_v3)", 2), (r"(?:standard_)?nv48s_v3", 4),
        # Oracle: BM.GPU.H100.8
        (r"[bv]m\.gpu.*\.([0-9]+)", None),
    )
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


def _count_gpus(instance_type: str) -> float | None:
    lowered = instance_type.strip().lower()
    for pattern, count in _GPU_COUNTS:
        if (match := pattern.fullmatch(lowered)) is not None:
            return float(match[1]) if count is None else float(count)
    return None


# GPUs of an instance of a type; None where the type is not known
count_gpus_of_type = Remembered(_count_gpus)


def _parse_usage_type(text: str) -> str | None:
    match = _INSTANCE_USAGE.search(text.strip())
    # m1.small is what a usage type without a size means
    return None if match is None else (match[1] or "m1.small")


# the instance type of a usage type of EC2; None where it is not about hours of an instance
read_usage_type = Remembered(_parse_usage_type)
