"""Every runtime that has a table."""

from __future__ import annotations

from collections.abc import Iterable

from llm_serving_exporter.engines.compiled import read_compiled
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.model.target import Target


def together(configured: Iterable[Runtime]) -> dict[str, Runtime]:
    """The built-in tables and a configuration's, by name."""
    return {**RUNTIMES, **{runtime.name: runtime for runtime in configured}}


# in the order of the support matrix
RUNTIMES: dict[str, Runtime] = read_compiled()


def reads_otherwise(
    target: Target, current: Runtime | None, before: Iterable[Runtime], after: Iterable[Runtime]
) -> bool:
    """Whether a target's page may be read by another table than before, its runtime being set or recognised as `current`."""
    if target.runtime is not None:
        return together(before).get(target.runtime) != together(after).get(target.runtime)
    earlier = list(before)
    changed = [table for table in after if table.fingerprints and table not in earlier]
    if current is None:
        return bool(changed)
    if together(after).get(current.name) != current:
        return True
    # a fork that kept its engine's names may have been meant for this page
    others = (table for table in changed if table.name != current.name)
    return any(prefix in current.prefixes for table in others for prefix in table.prefixes)
