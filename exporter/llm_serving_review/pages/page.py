"""The review -> one page that needs nothing else: no network, no file beside it, and no script to be read.

This module and its neighbours work out what is shown, as plain values; the templates have the markup. Every value enters a template
as text: `_present` bounds it and Jinja2 escapes it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from llm_serving_exporter import __version__
from llm_serving_exporter.render.html import make_presentable
from llm_serving_review.figures.review import Review
from llm_serving_review.pages import bills, first_page, operations, spend

LONGEST_TEXT = 400
# after page one, in their order: the template templates/sections/NAME.html, which is the link's anchor, too, and what works out the values
# that it sees as `shown`; None leaves the section out
SECTIONS: tuple[tuple[str, Callable[[Review], Any]], ...] = (
    ("notes", first_page.build_notes),
    ("findings", first_page.list_findings),
    ("sizing", first_page.build_sizing),
    ("spend_by_phase", spend.build_spend_by_phase),
    ("change", spend.build_change),
    ("unusual_days", operations.build_unusual_days),
    ("models", spend.build_model_tables),
    ("tenants", spend.build_tenants),
    ("movements", spend.build_movements),
    ("trend", operations.build_trend_section),
    ("month_to_date", operations.build_month_section),
    ("month", spend.build_month),
    ("hours", operations.build_hour_maps),
    ("labels", spend.build_label_tables),
    ("invoice", spend.build_invoice),
    ("pools", bills.build_pools),
    ("bills", bills.build_bills),
    ("nodes", spend.build_node_table),
    ("service", operations.build_service),
    ("gaps", operations.build_gaps),
)


def render_page(review: Review) -> str:
    """HTML. Its policy lets it load nothing and run nothing but its own script."""
    environment = make_environment()
    folder = resources.files("llm_serving_review.pages") / "templates"
    style, script = ((folder / name).read_text(encoding="utf-8") for name in ("style.css", "script.js"))
    return environment.get_template("page.html").render(
        style_hash=_hash(style),
        script_hash=_hash(script),
        # files of this package
        style=Markup(style),  # noqa: S704
        script=Markup(script),  # noqa: S704
        version=__version__,
        heading=first_page.build_heading(review),
        first=first_page.build_first_page(review),
        # those that have something to show
        sections=[(name, shown) for name, build in SECTIONS if (shown := build(review)) is not None],
    )


@cache
def make_environment() -> Environment:
    """The templates of this package: text is bounded and escaped, a name that is not given is an error."""
    environment = Environment(
        loader=PackageLoader("llm_serving_review.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_present,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["coordinate"] = _write_coordinate
    return environment


def _present(value: Any) -> Any:
    """What a template writes: text bounded, with a number and its percent sign on one line; Markup and numbers as they are."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return make_presentable(value, LONGEST_TEXT).replace(" %", "\N{NO-BREAK SPACE}%")


def _write_coordinate(value: float) -> str:
    """At most two digits after the point, as SVG has them."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _hash(content: str) -> str:
    return base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
