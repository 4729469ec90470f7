"""`make same` and the part of `make check` that it shares: in small repositories whose collector is a few lines."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.same import trees
from tests.same.__main__ import PARTS, check, compare
from tests.same.compare import Difference, compare_folders, describe
from tests.same.outputs import MASKS, Outputs
from tests.same.trees import Repository, SameError

pytestmark = pytest.mark.process

# the page is made of the catalogue; each tree has a collector of its own, as real ones do
COLLECTOR = """\
import sys
from pathlib import Path

made = {made}
folder, parts = Path(sys.argv[2]), sys.argv[3:] or sorted({{name.partition("/")[0] for name in made}})
for part in parts:
    (folder / part).mkdir(parents=True, exist_ok=True)
for name, text in made.items():
    if name.partition("/")[0] in parts:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
"""
MADE = """{
    "generated/METRICS.md": "made of " + Path("catalogue.txt").read_text(),
    "help/once.txt": Path("catalogue.txt").read_text(),
    "messages/config/bad.txt": Path("messages.txt").read_text(),
}"""


class Checkout:
    """A repository on main with one commit; `write` and `commit` go on from there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "--quiet", "--initial-branch=main")
        self.write("tests/same/__main__.py", COLLECTOR.format(made=MADE))
        self.write("pyproject.toml", '[project]\ndependencies = ["one"]\n')
        self.write(".gitignore", "/build/\n__pycache__/\n")
        self.write("messages.txt", "error: no such key\n")
        self.write("catalogue.txt", "Requests that wait.\n")
        self.generate()
        self.commit("first")

    @property
    def repository(self) -> Repository:
        return Repository(self.folder)

    def git(self, *words: str) -> None:
        names = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", "-C", str(self.folder), *names, *words], check=True, capture_output=True)

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def generate(self) -> None:
        self.write("METRICS.md", f"made of {(self.folder / 'catalogue.txt').read_text()}")

    def commit(self, message: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_a_changed_text_is_named_with_its_files_and_its_diff_though_it_was_generated_and_committed(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.git("switch", "--quiet", "--create", "branch")
    checkout.write("catalogue.txt", "Requests that queue.\n")
    checkout.generate()
    checkout.commit("other words")
    assert check(checkout.repository) == 0
    assert compare(checkout.repository) == 1
    said = capsys.readouterr().out
    assert "differs: generated/METRICS.md\n" in said
    assert "  -made of Requests that wait.\n  +made of Requests that queue.\n" in said
    assert "differs: help/once.txt\n" in said
    assert "bad.txt" not in said
    assert "outputs: 2 differ\n" in said


def test_files_that_are_not_added_yet_count_and_git_is_left_as_it_is(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.write("messages.txt", "error: there is no such key\n")
    checkout.write("more.txt", "not added\n")
    before = checkout.repository.git("status", "--porcelain=v2", "--branch")
    objects = checkout.repository.git("count-objects", "-v")
    assert compare(checkout.repository) == 1
    assert "+error: there is no such key" in capsys.readouterr().out
    assert checkout.repository.git("status", "--porcelain=v2", "--branch") == before
    assert checkout.repository.git("count-objects", "-v") == objects


def test_what_changes_nothing_for_users_is_the_same(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    checkout.write("inner.py", "moved = True\n")
    checkout.commit("moved")
    assert compare(checkout.repository) == 0
    assert "same: 3 outputs, byte for byte" in capsys.readouterr().out


def test_an_output_that_vanishes_and_one_that_is_new_are_told(
    checkout: Checkout, capsys: pytest.CaptureFixture[str]
) -> None:
    checkout.write("tests/same/__main__.py", COLLECTOR.format(made=MADE.replace("help/once", "help/twice")))
    assert compare(checkout.repository) == 1
    said = capsys.readouterr().out
    assert "gone: help/once.txt\nnew: help/twice.txt\noutputs: 1 have gone, 1 are new\n" in said
    assert compare(checkout.repository, new_allowed=True) == 1


def test_new_outputs_alone_are_taken_where_that_is_said(checkout: Checkout) -> None:
    more = MADE.replace("{", '{"help/more.txt": "more",', 1)
    checkout.write("tests/same/__main__.py", COLLECTOR.format(made=more))
    assert compare(checkout.repository) == 1
    assert compare(checkout.repository, new_allowed=True) == 0


def test_a_part_that_only_base_has_is_told(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    checkout.write("tests/same/__main__.py", COLLECTOR.format(made=MADE.replace("{", '{"former/page.txt": "a",', 1)))
    checkout.commit("a part more")
    checkout.write("tests/same/__main__.py", COLLECTOR.format(made=MADE))
    assert compare(checkout.repository) == 1
    assert "gone: former/page.txt\n" in capsys.readouterr().out


def test_each_side_is_made_by_its_own_collector_once(checkout: Checkout, monkeypatch: pytest.MonkeyPatch) -> None:
    # a file that only BASE's collector reads has moved
    checkout.write("tests/same/__main__.py", COLLECTOR.format(made=MADE.replace("messages.txt", "words.txt")))
    checkout.git("mv", "messages.txt", "words.txt")
    assert compare(checkout.repository) == 0
    start, started = trees._start_collector, []
    monkeypatch.setattr(
        trees, "_start_collector", lambda side, parts: (started.append(side.name), start(side, parts))[1]
    )
    assert compare(checkout.repository) == 0
    checkout.commit("moved")
    assert compare(checkout.repository) == 0
    assert started == []
    checkout.write("inner.py", "moved = True\n")
    assert compare(checkout.repository, "HEAD") == 0
    assert set(started) == {"this tree"}, "the commit has the files of the tree that was looked at"


def test_a_collector_that_fails_is_heard(checkout: Checkout) -> None:
    checkout.write("tests/same/__main__.py", "raise SystemExit('the module has moved')")
    with pytest.raises(SameError, match="this tree: its outputs could not be made:\nthe module has moved"):
        compare(checkout.repository)


def test_a_stale_generated_file_is_named(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    checkout.write("catalogue.txt", "Requests that queue.\n")
    checkout.write("alerts/rendered/former.yml", "groups: []\n")
    assert check(checkout.repository) == 1
    said = capsys.readouterr().out
    assert said.startswith("out of date: METRICS.md, alerts/rendered/former.yml; run `make generate`")
    assert "+made of Requests that queue." in said
    checkout.generate()
    (checkout.folder / "alerts/rendered/former.yml").unlink()
    assert check(checkout.repository) == 0


def test_generated_files_are_checked_without_git_too(checkout: Checkout) -> None:
    (checkout.folder / ".git").rename(checkout.folder / "not-git")
    assert check(checkout.repository) == 0
    checkout.write("catalogue.txt", "Requests that queue.\n")
    assert check(checkout.repository) == 1


def test_base_is_where_the_branch_left_main_and_on_main_the_commit_before(checkout: Checkout) -> None:
    def resolve(name: str) -> str:
        return checkout.repository.git("rev-parse", name)

    with pytest.raises(SameError, match="BASE="):
        checkout.repository.find_base()
    checkout.write("messages.txt", "changed\n")
    assert checkout.repository.find_base() == resolve("HEAD")
    checkout.commit("second")
    assert checkout.repository.find_base() == resolve("HEAD^")
    checkout.git("switch", "--quiet", "--create", "branch")
    for number in range(2):
        checkout.write("messages.txt", f"{number}\n")
        checkout.commit("more")
    assert checkout.repository.find_base() == resolve("main")
    assert checkout.repository.find_base("HEAD~1") == resolve("HEAD^")
    with pytest.raises(SameError, match="nowhere"):
        checkout.repository.find_base("nowhere")


def test_other_packages_are_said(checkout: Checkout, capsys: pytest.CaptureFixture[str]) -> None:
    checkout.write("pyproject.toml", '[project]\ndependencies = ["other"]\n')
    assert compare(checkout.repository) == 0
    assert "note: dependencies differ" in capsys.readouterr().out


def test_a_diff_is_bounded_and_one_cause_is_shown_once(tmp_path: Path) -> None:
    base, new = tmp_path / "base", tmp_path / "new"
    for folder, word in ((base, "old"), (new, "new")):
        for number in range(50):
            Outputs(folder).write(f"page-{number:02}.txt", f"# HELP x {word}\nx {number}\n")
        Outputs(folder).write("long.txt", "".join(f"{word} {number}\n" for number in range(1000)))
        Outputs(folder).write("wide.txt", f"{'a' * 5000}{word}{'b' * 5000}\n")
    said = describe(compare_folders(base, new)).splitlines()
    assert max(map(len, said)) < 300
    assert len(said) < 120
    assert "  the same lines in 49 more:" in said
    assert sum(line.endswith("# HELP x new") for line in said) == 1
    assert [line for line in said if "anewb" in line]
    assert any(re.match(r"  … \d{4} more lines", line) for line in said)
    assert said[-1] == "outputs: 52 differ"


def test_line_ends_are_told(tmp_path: Path) -> None:
    for name, text in (("base", b"a\n"), ("new", b"a\r\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "page").write_bytes(text)
    (found,) = compare_folders(tmp_path / "base", tmp_path / "new")
    assert found == Difference("page", "differs", ("- (line ends)", "+ (other line ends)"))


def test_two_outputs_of_one_name_are_refused(tmp_path: Path) -> None:
    outputs = Outputs(tmp_path)
    outputs.write("page.txt", "a")
    with pytest.raises(ValueError, match=r"two outputs are called page\.txt"):
        outputs.write("page.txt", "b")


def test_only_what_is_declared_is_masked(tmp_path: Path) -> None:
    hashed, image = "ab" * 32, f"image@sha256:{'cd' * 32}"
    text = f'process_open_fds 9.0\nllm_serving_process 9.0\n{{sha256="{hashed}"}} 1.0\n{image}\n/tmp/x1/a.yml\n'
    outputs = Outputs(tmp_path)
    with outputs.hiding({"/tmp/x1": "FOLDER"}):
        outputs.write("page.txt", text)
    wanted = f'process_open_fds MASKED\nllm_serving_process 9.0\n{{sha256="MASKED"}} 1.0\n{image}\nFOLDER/a.yml\n'
    assert (tmp_path / "page.txt").read_text() == wanted
    assert all(mask.reason for mask in MASKS)


def test_the_parts_are_those_that_the_collector_makes() -> None:
    text = (Path(__file__).parents[2] / "same/parts.py").read_text()
    assert set(re.findall(r'^    "(\w+)": (?:\w+\.)?write_', text, re.MULTILINE)) == set(PARTS)
