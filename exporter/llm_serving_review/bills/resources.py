"""Names of machines, so that a cloud's bill and a node's provider id say the same.

Nodes name themselves by `spec.providerID`: aws:///us-east-1a/i-0abc, gce://project/zone/name, azure:///subscriptions/…. Bills name an
instance by its id, an ARN, an OCID, a full resource name or a URL of the cloud's API.
"""

from __future__ import annotations

import re

from llm_serving_review.bills.cells import Remembered

# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/resource-ids.html
_AWS = re.compile(r"(?:^|/)(i-[0-9a-f]{8,17})$")
# https://cloud.google.com/asset-inventory/docs/asset-names, and the provider id of the cloud controller
_GCP = re.compile(r"(?:^|/)projects/[^/]+/zones/([^/]+)/instances/([^/]+)$")
_GCP_PROVIDER = re.compile(r"^gce://[^/]+/([^/]+)/([^/]+)$")
# ids of Azure's Resource Manager go by upper and lower case alike; a scale set is billed as one, its machines are numbered below it
_AZURE = re.compile(r"(/subscriptions/.+?)(?:(?<=/)virtualmachines/[0-9]+)?/?$")
# https://docs.oracle.com/iaas/Content/General/Concepts/identifiers.htm; nodes have it alone or behind oci://
_OCI = re.compile(r"^(?:oci://)?(ocid1\.instance\..+)$")


def _normalise(text: str) -> str:
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


# clouds by what their names begin with: ids of machines after `normalise_resource`, and providers of FOCUS in lower case
_CLOUDS = (
    ("aws", "i-", ("aws", "amazon")),
    ("gcp", "gce/", ("google", "gcp")),
    ("azure", "/subscriptions/", ("microsoft", "azure")),
    ("oci", "ocid1.instance.", ("oracle", "oci")),
)
# clouds as readers know them; "" where a bill does not say
CLOUD_NAMES = {
    "aws": "AWS",
    "gcp": "Google Cloud",
    "azure": "Azure",
    "oci": "Oracle Cloud",
    "other": "other clouds",
    "": "a cloud without a name",
}
# a provider that is none of these
_OTHER = "other"


def find_cloud(machine: str) -> str:
    """The cloud of a machine by its normalised name; "" where that does not say."""
    return next((cloud for cloud, begin, _ in _CLOUDS if machine.startswith(begin)), "")


def is_one_machine(machine: str) -> bool:
    """Whether a normalised name is of a single machine, of which an hour has one hour; a scale set of Azure's is billed as one."""
    return machine.startswith(("i-", "gce/", "ocid1.instance.")) or "/virtualmachines/" in machine


def _parse_provider(name: str) -> str:
    lowered = name.strip().lower()
    return next((cloud for cloud, _, begins in _CLOUDS if lowered.startswith(begins)), _OTHER if lowered else "")


# the cloud of a provider as bills name it, one name for all that are not listed; "" where the bill does not say
find_cloud_of_provider = Remembered(_parse_provider)


def name_gcp_instance(resource: str, name: str) -> str:
    """A machine of GCP by its name, where a bill has a number instead and the name beside it."""
    match = _GCP.search(resource.lower())
    return f"{resource[: match.start(2)]}{name}" if match is not None and match[2].isdigit() and name else resource


# a name of a machine as both sides have it; "" for ""
normalise_resource = Remembered(_normalise)
