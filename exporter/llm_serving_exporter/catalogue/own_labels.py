"""Which labels a target may have of its own: none that another label on the same series would be taken for."""

from __future__ import annotations

import re

from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, LABELS

# of one target; each is on its info series for as long as it is there
MOST_LABELS = 32

_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
# labels of our series that are keys of a target
KEYS = frozenset({*IDENTITY_LABELS, "model_name", "role", "runtime", "group"})
# a scrape sets the first two itself, Prometheus and its histograms use the others
_FOREIGN = frozenset({"job", "instance", "le", "quantile"})


def refuse_label_name(name: str) -> tuple[str, str] | None:
    """Why a target cannot have a label of its own by that name, and what to do; None where it can."""
    if name in KEYS:
        return "this is a key of a target, and no label of its own", f"Write {name} beside labels."
    if name in LABELS:
        return "series of the exporter have a label of that name", "Choose another name."
    if name in _FOREIGN:
        return "Prometheus gives this label a meaning of its own", "Choose another name."
    if name.startswith("__"):
        return "labels that begin with __ are Prometheus' own", "Choose another name."
    if name.startswith("exported_"):
        return "Prometheus itself renames labels to exported_…", "Choose another name."
    if not _LABEL_NAME.fullmatch(name):
        return "this is not the name of a label", "Write at most 100 letters, digits and _, no digit first."
    return None
