"""Changes one operator of the product at a time and shows which changes no quick test notices: `make mutate SEED=1 COUNT=30`.

A mutation changes an arithmetic operator, a comparison or a condition. The seed chooses them: one room after the other, and within a room
by a digest of what the code says, so that a change somewhere else leaves the others as they were. Copies of the tree in build/mutate, as
many as there are cores, are mutated and tested; the work tree is only read. Not mutated, because no test could or should see it: assertions
and `__repr__`, which are for whoever debugs; what only a type checker, another system or `python -m` runs; `+` and `/` beside a text, where
any other operator is a TypeError; and f-strings, of which Python before 3.12 does not say where in the file an operator stands.

The quick tests of the room judge a mutation, up to the first that fails. That test then runs without the mutation: it must pass, else it
says nothing about the mutation. The exit status is 0 where all are caught, 1 where some survived, 2 where some could not be judged.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import fcntl
import hashlib
import os
import queue
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import tokenize
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE_ROOTS = ("exporter", "alerts", "dashboards")
GOLDENS = "tests/unit/test_golden.py"
# room -> its own tests where they are not tests/unit/ROOM
OWN_TESTS = {
    "exporter": "tests/unit/test_cli.py tests/unit/test_terminal.py tests/faults/test_clock.py",
    "clients": "tests/unit/drill/test_api.py tests/unit/review/test_gaps.py tests/unit/review/test_databases.py",
    "docgen": "tests/unit/catalogue tests/unit/settings/test_docs.py tests/unit/test_contributing.py",
}
# room -> where else its results are held against what they should be, after the goldens
FURTHER_TESTS = {
    "alerts": "tests/pack",
    "catalogue": "tests/unit/expose",
    "clients": "tests/unit/review/test_command.py tests/unit/drill",
    "commands": "tests/unit/test_cli.py tests/unit/test_docs_commands.py",
    "cost": "tests/unit/daemon/test_cost_keeper.py tests/faults/test_cost.py",
    "daemon": "tests/faults",
    "dashboards": "tests/pack/test_home.py tests/pack/test_panels.py",
    "derive": "tests/truth tests/unit/targets",
    "discovery": "tests/unit/daemon",
    "exporter": "tests/unit/daemon tests/unit/commands",
    "expose": "tests/unit/otlp",
    "facts": "tests/truth",
    "fetch": "tests/unit/engines tests/truth tests/unit/targets",
    "files": "tests/unit/state tests/unit/daemon tests/unit/settings",
    "gpus": "tests/unit/targets tests/faults/test_gpu_faults.py",
    "model": "tests/unit/targets tests/unit/derive tests/truth",
    "engines": "tests/truth tests/unit/targets",
    "render": "tests/unit/web tests/unit/commands",
    "review": "tests/faults/test_review_schedule.py",
    "settings": "tests/unit/test_wrong_inputs.py tests/unit/daemon",
    "simulator": "tests/truth",
    "state": "tests/faults/test_state_dir.py tests/unit/daemon",
    "targets": "tests/truth tests/unit/daemon",
    "web": "tests/faults/test_survival.py",
}
# a mutation may make a loop endless: a limit for tests that take a fifth of it at most, and for what such a loop appends
LONGEST_SECONDS = 600
LARGEST_BYTES = 4 << 30

# kind -> operator of the syntax tree -> what is put there
NEW_OPERATORS: dict[str, dict[type[ast.AST], str]] = {
    "arithmetic": {
        ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.FloorDiv: "*", ast.Mod: "*", ast.Pow: "*",
    },
    "comparison": {
        ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
        ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
    },
    "condition": {ast.And: "or", ast.Or: "and"},
}  # fmt: skip
OPERATORS = {operator: (kind, new) for kind, table in NEW_OPERATORS.items() for operator, new in table.items()}
_ELSEWHERE = re.compile(r"\bTYPE_CHECKING\b|\bsys\.(version_info|platform)\b|\bos\.name\b|\b__name__ ==")


class CannotJudgeError(Exception):
    """What keeps a mutation, or all of them, from being judged."""


@dataclass(frozen=True)
class Mutation:
    """One operator of one module, and what stands there instead."""

    room: str
    path: str  # below the root of the tree
    kind: str  # arithmetic, comparison or condition
    line: int
    start: int  # in characters of the module
    end: int
    old: str  # "" where a "not" is added
    new: str
    identity: str  # what the code says, without its line: the same when other lines move

    def apply(self, source: str) -> str:
        """The module's text with the mutation."""
        return source[: self.start] + self.new + source[self.end :]


@dataclass(frozen=True)
class Verdict:
    """What the tests made of a mutation."""

    mutation: Mutation
    outcome: str  # caught, timed out, survived or not judged
    reason: str  # the test that failed, or why it is not judged
    seconds: float


# --- choosing


class Module:
    """The text of a module, its syntax tree, and where in the text each operator stands."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tree = ast.parse(source)
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))
        self._operators = [
            (self._starts[token.start[0] - 1] + token.start[1], self._starts[token.end[0] - 1] + token.end[1])
            for token in tokenize.generate_tokens(StringIO(source).readline)
            if token.type in (tokenize.OP, tokenize.NAME) and token.string not in ("(", ")")
        ]

    def locate_between(self, left: ast.expr, right: ast.expr) -> tuple[int, int]:
        """Start and end of the operator between two operands, without the parentheses that stand there."""
        begin = self._offset(left.end_lineno or 0, left.end_col_offset or 0)
        first, after = (bisect_left(self._operators, (place, 0)) for place in (begin, self.locate(right)))
        return self._operators[first][0], self._operators[after - 1][1]

    def locate(self, node: ast.expr) -> int:
        """Where an expression starts."""
        return self._offset(node.lineno, node.col_offset)

    def _offset(self, line: int, column: int) -> int:
        """Where a place of the syntax tree, which counts bytes, is in the text."""
        return self._starts[line - 1] + len(self._lines[line - 1].encode()[:column].decode())


def walk_seen(node: ast.AST, scope: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Every node below that a test could see change, and the functions and classes around it."""
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        scope = f"{scope}.{node.name}".lstrip(".")
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Assert() | ast.JoinedStr() | ast.FunctionDef(name="__repr__"):
                continue
            case ast.If(test=test) if _ELSEWHERE.search(ast.unparse(test)):
                continue
        yield child, scope
        yield from walk_seen(child, scope)


def list_edits(node: ast.AST, module: Module) -> Iterator[tuple[ast.AST, str, int, int, str]]:
    """What can be mutated of one node itself: the expression, the kind, start and end in the text, and what is put there."""
    conditions: list[ast.expr] = []
    match node:
        case ast.BinOp(left=left, op=op, right=right) if type(op) in OPERATORS and not _is_text(left, right):
            yield node, OPERATORS[type(op)][0], *module.locate_between(left, right), OPERATORS[type(op)][1]
        case ast.AugAssign(target=left, op=op, value=right) if type(op) in OPERATORS and not _is_text(right):
            yield node, OPERATORS[type(op)][0], *module.locate_between(left, right), f"{OPERATORS[type(op)][1]}="
        case ast.Compare(left=left, ops=ops, comparators=rights):
            for before, op, after in zip([left, *rights], ops, rights, strict=False):
                yield node, OPERATORS[type(op)][0], *module.locate_between(before, after), OPERATORS[type(op)][1]
        # of a longer chain one operator alone would regroup the others
        case ast.BoolOp(op=op, values=[left, right]):
            yield node, OPERATORS[type(op)][0], *module.locate_between(left, right), OPERATORS[type(op)][1]
        case ast.UnaryOp(op=ast.Not()):
            start = module.locate(node)
            after_not = re.compile(r"not\s*").match(module.source, start)
            yield node, "condition", start, after_not.end() if after_not else start, ""
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            conditions = [test]
        case ast.comprehension(ifs=tests):
            conditions = tests
    for test in conditions:
        # others have an operator of their own
        if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript):
            yield test, "condition", module.locate(test), module.locate(test), "not "


def _is_text(*operands: ast.expr) -> bool:
    """Whether one is written as a text, a list or a tuple: another operator does not take it."""
    return any(
        isinstance(one, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp)
        or (isinstance(one, ast.Constant) and isinstance(one.value, str | bytes))
        for one in operands
    )


def find_mutations(room: str, path: str, source: str) -> list[Mutation]:
    """Every mutation of a module."""
    module = Module(source)
    found = []
    same: Counter[str] = Counter()
    for node, scope in walk_seen(module.tree):
        for expression, kind, start, end, new in list_edits(node, module):
            said = f"{path} {scope} {ast.unparse(expression)} {source[start:end]} {new}"
            same[said] += 1
            line = source.count("\n", 0, start) + 1
            found.append(Mutation(room, path, kind, line, start, end, source[start:end], new, f"{said} {same[said]}"))
    return found


def list_packages(root: Path) -> list[Path]:
    """The packages in the source roots of a tree."""
    return sorted(found.parent for folder in SOURCE_ROOTS for found in (root / folder).glob("*/__init__.py"))


def list_rooms(root: Path) -> dict[str, list[str]]:
    """Room -> its modules, below the root: a folder of the exporter, the exporter's own modules, every other package."""
    rooms: dict[str, list[str]] = {}
    for package in list_packages(root):
        for path in sorted(package.rglob("*.py")):
            name = package.name.removeprefix("llm_serving_")
            inner = path.relative_to(package).parts[:-1]
            room = inner[0] if name == "exporter" and inner else name
            rooms.setdefault(room, []).append(path.relative_to(root).as_posix())
    return rooms


def choose_mutations(root: Path, seed: int, count: int) -> list[Mutation]:
    """`count` mutations: rooms take turns, and within a room arithmetic, comparison and condition."""
    rooms: dict[str, dict[str, list[Mutation]]] = {}
    for room, paths in list_rooms(root).items():
        for path in paths:
            for one in find_mutations(room, path, (root / path).read_text(encoding="utf-8")):
                rooms.setdefault(room, {}).setdefault(one.kind, []).append(one)

    def rank(text: str) -> str:
        return hashlib.sha256(f"{seed} {text}".encode()).hexdigest()

    queues = []
    for room in sorted(rooms, key=rank):
        kinds = sorted((rank(f"{room} {kind}"), kind) for kind in rooms[room])
        queues.append(_take_turns([sorted(rooms[room][kind], key=lambda one: rank(one.identity)) for _, kind in kinds]))
    return _take_turns(queues)[:count]


def _take_turns(queues: Sequence[Sequence[Mutation]]) -> list[Mutation]:
    longest = max(map(len, queues), default=0)
    return [line[turn] for turn in range(longest) for line in queues if turn < len(line)]


# --- judging


def list_tests(root: Path, room: str) -> list[list[str]]:
    """The room's own tests and the goldens, and then what runs where those pass."""
    first = [*OWN_TESTS.get(room, f"tests/unit/{room}").split(), GOLDENS]
    then = FURTHER_TESTS.get(room, "").split()
    missing = [path for path in (*first, *then) if not (root / path).exists()]
    if missing:
        raise CannotJudgeError(f"{room} has no {', '.join(missing)}: correct the tables of scripts/mutate.py")
    return [tests for tests in (first, then) if tests]


class Bench:
    """A copy of the tree in which mutations are tried, one after the other."""

    def __init__(self, root: Path, copy: Path) -> None:
        self.copy = copy
        self._running: subprocess.Popen[str] | None = None
        self._stopped = False
        self._mutants = 0
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.check_output(listed, cwd=root, text=True).split("\0"):  # noqa: S603  # our own words
            if name and (root / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, copy / name)
        # programs that tests start stand there
        (copy / ".venv").symlink_to(root / ".venv")
        for package in list_packages(copy):
            imported = self._run([sys.executable, "-c", f"import {package.name} as made; print(made.__file__)"])[1]
            if Path(imported.strip()) != package / "__init__.py":
                raise CannotJudgeError(f"tests import {package.name} from {imported.strip()}, not from {copy}")

    def judge(self, mutation: Mutation) -> Verdict:
        """Which test fails with the mutation and passes without."""
        begun = time.monotonic()
        try:
            outcome, reason = self._judge(mutation)
        except CannotJudgeError as error:
            outcome, reason = "not judged", str(error)
        return Verdict(mutation, outcome, reason, time.monotonic() - begun)

    def stop(self) -> None:
        """Ends what runs there, with all that it started, and starts nothing more."""
        self._stopped = True
        if self._running is not None:
            self._running.terminate()

    def _judge(self, mutation: Mutation) -> tuple[str, str]:
        path = self.copy / mutation.path
        original, times = path.read_text(encoding="utf-8"), path.stat()
        for tests in list_tests(self.copy, mutation.room):
            path.write_text(mutation.apply(original), encoding="utf-8")
            # Python takes a compiled module for that of a source of the same size and second: no mutant shares its second
            self._mutants += 1
            os.utime(path, (times.st_atime, int(times.st_mtime) - self._mutants))
            try:
                status, output = self._test(tests, mutated=True)
            finally:
                path.write_text(original, encoding="utf-8")
                os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
            if status != 0:
                return self._explain(tests, status, output)
        return "survived", ""

    def _explain(self, tests: list[str], status: int, output: str) -> tuple[str, str]:
        """What ended the tests of a mutation, once the same passes without it."""
        failed = re.search(r"^(?:FAILED|ERROR) (tests/.+?)(?: - .*)?$", output, re.MULTILINE)
        if status in (124, 137):
            again, outcome, reason = tests, "timed out", f"after {LONGEST_SECONDS} s"
        elif status in (1, 2) and failed:
            again, outcome, reason = [failed[1]], "caught", failed[1]
        elif status == 4 and "while loading conftest" in output:
            again, outcome, reason = ["--collect-only", *tests], "caught", "what conftest.py imports"
        else:
            last = (output.strip().splitlines() or ["nothing"])[-1]
            raise CannotJudgeError(f"pytest ended with {status} and said {last}")
        if self._test(again, mutated=False)[0] != 0:
            raise CannotJudgeError(f"without the mutation fails, too: {' '.join(again)}")
        return outcome, reason

    def _test(self, tests: Sequence[str], mutated: bool) -> tuple[int, str]:
        # examples that falsified the last mutation would be tried first
        shutil.rmtree(self.copy / ".hypothesis", ignore_errors=True)
        options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "--hypothesis-seed=0"]
        return self._run([sys.executable, "-m", "pytest", *options, *tests], mutated)

    def _run(self, command: Sequence[str], mutated: bool = False) -> tuple[int, str]:
        """Exit status and output of a program that imports the copy. Its limit holds even where this process is killed."""
        if self._stopped:
            raise CannotJudgeError("interrupted")
        environment = {
            **os.environ,
            # before the tree that is installed
            "PYTHONPATH": os.pathsep.join(str(self.copy / folder) for folder in SOURCE_ROOTS),
            "PYTHONPYCACHEPREFIX": f"{self.copy}-pycache",
            # no compiled mutant is left to a later one
            "PYTHONDONTWRITEBYTECODE": "1" if mutated else "",
        }
        limited = ["timeout", "--kill-after=10", str(LONGEST_SECONDS), *command]
        with subprocess.Popen(  # noqa: S603  # our own words
            limited,
            cwd=self.copy,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as self._running:
            output = self._running.communicate()[0]
            return self._running.returncode, output


# --- the whole run


def describe(verdict: Verdict) -> str:
    """A verdict in one line."""
    mutation = verdict.mutation
    change = f"{mutation.old.strip() or 'nothing'} -> {mutation.new.strip() or 'nothing'}"
    by = {"caught": " by ", "survived": ""}.get(verdict.outcome, ": ")
    where = f"{mutation.path}:{mutation.line}"
    return f"{mutation.room:<10} {where}  {change}  {verdict.outcome}{by}{verdict.reason}  {verdict.seconds:.0f} s"


def show_diff(root: Path, mutation: Mutation) -> str:
    """The mutation as a unified diff."""
    before = (root / mutation.path).read_text(encoding="utf-8")
    lines = [text.splitlines(keepends=True) for text in (before, mutation.apply(before))]
    return "".join(difflib.unified_diff(*lines, f"a/{mutation.path}", f"b/{mutation.path}"))


def judge_all(root: Path, mutations: Sequence[Mutation], workers: int) -> list[Verdict]:
    """Judges the mutations in copies below build/mutate, and prints a line for each."""
    for mutation in mutations:
        list_tests(root, mutation.room)
    folder = root / "build" / "mutate"
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / "mutate.lock").open("w") as lock, ThreadPoolExecutor(workers) as pool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CannotJudgeError("another run is under way in this tree") from None
        # a run that was killed has left it
        shutil.rmtree(folder, ignore_errors=True)
        benches = [Bench(root, folder / f"tree{number}") for number in range(workers)]
        free: queue.SimpleQueue[Bench] = queue.SimpleQueue()
        for bench in benches:
            free.put(bench)

        def judge(mutation: Mutation) -> Verdict:
            bench = free.get()
            try:
                return bench.judge(mutation)
            finally:
                free.put(bench)

        verdicts: list[Verdict] = []
        try:
            for done in as_completed([pool.submit(judge, mutation) for mutation in mutations]):
                verdicts.append(done.result())
                sys.stdout.write(f"[{len(verdicts):>2}/{len(mutations)}] {describe(verdicts[-1])}\n")
                sys.stdout.flush()
        finally:
            for bench in benches:
                bench.stop()
            shutil.rmtree(folder, ignore_errors=True)
    return verdicts


def report(root: Path, seed: int, verdicts: Sequence[Verdict]) -> int:
    """Prints how many survived, each as a diff; the exit status."""
    survivors = [verdict.mutation for verdict in verdicts if verdict.outcome == "survived"]
    for mutation in sorted(survivors, key=lambda one: (one.path, one.start)):
        sys.stdout.write(f"\nsurvived, {mutation.room}:\n{show_diff(root, mutation)}")
    unjudged = sum(verdict.outcome == "not judged" for verdict in verdicts)
    also = f", {unjudged} not judged, which says nothing about them" if unjudged else ""
    sys.stdout.write(f"\n{len(survivors)} of {len(verdicts)} survived (seed {seed}){also}\n")
    return 2 if unjudged else int(bool(survivors))


def main(arguments: Sequence[str]) -> int:
    """Reads the command line; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seed", type=int, default=1, help="chooses the mutations (%(default)s)")
    parser.add_argument("--count", type=int, default=30, help="how many (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="how many at a time (%(default)s)")
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_DATA, (LARGEST_BYTES, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    try:
        verdicts = judge_all(ROOT, choose_mutations(ROOT, options.seed, options.count), options.workers)
    except CannotJudgeError as error:
        sys.stderr.write(f"mutate: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return report(ROOT, options.seed, verdicts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
