"""What a page counts by tenant: the samples of a field's own row, by the label that names the tenant."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.engines.index import Index
from llm_serving_exporter.engines.mapping import Reads, Row, Runtime
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Layout, SeriesKey
from llm_serving_exporter.model.snapshot import Absence, Snapshot
from llm_serving_exporter.model.tenants import TENANT_FIELDS, TenantKind

# (model as the page names it, tenant as the page names it, "" where it names none)
RawTenant = tuple[str, str]
# what tells a count from all others of a page: (name of the exporter's series, the page's)
Key = tuple[str, SeriesKey]


class TenantSample(Struct, frozen=True):
    """A sample of a page that is a part of what is counted of a tenant."""

    key: Key  # which count it is
    raw: RawTenant  # whose
    place: int  # among the layout's samples


class TenantPlan(Struct, frozen=True):
    """How a page of one layout is read by tenant."""

    layout: Layout  # that it was made for
    sources: tuple[TenantSample, ...]  # what is added up; each key once
    signals: Mapping[str, Absence]  # by name of the series: why there is none; AVAILABLE where there is


def find_labels(runtime: Runtime, kind: TenantKind, label: str | None) -> tuple[str, ...]:
    """The labels that name a tenant of this kind on a runtime's page; () where it knows none. `label`: the configured one, of `header`."""
    if kind is TenantKind.HEADER:
        return (label,) if label else ()
    return runtime.tenants.get(kind, ())


def plan_tenants(runtime: Runtime, layout: Layout, snapshot: Snapshot, labels: tuple[str, ...]) -> TenantPlan:
    """Works out how a page is read by tenant. `snapshot`: of that page: it says by which row a field is read. A page on which
    no series has any of the labels knows no tenants, and says so: `not_exported` where its runtime has none, else `not_configured`."""
    unknown = Absence.NOT_CONFIGURED if labels else Absence.NOT_EXPORTED
    index = Index(runtime, layout)
    sources: dict[Key, TenantSample] = {}
    signals: dict[str, Absence] = {}
    for name, field in TENANT_FIELDS.items():
        row = runtime.rows[snapshot.sources[field]] if field in snapshot.sources else None
        places = _find_places(row, index) if row is not None else ()
        labelled = any(index.keys[place].label(label) is not None for place in places for label in labels)
        why = unknown if row is not None or not labels else snapshot.absent.get(field, unknown)
        signals[name] = Absence.AVAILABLE if labelled else why
        for place in places if labelled else ():
            key = index.keys[place]
            raw = index.identity(key).model_name, _name_tenant(key, labels, runtime.no_tenant)
            sources[name, key] = TenantSample((name, key), raw, place)
    return TenantPlan(layout, tuple(sources.values()), signals)


def _find_places(row: Row, index: Index) -> tuple[int, ...]:
    """The samples of a row that is a plain sum; () of any other."""
    if row.reads is not Reads.VALUE or row.minus or row.times or row.over or row.scale != 1.0:
        return ()
    places = []
    for text in row.samples:
        for place in index.select(text, row):
            reason = row.named[text] if text in row.named else index.keys[place].label(row.by or "") or ""
            # a reason that is renamed to nothing is not counted
            if not row.by or text in row.named or row.rename_value(reason) != "":
                places.append(place)
    return tuple(places)


def _name_tenant(key: SeriesKey, labels: tuple[str, ...], nobody: frozenset[str]) -> str:
    names = map(key.label, labels)
    return next((name for name in names if name is not None and name not in nobody), "")
