"""Each field of a dataclass or named tuple has a comment of its own, above it or on its line."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.support.paths import ROOT

PACKAGE = ROOT / "exporter" / "llm_serving_exporter"
MODULES = [
    path for room in ("model", "derive", "catalogue", "expose") for path in sorted((PACKAGE / room).glob("*.py"))
]


def uncommented(path: Path) -> list[str]:
    """Class and field of each field without a comment."""
    text = path.read_text()
    lines = text.splitlines()
    found = []
    for one in ast.walk(ast.parse(text)):
        if not isinstance(one, ast.ClassDef):
            continue
        made_by = " ".join(ast.unparse(part) for part in (*one.decorator_list, *one.bases))
        if "dataclass" not in made_by and "NamedTuple" not in made_by:
            continue
        for field in one.body:
            if isinstance(field, ast.AnnAssign):
                above, own = lines[field.lineno - 2].strip(), lines[(field.end_lineno or field.lineno) - 1]
                if not above.startswith("#") and "#" not in own:
                    found.append(f"{one.name}.{ast.unparse(field.target)}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_field_has_a_comment_of_its_own(path: Path) -> None:
    assert uncommented(path) == []


def test_a_field_without_a_comment_is_found(tmp_path: Path) -> None:
    module = tmp_path / "point.py"
    module.write_text("@dataclass\nclass Point:\n    # metres\n    x: float\n    y: float\n    z: float  # metres\n")
    assert uncommented(module) == ["Point.y"]
