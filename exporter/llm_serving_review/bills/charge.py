"""What a line of a bill says, whatever its format: charges and faults, cells, types of instances, and names of machines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache
from math import isfinite, nan
from typing import NamedTuple

from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.settings.problems import shown

# --- One line of a bill, whatever its format, and what can be wrong with one.


class Kind(Enum):
    """What a line is about. Only usage and unused commitments are compared with what was metered; the others are counted."""

    USAGE = "usage"
    UNUSED = "unused commitments"
    PURCHASE = "purchases and recurring fees"
    FEE = "fees"
    NEGATION = "negations of covered usage"
    DISCOUNT = "discounts"
    CREDIT = "credits"
    REFUND = "refunds"
    TAX = "taxes"
    ADJUSTMENT = "adjustments"
    CORRECTION = "corrections of earlier bills"
    SPLIT = "split cost allocation"


class Charge(NamedTuple):
    """A line of a bill. "" stands for what the line does not say."""

    kind: Kind  # what the line is about
    begin: float  # Unix seconds, within the period
    end: float  # Unix seconds, after the period
    effective_usd: float  # amortised: what a commitment covers has its part of the commitment's price
    billed_usd: float  # as invoiced
    resource: str  # as the bill names it
    instance_type: str  # of a line about an instance; "" for any other
    account: str  # that used it
    commitment: str  # that covered it, or whose unused part or fee it is
    instance_hours: float | None  # None where the line does not count in hours of an instance
    gpus: float | None  # of one instance; None where the line does not say
    is_compute: bool  # False for network, storage and the like
    identity: str  # tells a line from all others of the bill; "" for a format without
    cloud: str = ""  # whose bill it is, as `find_cloud_of_provider` names it


class Fault(Struct, frozen=True):
    """What is wrong with a file or a line of it."""

    file: str
    line: int  # counted from 1, the header being the first; 0 for the file as a whole
    column: str  # the column's name as the file has it; "" for the line as a whole
    what: str  # the fault, without a full stop
    fix: str  # what to do, a sentence

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{where}{f', column {self.column}' if self.column else ''}: {self.what}. {self.fix}"


class BillError(LLMServingExporterError):
    """Bills that cannot be compared at all. The message names file, line and what to do."""

    def __init__(self, file: str, what: str, fix: str, line: int = 0, column: str = "") -> None:
        self.fault = Fault(file, line, column, what, fix)
        super().__init__(str(self.fault))


class LineError(LLMServingExporterError):
    """One line that cannot be used: it is left out and named. Or what of a file stops that it is read."""

    def __init__(self, column: str, what: str, fix: str) -> None:
        super().__init__(what)
        self.column = column
        self.what = what
        self.fix = fix


class CurrencyError(LineError):
    """A line in another currency than USD: its bill is refused as a whole, because no sum of it would be right."""


# --- Cells of a bill -> values. Texts repeat from line to line, so that what was read once is kept, within bounds.


Row = Sequence[str]
MOST_KEPT = 8192
_LARGEST = 1e12
# what programs write for nothing
_NOTHING = frozenset({"", "null", "none", "\\n"})
_HOUR_UNITS = frozenset({"h", "hr", "hrs", "hour", "hours", "1 hour", "1 hours", "instance-hours", "instance hours"})
_TIME_UNIT = re.compile(r"(?<![a-z])(?:h|hrs?|hours?|s|secs?|seconds?)(?![a-z])")
# the largest JSON in a cell that is read
_LONGEST_JSON = 65_536


@lru_cache(MOST_KEPT)
def read_time(text: str) -> float:
    """A time of a bill in Unix seconds: ISO 8601, as FOCUS and CUR have it, or as databases export it; without an offset it is UTC.

    Raises ValueError.
    """
    cleaned = text.strip()
    for word in (" UTC", " utc", " Z"):
        cleaned = cleaned.removesuffix(word)
    found = datetime.fromisoformat(cleaned)
    try:
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    except (OverflowError, OSError) as error:
        raise ValueError(str(error)) from None


def read_usd(row: Row, position: int, column: str) -> float:
    """An amount. Raises LineError; an empty cell is one."""
    text = row[position].strip()
    try:
        found = float(text)
    except ValueError:
        found = nan
    # Python alone takes digits with underscores
    if isfinite(found) and abs(found) <= _LARGEST and "_" not in text:
        return found
    if text.lower() in _NOTHING:
        raise LineError(column, "the amount is empty", "Export the bill again, with this column filled.")
    raise LineError(column, f"{shown(text)} is not an amount", "Write a plain number with a point, as in -12.5.")


def read_quantity(text: str) -> float | None:
    """A quantity; None where there is none that can be used. It refines the comparison, and is never part of an amount."""
    try:
        found = float(text)
    except ValueError:
        return None
    return found if isfinite(found) and 0 <= found <= _LARGEST and "_" not in text else None


def read_period(row: Row, begin: int, end: int, columns: tuple[str, str]) -> tuple[float, float]:
    """Begin and end of a charge. Raises LineError."""
    found = []
    for position, column in zip((begin, end), columns, strict=True):
        try:
            found.append(read_time(row[position]))
        except ValueError:
            what = f"{shown(row[position])} is not a time"
            raise LineError(column, what, "Write it as in 2026-11-16T00:00:00Z.") from None
    if not found[0] < found[1]:
        raise LineError(columns[1], "the period ends before it begins", "Export the bill again.")
    return found[0], found[1]


def counts_hours(unit: str) -> bool:
    """Whether a unit is an hour of an instance."""
    return unit.strip().lower() in _HOUR_UNITS


def counts_time(unit: str) -> bool:
    """Whether a unit is a time of anything, as in "gibibyte hour"."""
    return _TIME_UNIT.search(unit.lower()) is not None


@lru_cache(MOST_KEPT)
def read_map(text: str) -> Mapping[str, str]:
    """A map of texts, as JSON has it; {} for what is none."""
    if not text or len(text) > _LONGEST_JSON:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if isinstance(found, list):
        # as some databases write maps
        pairs = (one for one in found if isinstance(one, dict) and "key" in one)
        return {str(one["key"]): str(one.get("value", "")) for one in pairs}
    if not isinstance(found, dict):
        return {}
    return {str(key): str(value) for key, value in found.items() if isinstance(value, str | int | float)}


# --- Instances with GPUs, by the names that clouds give their types.


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


@lru_cache(MOST_KEPT)
def count_gpus_of_type(instance_type: str) -> float | None:
    """GPUs of an instance of a type; None where the type is not known."""
    lowered = instance_type.strip().lower()
    for pattern, count in _GPU_COUNTS:
        if (match := pattern.fullmatch(lowered)) is not None:
            return float(match[1]) if count is None else float(count)
    return None


@lru_cache(MOST_KEPT)
def read_usage_type(text: str) -> str | None:
    """The instance type of a usage type of EC2; None where it is not about hours of an instance."""
    match = _INSTANCE_USAGE.search(text.strip())
    # m1.small is what a usage type without a size means
    return None if match is None else (match[1] or "m1.small")


# --- Names of machines, so that a cloud's bill and a node's provider id say the same.
#
# Nodes name themselves by `spec.providerID`: aws:///us-east-1a/i-0abc, gce://project/zone/name, azure:///subscriptions/…. Bills name an
# instance by its id, an ARN, an OCID, a full resource name or a URL of the cloud's API.


# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html
_AWS = re.compile(r"(?:^|/)(i-[0-9a-f]{8,17})$")
# https://cloud.google.com/asset-inventory/docs/asset-names, and the provider id of the cloud controller
_GCP = re.compile(r"(?:^|/)projects/[^/]+/zones/([^/]+)/instances/([^/]+)$")
_GCP_PROVIDER = re.compile(r"^gce://[^/]+/([^/]+)/([^/]+)$")
# ids of Azure's Resource Manager go by upper and lower case alike; a scale set is billed as one, its machines are numbered below it
_AZURE = re.compile(r"(/subscriptions/.+?)(?:(?<=/)virtualmachines/[0-9]+)?/?$")
# https://docs.oracle.com/iaas/Content/General/Concepts/identifiers.htm; nodes have it alone or behind oci://
_OCI = re.compile(r"^(?:oci://)?(ocid1\.instance\..+)$")


@lru_cache(MOST_KEPT)
def normalise_resource(text: str) -> str:
    """A name of a machine as both sides have it; "" for ""."""
    lowered = text.strip().rstrip("/").lower()
    if (match := _AWS.search(lowered)) is not None:
        return match[1]
    if (match := _GCP_PROVIDER.match(lowered) or _GCP.search(lowered)) is not None:
        # without the project, of which bills may give the number and nodes the name
        return f"gce/{match[1]}/{match[2]}"
    if (match := _AZURE.search(lowered)) is not None:
        return match[1].rstrip("/")
    if (match := _OCI.match(lowered)) is not None:
        return match[1]
    return lowered


# clouds, as readers know them, and by what begins: ids of machines after `normalise_resource`, and providers of FOCUS in lower case
_CLOUDS = (
    ("aws", "AWS", "i-", ("aws", "amazon")),
    ("gcp", "Google Cloud", "gce/", ("google", "gcp")),
    ("azure", "Azure", "/subscriptions/", ("microsoft", "azure")),
    ("oci", "Oracle Cloud", "ocid1.instance.", ("oracle", "oci")),
)
# a provider that is none of these
_OTHER = "other"
# "" where a bill does not say
CLOUD_NAMES = {cloud: name for cloud, name, _, _ in _CLOUDS} | {_OTHER: "other clouds", "": "a cloud without a name"}


def find_cloud(machine: str) -> str:
    """The cloud of a machine by its normalised name; "" where that does not say."""
    return next((cloud for cloud, _, begin, _ in _CLOUDS if machine.startswith(begin)), "")


def is_one_machine(machine: str) -> bool:
    """Whether a normalised name is of a single machine, of which an hour has one hour; a scale set of Azure's is billed as one."""
    return machine.startswith(("i-", "gce/", "ocid1.instance.")) or "/virtualmachines/" in machine


@lru_cache(MOST_KEPT)
def find_cloud_of_provider(name: str) -> str:
    """The cloud of a provider as bills name it, one name for all that are not listed; "" where the bill does not say."""
    lowered = name.strip().lower()
    return next((cloud for cloud, _, _, begins in _CLOUDS if lowered.startswith(begins)), _OTHER if lowered else "")


def name_gcp_instance(resource: str, name: str) -> str:
    """A machine of GCP by its name, where a bill has a number instead and the name beside it."""
    match = _GCP.search(resource.lower())
    return f"{resource[: match.start(2)]}{name}" if match is not None and match[2].isdigit() and name else resource
