"""`make mutate`: what is chosen, that it is judged in a copy, and what it says of a mutation that is caught and of one that is not."""

from __future__ import annotations

import ast
import subprocess
from pathlib import Path

import pytest

from scripts import mutate
from tests.support.paths import ROOT

pytestmark = pytest.mark.process

CODE = '''"""Sums."""


def add_fee(price: float, fee: float) -> float:
    """Tested."""
    return price + fee


def is_large(price: float) -> bool:
    """Tested far from its border only."""
    return price > 100
'''
QUICK = """from llm_serving_exporter.sums.sums import add_fee, is_large


def test_fee():
    assert add_fee(2, 3) == 5


def test_large():
    assert is_large(1000) and not is_large(1)
"""
# of a tier that the tool leaves out
BORDER = """import pytest
from llm_serving_exporter.sums.sums import is_large


@pytest.mark.slow
def test_border():
    assert not is_large(100)
"""
UNSEEN = """import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING and 1 < 2:
    import ast


def load(name: str, count: int) -> str:
    assert count > 0, "none" + name
    if sys.platform == "win32":
        return name
    return f"{count + 1}" + name


class Reading:
    def __repr__(self) -> str:
        return "a" if self is None else "b"
"""
EVERY = '''def all_kinds(a, b, items):
    """é ü – operators stand where the characters are, not the bytes."""
    text = "€"; total = (a + b) * (a - b) / a // b % a ** b
    total += a
    while (a
           <= b):
        total -= 1
    if not (a or b) and a is not None and b not in items:
        return total
    return [one for one in items if one] if a.real else 1 < a <= b != 3
'''


def texts(mutations: list[mutate.Mutation]) -> list[str]:
    return [f"{one.old.strip()} -> {one.new.strip()}" for one in mutations]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with two rooms: one has tests, the other one a test that always fails. Its pyproject.toml leaves out what is slow."""
    files = {
        "exporter/llm_serving_exporter/__init__.py": "",
        "exporter/llm_serving_exporter/sums/sums.py": CODE,
        "exporter/llm_serving_exporter/broken/halves.py": "def halve(count: int) -> int:\n    return count // 2\n",
        "tests/unit/sums/test_sums.py": QUICK,
        "tests/unit/sums/test_border.py": BORDER,
        "tests/unit/broken/test_halves.py": "def test_always(): assert False\n",
        "tests/unit/test_golden.py": "def test_golden(): pass\n",
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = ["-m", "not slow"]\nmarkers = ["slow: not quick"]\n',
        ".gitignore": "/build/\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    return tmp_path


def test_every_mutation_is_valid_and_another_program() -> None:
    paths = ("derive/lengths.py", "fetch/page.py", "web/pages/gpus.py")
    sources = [EVERY, *((ROOT / "exporter/llm_serving_exporter" / path).read_text() for path in paths)]
    for source in sources:
        found = mutate.find_mutations("any", "any.py", source)
        trees = {ast.dump(ast.parse(one.apply(source))) for one in found}
        assert len(trees) == len(found) > 10
        assert ast.dump(ast.parse(source)) not in trees


def test_arithmetic_comparisons_and_conditions_are_mutated() -> None:
    assert sorted(texts(mutate.find_mutations("any", "any.py", EVERY))) == sorted(
        [
            *("+ -> -", "- -> +", "* -> /", "/ -> *", "// -> *", "% -> *", "** -> *", "+= -> -=", "-= -> +="),
            *("<= -> <", "< -> <=", "<= -> <", "!= -> ==", "is not -> is", "not in -> in"),
            *("or -> and", "not -> ", " -> not", " -> not"),
        ]
    )  # fmt: skip


def test_what_no_test_could_see_is_left_out() -> None:
    assert mutate.find_mutations("any", "any.py", UNSEEN) == []


def test_a_seed_chooses_the_same_and_rooms_take_turns(tree: Path) -> None:
    chosen = mutate.choose_mutations(tree, 1, 30)
    assert sorted(texts(chosen)) == ["+ -> -", "// -> *", "> -> >="]
    assert {one.room for one in chosen[:2]} == {"broken", "sums"}
    for seed in range(10):
        assert mutate.choose_mutations(tree, seed, 30) == mutate.choose_mutations(tree, seed, 30)
        assert mutate.choose_mutations(tree, seed, 2) == mutate.choose_mutations(tree, seed, 30)[:2]
    assert len({tuple(mutate.choose_mutations(tree, seed, 30)) for seed in range(10)}) > 1


def test_other_lines_of_the_tree_leave_a_choice_as_it_was(tree: Path) -> None:
    before = mutate.choose_mutations(tree, 1, 30)
    module = tree / "exporter/llm_serving_exporter/sums/sums.py"
    module.write_text(CODE.replace('"""Sums."""', '"""Sums of money."""\n\nFEE = 3'))
    after = mutate.choose_mutations(tree, 1, 30)
    assert [one.identity for one in after] == [one.identity for one in before]
    assert [one.line for one in after] == [one.line + 2 * (one.room == "sums") for one in before]


def test_every_room_of_the_product_has_tests() -> None:
    rooms = mutate.list_rooms(ROOT)
    assert {"derive", "exporter", "alerts", "dashboards"} < set(rooms)
    for room in rooms:
        assert mutate.list_tests(ROOT, room)
    assert set(mutate.OWN_TESTS) | set(mutate.FURTHER_TESTS) <= set(rooms)


def test_mutations_are_judged_in_a_copy_and_reported(tree: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tree.rglob("*.*") if path.is_file()}
    verdicts = mutate.judge_all(tree, mutate.choose_mutations(tree, 1, 30), workers=1)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}
    assert after == before
    assert not (tree / "build/mutate").exists()
    lines = capsys.readouterr().out
    assert "  + -> -  caught by tests/unit/sums/test_sums.py::test_fee  " in lines
    assert "  > -> >=  survived  " in lines
    assert "not judged: without the mutation fails, too: tests/unit/broken/test_halves.py::test_always  " in lines
    assert [line[:5] for line in lines.splitlines()] == ["[ 1/3", "[ 2/3", "[ 3/3"]

    assert mutate.report(tree, 1, verdicts) == 2
    assert capsys.readouterr().out.endswith("\n1 of 3 survived (seed 1), 1 not judged, which says nothing about them\n")
    judged = [one for one in verdicts if one.outcome != "not judged"]
    assert mutate.report(tree, 1, judged) == 1
    report = capsys.readouterr().out
    assert "-    return price > 100\n+    return price >= 100\n" in report
    assert "price + fee" not in report
    assert report.endswith("\n1 of 2 survived (seed 1)\n")
    assert mutate.report(tree, 1, [one for one in judged if one.outcome == "caught"]) == 0


def test_a_room_without_tests_is_a_fault_of_the_tables(tree: Path) -> None:
    (tree / "tests/unit/sums").rename(tree / "tests/unit/totals")
    with pytest.raises(mutate.CannotJudgeError, match=r"^sums has no tests/unit/sums: correct the tables"):
        mutate.judge_all(tree, mutate.choose_mutations(tree, 1, 3), workers=1)
