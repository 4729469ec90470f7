"""Two folders of outputs side by side: what differs, what has gone, what is new, as a developer wants to read it."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# lines of one file's diff, and characters of one of its lines
MOST_LINES, MOST_CHARACTERS = 30, 240
# files that are shown with their diff; more are named
MOST_SHOWN = 15
MOST_NAMED = 200


@dataclass(frozen=True)
class Difference:
    """An output that is not the same on both sides."""

    # of the output, such as "help/once.txt"
    name: str
    # "differs", "gone" or "new"
    kind: str
    # its unified diff, without the two lines of its head; () where only one side has it
    diff: tuple[str, ...] = ()

    @property
    def changed(self) -> frozenset[str]:
        """The lines that went and came: two files with the same ones have one cause."""
        return frozenset(line for line in self.diff if line[:1] in "+-")


def compare_folders(base: Path, new: Path) -> list[Difference]:
    """Every difference, by name. What an interrupted collector left, in a folder whose name begins with a dot, is no output."""
    return compare_files(base, new, list_outputs(base) | list_outputs(new))


def compare_files(base: Path, new: Path, names: Iterable[str]) -> list[Difference]:
    """The differences among these files, by kind and name."""
    found = []
    for name in names:
        old, now = (path.read_bytes() if path.is_file() else None for path in (base / name, new / name))
        if old is None or now is None:
            found.append(Difference(name, "new" if old is None else "gone"))
        elif old != now:
            found.append(Difference(name, "differs", tuple(_diff(old, now))))
    return sorted(found, key=lambda one: (one.kind, one.name))


def describe(differences: Iterable[Difference], *, most_lines: int = MOST_LINES) -> str:
    """The diff of each file, one for all files in which the same lines have changed, and a count at the end. "" without differences."""
    found = list(differences)
    if not found:
        return ""
    alike: dict[frozenset[str], list[Difference]] = {}
    for one in found:
        if one.kind == "differs":
            alike.setdefault(one.changed, []).append(one)
    lines: list[str] = []
    for number, (first, *others) in enumerate(alike.values()):
        lines.append(f"differs: {first.name}")
        if number < MOST_SHOWN:
            lines += [f"  {line}" for line in _shorten(first.diff, most_lines)]
        if others:
            lines.append(f"  the same lines in {len(others)} more:")
            lines += [f"    {name}" for name in _shorten([one.name for one in others], MOST_LINES)]
    for kind in ("gone", "new"):
        lines += [f"{kind}: {name}" for name in _shorten([one.name for one in found if one.kind == kind], MOST_NAMED)]
    counts = {kind: sum(one.kind == kind for one in found) for kind in ("differs", "gone", "new")}
    words = {"differs": "differ", "gone": "have gone", "new": "are new"}
    lines.append(f"outputs: {', '.join(f'{count} {words[kind]}' for kind, count in counts.items() if count)}")
    return "\n".join(lines)


def list_outputs(folder: Path) -> set[str]:
    """The names of the outputs in a folder."""
    names = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {name.as_posix() for name in names if not name.parts[0].startswith(".")}


def _diff(old: bytes, new: bytes) -> Iterator[str]:
    before, after = (text.decode(errors="backslashreplace").splitlines() for text in (old, new))
    if before == after:
        yield "- (line ends)"
        yield "+ (other line ends)"
        return
    # an output of many thousand lines that differs everywhere would take minutes to be compared
    if len(before) + len(after) > 60_000:
        yield from _diff_by_place(before, after)
        return
    diff = difflib.unified_diff(before, after, n=2, lineterm="")
    for line in diff:
        if not line.startswith(("---", "+++")):
            yield line


def _diff_by_place(before: list[str], after: list[str]) -> Iterator[str]:
    yield f"@@ {len(before)} lines, now {len(after)}: compared line by line @@"
    for old, new in zip(before, after, strict=False):
        if old != new:
            yield f"-{old}"
            yield f"+{new}"


def _shorten(lines: Iterable[str], most: int) -> Iterator[str]:
    """The first lines, cut to a readable length, and how many were left out. A removed line is cut where the one after it differs."""
    every = list(lines)
    for index, line in enumerate(every[:most]):
        partner = _find_partner(every, index)
        yield _cut(line, partner)
    if len(every) > most:
        yield f"… {len(every) - most} more lines"


def _find_partner(lines: list[str], index: int) -> str:
    """The line that took the place of a removed one, or the one whose place it took; "" where there is none."""
    line = lines[index]
    if line.startswith("-") and index + 1 < len(lines) and lines[index + 1].startswith("+"):
        return lines[index + 1]
    if line.startswith("+") and index and lines[index - 1].startswith("-"):
        return lines[index - 1]
    return ""


def _cut(line: str, partner: str) -> str:
    """A line of at most MOST_CHARACTERS that shows the first place at which it differs from its partner."""
    if len(line) <= MOST_CHARACTERS:
        return line
    same = next((at for at, (a, b) in enumerate(zip(line[1:], partner[1:], strict=False), 1) if a != b), 0)
    begin = max(1, same - MOST_CHARACTERS // 3)
    if begin == 1:
        return f"{line[:MOST_CHARACTERS]}…"
    end = begin + MOST_CHARACTERS
    return f"{line[0]}…{line[begin:end]}{'…' if end < len(line) else ''}"
