"""What becomes of a name that changes: for one minor version its series stand under both, then under the new one alone.

A declaration says it by `formerly`. docs/releases.md has the policy; tests fail once the version has moved past what `since` names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from llm_serving_exporter.model.record import Struct

_MINOR = re.compile(r"(\d+)\.(\d+)")


class Formerly(Struct, frozen=True):
    """The name before a rename. Raises ValueError where `since` is no minor version."""

    name: str  # as the declaration had it: of a metric without the prefix, of a record whole
    since: str  # minor version that brought the new name, such as "0.2": the last that has the old one too

    def __post_init__(self) -> None:
        if not _MINOR.fullmatch(self.since):
            raise ValueError(f"{self.since!r} is no minor version such as 0.2, since when {self.name} has its new name")

    def is_over(self, version: str) -> bool:
        """Whether a version of the exporter (0.3.0, 0.3.0rc1) is past the one that has both names."""
        found = _MINOR.match(version)
        assert found
        ours = _MINOR.match(self.since)
        assert ours
        return (int(found[1]), int(found[2])) > (int(ours[1]), int(ours[2]))

    def describe(self, new_name: str) -> str:
        """What the help of the old name begins with: where to go, and until when there is time."""
        return f"Renamed to {new_name}: this name ends after {self.since}."


def list_overdue(found: Iterable[Formerly | None], version: str) -> list[str]:
    """Old names that should have gone from the declarations by this version of the exporter."""
    return [one.name for one in found if one is not None and one.is_over(version)]
