"""What to do where a gateway's page counts nothing by tenant."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.model.snapshot import Absence
from llm_serving_exporter.model.tenants import TENANT_FIELDS

_SENTENCES = {
    Absence.NOT_EXPORTED: (
        "Its page does not count it, or knows no tenants of the kind that tenants.by asks for; docs/tenants.md says whose page knows which."
    ),
    Absence.NOT_CONFIGURED: (
        "Its page has no label that names the tenant: have the gateway write one, or correct tenants.label (docs/tenants.md)."
    ),
}
# by signal, which is the metric's name
TENANT_SENTENCES: Mapping[str, Mapping[Absence, str]] = dict.fromkeys(TENANT_FIELDS, _SENTENCES)
