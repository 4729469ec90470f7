"""The outputs of a tree, in parts: each stands in a folder of its own, and is made once for as long as no file of the tree changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tests.same import commands, daemon, internals
from tests.same.outputs import Outputs
from tests.same.surroundings import begin_part

CHART, STACKS, KUSTOMIZE = (
    Path("deploy/helm/llm-serving-exporter"),
    Path("deploy/helm/stacks"),
    Path("deploy/kustomize"),
)
_MODES = {
    "daemonset": ("--set=mode=daemonset", "--set=scrape.kind=podmonitor"),
    "statefulset": ("--set=mode=statefulset", "--set=scrape.kind=scrapeconfig"),
    "sidecar": ("--set=mode=sidecar,sidecar.namespaces={chat},sidecar.target.url=http://localhost:30000",),
}
# a helm that was built from source takes itself for one that knows no newer
_KUBE_VERSION = "1.34.0"


def write_generated(outputs: Outputs) -> None:
    """The generated files of the repository, under their paths in it, as the sources make them now."""
    for make in internals.list_generators():
        for path, text in make().items():
            outputs.write_whole(path.as_posix(), text)


def write_goldens(outputs: Outputs) -> None:
    """The golden pages, as they are committed and as they are served."""
    for name, golden, text, openmetrics in internals.render_goldens():
        outputs.write(f"{name}.prom", golden)
        outputs.write(f"served/{name}.txt", text)
        outputs.write(f"served/{name}.openmetrics", openmetrics)


def write_review(outputs: Outputs) -> None:
    """The sample of the weekly review: its page, its tables, its summary."""
    with tempfile.TemporaryDirectory() as folder:
        for path in internals.write_review(Path(folder)):
            outputs.write(path.name, path.read_text(encoding="utf-8"))


def write_deploy(outputs: Outputs) -> None:
    """The files of deploy/ that users copy, and what helm and kubectl make of chart and kustomizations, where they are installed."""
    for path in sorted(Path("deploy").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            outputs.write_whole(f"files/{path.as_posix()}", path.read_bytes().decode(errors="surrogateescape"))
    if helm := find_program("helm"):
        files = [*sorted((CHART / "ci").glob("*.yaml")), *sorted(STACKS.glob("*.yaml"))]
        of_files = {f"{path.parent.name}-{path.stem}": (f"--values={path}",) for path in files}
        for name, arguments in (_MODES | of_files).items():
            words = [helm, "template", "exporter", str(CHART), "--kube-version", _KUBE_VERSION, *arguments]
            outputs.write(f"helm/{name}.yaml", _run(words))
    if kubectl := find_program("kubectl"):
        for path in sorted(KUSTOMIZE.rglob("kustomization.yaml")):
            folder = path.parent.relative_to(KUSTOMIZE).as_posix()
            outputs.write(f"kustomize/{folder}.yaml", _run([kubectl, "kustomize", str(path.parent)]))


PARTS: dict[str, Callable[[Outputs], None]] = {
    "generated": write_generated,
    "messages": commands.write_messages,
    "golden": write_goldens,
    "help": commands.write_help,
    "answers": commands.write_answers,
    "daemon": daemon.write_daemon,
    "kubernetes": daemon.write_kubernetes,
    "review": write_review,
    "deploy": write_deploy,
}


def collect(folder: Path, names: Iterable[str]) -> None:
    """Makes the parts that `folder` does not have yet. A part that is there is whole: it is made elsewhere and moved."""
    for name in names:
        if (folder / name).exists():
            continue
        unfinished = folder / f".{name}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        begin_part()
        PARTS[name](Outputs(unfinished))
        unfinished.rename(folder / name)


def find_program(name: str) -> str | None:
    """As its variable (HELM) or PATH names it."""
    return shutil.which(os.environ.get(name.upper(), name))


def _run(words: list[str]) -> str:
    """Exit status, output and messages of a program."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
