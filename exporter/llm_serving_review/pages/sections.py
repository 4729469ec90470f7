"""The sections of the page, in their order: one line each.

A section is a function of the review that works out what is shown, and a template of the same name in templates/sections/ that writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llm_serving_exporter.model.record import Struct
from llm_serving_review.figures.review import Review
from llm_serving_review.pages.bills import build_bills
from llm_serving_review.pages.headline import build_notes, list_findings
from llm_serving_review.pages.history import build_month_section, build_trend_section, build_unusual_days
from llm_serving_review.pages.model_tables import build_model_tables
from llm_serving_review.pages.operations import build_gaps, build_hour_maps, build_service
from llm_serving_review.pages.pools import build_pools
from llm_serving_review.pages.spend import (
    build_change,
    build_invoice,
    build_label_tables,
    build_month,
    build_movements,
    build_node_table,
    build_spend_by_phase,
)
from llm_serving_review.pages.tenants import build_tenants


class Section(Struct, frozen=True):
    """A part of the page."""

    name: str  # its template is templates/sections/NAME.html, which sees the values as `shown`; it is the link's anchor, too
    build: Callable[[Review], Any]  # the values; None leaves the section out


class ShownSection(Struct, frozen=True):
    """A section of one review."""

    name: str
    shown: Any  # what its template sees


# after page one, which has a template of its own
SECTIONS = (
    Section("notes", build_notes),
    Section("findings", list_findings),
    Section("spend_by_phase", build_spend_by_phase),
    Section("change", build_change),
    Section("unusual_days", build_unusual_days),
    Section("models", build_model_tables),
    Section("tenants", build_tenants),
    Section("movements", build_movements),
    Section("trend", build_trend_section),
    Section("month_to_date", build_month_section),
    Section("month", build_month),
    Section("hours", build_hour_maps),
    Section("labels", build_label_tables),
    Section("invoice", build_invoice),
    Section("pools", build_pools),
    Section("bills", build_bills),
    Section("nodes", build_node_table),
    Section("service", build_service),
    Section("gaps", build_gaps),
)


def build_sections(review: Review) -> Sequence[ShownSection]:
    """The sections that have something to show, in order."""
    built = (ShownSection(section.name, section.build(review)) for section in SECTIONS)
    return tuple(section for section in built if section.shown is not None)
