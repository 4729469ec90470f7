"""The house rules that a reader relies on: what stands where, how things are called, and which kind a record is."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = ROOT / "exporter" / "llm_serving_exporter"
PACKAGES = sorted(
    path.parent for root in ("exporter", "alerts", "dashboards") for path in ROOT.glob(f"{root}/*/__init__.py")
)
MODULES = sorted(path for package in PACKAGES for path in package.rglob("*.py"))
# a verb that says what is done to what; these say nothing alone
FILLERS = {
    "after", "around", "as", "at", "before", "below", "beside", "between", "by", "come", "do", "for", "from", "go", "have", "in",
    "into", "let", "look", "of", "on", "over", "per", "put", "take", "to", "under", "until", "via", "with", "within", "without",
}  # fmt: skip
# words that a reader of English has to look up, or that hide who does what
STALE_WORDS = re.compile(
    r"\b(anew|reckon\w*|amiss|foretold|thereby|whereof|hereof|is told from|told apart|not said whom)\b", re.IGNORECASE
)
LONGEST_MODULE = 800


@cache
def read(path: Path) -> str:
    """A file of the tree, which several checks look through."""
    return path.read_text(encoding="utf-8")


@cache
def nodes(source: str) -> tuple[ast.AST, ...]:
    """Every node of a module."""
    return tuple(ast.walk(ast.parse(source)))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_root_of_the_package_holds_five_modules() -> None:
    found = {path.stem for path in PACKAGE.glob("*.py") if not path.stem.startswith("__")}
    assert found == {"cli", "clock", "errors", "logs", "terminal"}


def test_every_folder_says_what_is_in_it() -> None:
    folders = {path.parent for path in MODULES}
    silent = [name_of(folder) for folder in folders if not ast.get_docstring(ast.parse(read(folder / "__init__.py")))]
    assert silent == []


def test_modules_are_short_enough_to_read() -> None:
    assert [name_of(path) for path in MODULES if len(read(path).splitlines()) > LONGEST_MODULE] == []


def test_one_product_file_makes_the_pipeline_of_a_target() -> None:
    makers = [name_of(path) for path in MODULES if re.search(r"\bTargetPipeline\(", read(path))]
    assert makers == ["exporter/llm_serving_exporter/targets/host.py"]


def test_only_what_needs_it_is_a_dataclass() -> None:
    """`model.record` says what the other records are, and why. A file of the configuration holds settings, Problem stands below `model`."""
    found = [
        f"{name_of(path)}: {owner.name}"
        for path in sorted(PACKAGE.parent.rglob("*.py"))
        if PACKAGE / "settings" not in path.parents
        for owner in needless_dataclasses(read(path))
    ]
    assert found == [
        "exporter/llm_serving_exporter/errors.py: Problem",
    ]


def test_docstrings_describe_only_fields_that_exist() -> None:
    """A description of a field stands beside it; one that stayed in the docstring names a field that is there."""
    assert [f"{name_of(path)}: {field}" for path in MODULES for field in described_in_vain(read(path))] == []


def test_what_is_added_up_has_the_same_digits_on_every_python() -> None:
    """The library's `sum` rounds in another way since 3.12: it counts, and `model.numbers.add_up` adds up."""
    found = [f"{name_of(path)}:{line}" for path in MODULES for line in sums_of_the_library(read(path))]
    assert found == []


def test_functions_are_called_by_what_they_do() -> None:
    found = [
        f"{name_of(path)}:{node.lineno} {node.name}"
        for path in MODULES
        for node in nodes(read(path))
        if isinstance(node, ast.FunctionDef) and node.name.strip("_") in FILLERS
    ]
    assert found == []


def test_the_words_are_plain() -> None:
    texts = [
        *MODULES,
        *(
            path
            for package in PACKAGES
            for path in package.rglob("*")
            if path.suffix in {".md", ".yml", ".html", ".toml"}
        ),
    ]
    found = [
        f"{name_of(path)}:{number} {match[0]}"
        for path in texts
        for number, line in enumerate(read(path).splitlines(), 1)
        if (match := STALE_WORDS.search(line))
    ]
    assert found == []


def needless_dataclasses(source: str) -> Iterator[ast.ClassDef]:
    """Those without a field that only a dataclass can have: a declared key, one that is computed, or left out of equality."""
    for owner in records(source):
        made = [field.value for field in fields(owner) if isinstance(field.value, ast.Call)]
        plain = all(
            {one.arg for one in call.keywords} <= {"default", "default_factory"} and not call.args for call in made
        )
        if owner.decorator_list and plain:
            yield owner


def sums_of_the_library(source: str) -> Iterator[int]:
    """The line of each `sum(…)` over what is not seen to be counts: numbers written out, `len(…)`, comparisons. One with a start of its own
    adds up no numbers."""
    for node in nodes(source):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "sum" and len(node.args) == 1:
            (over,) = node.args
            item = over.elt if isinstance(over, ast.GeneratorExp | ast.ListComp) else over
            if isinstance(over, ast.Call) and ast.unparse(over.func) == "map":
                item = ast.Call(over.args[0])
            if not is_count(item):
                yield node.lineno


def is_count(item: ast.expr) -> bool:
    """Whether it is seen to be an integer or a truth."""
    match item:
        case ast.Call():
            return ast.unparse(item.func) in {"len", "bool", "int", "any", "all", "isinstance"}
        case ast.BoolOp():
            return all(map(is_count, item.values))
        case ast.Constant():
            return isinstance(item.value, int)
    return isinstance(item, ast.Compare) or (isinstance(item, ast.UnaryOp) and isinstance(item.op, ast.Not))


def described_in_vain(source: str) -> Iterator[str]:
    """`name`: in the docstring of a record that has no such field, property or method."""
    for owner in records(source):
        known = {ast.unparse(field.target) for field in fields(owner)}
        known |= {node.name for node in owner.body if isinstance(node, ast.FunctionDef)}
        for name in re.findall(r"`([a-z_]+)`:", ast.get_docstring(owner) or ""):
            if name not in known:
                yield f"{owner.name}: {name}"


def records(source: str) -> Iterator[ast.ClassDef]:
    """Classes with fields: dataclasses, Structs, named tuples."""
    for node in nodes(source):
        if isinstance(node, ast.ClassDef):
            made = {ast.unparse(one).split("(")[0].split(".")[-1] for one in (*node.decorator_list, *node.bases)}
            if made & {"dataclass", "Struct", "NamedTuple"}:
                yield node


def fields(owner: ast.ClassDef) -> list[ast.AnnAssign]:
    return [
        node
        for node in owner.body
        if isinstance(node, ast.AnnAssign) and "ClassVar" not in ast.unparse(node.annotation)
    ]


def test_these_checks_see_what_they_look_for() -> None:
    source = '''
@dataclass(frozen=True)
class Reading:
    """`gone`: a field of last year's."""

    up: bool
    labels: dict = field(default_factory=dict)

class Sped(Struct, frozen=True):
    """`age`: seconds. `gone`: nothing."""

    age: float

@dataclass(frozen=True)
class Settings:
    host: str = key(HOST, "The mail server.")

@dataclass(frozen=True)
class Line:
    total: float = field(init=False)
'''
    assert [owner.name for owner in needless_dataclasses(source)] == ["Reading"]
    assert list(described_in_vain(source)) == ["Reading: gone", "Sped: gone"]
    counts = (
        "sum(1 for _ in a)",
        "sum(one > 2 for one in a)",
        "sum(map(len, a))",
        "sum([len(one) for one in a])",
        "sum(a, Count())",
    )
    floats = "sum(a)", "sum(one.usd for one in a)", "sum(map(cost, a))", "sum(a.values())"
    assert [text for text in (*counts, *floats) if list(sums_of_the_library(text))] == [*floats]


# --- the picture of the house in CONTRIBUTING.md, and its plan for a day


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]


def draw_names(package: str) -> list[str]:
    """What the picture has below a package, from the top down; of "" the packages themselves."""
    picture = CONTRIBUTING.split("## Where things are", 1)[1].split("```", 2)[1]
    names, below = [], ""
    for line in picture.strip().splitlines():
        words = [word.strip("/").removesuffix(".py").rpartition("/")[2] for word in line[:37].strip("├└─ ").split()]
        if line[0] not in "├└":
            (below,) = words
            names += words if package == "" else []
        elif below == package:
            names += words
    return names


def test_the_picture_has_every_folder_in_the_order_of_the_contract() -> None:
    (contract,) = (one for one in CONTRACTS if one["name"] == "arrows between the folders run one way")
    layers = {name: number for number, layer in enumerate(contract["layers"]) for name in layer.split(" | ")}
    drawn = draw_names(PACKAGE.name)
    assert sorted(drawn) == sorted(layers.keys() - {"__main__"})
    assert [layers[name] for name in drawn] == sorted(layers[name] for name in drawn)
    assert sorted(draw_names("")) == sorted([*(path.name for path in PACKAGES), "tests"])


def test_what_the_daemon_in_a_day_lists_is_there_and_no_more_than_a_day_can_hold() -> None:
    plan = CONTRIBUTING.split("**The daemon in a day**", 1)[1].split("**", 1)[0]
    files = [PACKAGE / name for name in re.findall(r"`([\w/]+\.(?:py|yml))`", plan)]
    assert len(files) > 20
    assert [name_of(path) for path in files if not path.is_file()] == []
    assert sum(len(read(path).splitlines()) for path in files) < 8_000
