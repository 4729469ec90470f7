"""The header of a bill: which format it is, and where its columns stand."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from llm_serving_exporter.settings.problems import listed
from llm_serving_review.bills.charge import BillError, Fault

# what stands at every position of a column that the file does not have
ABSENT = -1
_CAPITAL = re.compile(r"([A-Z])")
_UNPRINTABLE = re.compile(r"[^ -~]")
FORMATS = ("focus", "cur")


class Columns:
    """Positions of columns by their names in one spelling: those of CUR 2.0, or of FOCUS in lower case without underscores."""

    def __init__(self, file: str, header: Sequence[str], stated: str | None = None) -> None:
        """`stated`: the format, None to find it. Raises BillError for a header of neither."""
        self.file = file
        self.width = len(header)
        self._written = tuple(header)
        by_cur, by_focus = _first_of(header, spell_cur), _first_of(header, _spell_focus)
        found = "cur" if "line_item_line_item_type" in by_cur else "focus" if "chargeperiodstart" in by_focus else None
        self.format = stated or found or ""
        if not self.format:
            begin = listed((_UNPRINTABLE.sub("?", name)[:40] for name in header[:4]), "and") or "nothing"
            raise BillError(
                Fault(
                    file, 1, "", f"the header is neither that of FOCUS nor that of AWS CUR 2.0: it begins with {begin}",
                    "Export as FOCUS 1.x or as CUR 2.0, with the line of headers and commas between cells.",
                )
            )  # fmt: skip
        self._by_name = by_cur if self.format == "cur" else by_focus

    def find(self, *names: str) -> int:
        """The position of the first of these columns that the file has; ABSENT for none."""
        for name in names:
            if (position := self._by_name.get(name)) is not None:
                return position
        return ABSENT

    def need(self, names: Mapping[str, str]) -> None:
        """Raises BillError where the file lacks columns. `names`: as they are published, by our spelling."""
        lacking = [published for name, published in names.items() if name not in self._by_name]
        if lacking:
            many = len(lacking) > 1
            raise BillError(
                Fault(
                    self.file, 1, "", f"the column{'s' if many else ''} {listed(lacking, 'and')} {'are' if many else 'is'} missing",
                    "Add what is missing to the export.",
                )
            )  # fmt: skip

    def name(self, position: int, instead: str) -> str:
        """A column's name as the file has it."""
        return self._written[position] if position != ABSENT else instead

    def list_beginning_with(self, prefix: str) -> Iterator[tuple[str, int]]:
        """The rest of the names that begin so, with their positions."""
        for name, position in self._by_name.items():
            if name.startswith(prefix):
                yield name.removeprefix(prefix), position


def spell_cur(name: str) -> str:
    """As CUR 2.0 spells it: "lineItem/UnblendedCost" of older reports is line_item_unblended_cost."""
    head, slash, rest = name.strip().partition("/")
    if not slash:
        return name.strip().lower()
    if head == "resourceTags":
        return f"resource_tags_{rest.replace(':', '_').lower()}"
    return f"{_to_snake(head)}_{_to_snake(rest)}"


def _to_snake(name: str) -> str:
    return _CAPITAL.sub(r"_\1", name).lower().lstrip("_")


def _spell_focus(name: str) -> str:
    return name.strip().lower().replace("_", "")


def _first_of(header: Sequence[str], spell: Callable[[str], str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for position, name in enumerate(header):
        found.setdefault(spell(name), position)
    return found
