"""docs/kubernetes.md: its commands are what the chart takes, its YAML parses, what it names is there."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.support.helm import NAME, STACKS, render, template
from tests.support.paths import ROOT
from tests.support.yaml_text import load_yaml
from tests.unit.deploy.test_autoscaling import STEPS

PAGE = (ROOT / "docs/kubernetes.md").read_text()
README = (ROOT / "deploy/helm/llm-serving-exporter/README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
# files of values that it shows
PAGE_VALUES = [text for language, text in BLOCKS if language == "yaml" and re.match(r"# (my-values|values for)", text)]


def commands(page: str) -> list[list[str]]:
    """Words of each command, continuation lines joined."""
    texts = (text for language, text in re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL) if language == "sh")
    lines = (line for text in texts for line in re.sub(r"\\\n\s*", "", text).splitlines() if line)
    return [shlex.split(line) for line in lines]


HELM = [words for words in (*commands(PAGE), *commands(README)) if words[:1] == ["helm"]]


def rendered_with(words: list[str]) -> list[str]:
    """What of `helm install` or `helm upgrade` also means something to `helm template`."""
    _, verb, release, chart, *rest = words
    assert (verb in ("install", "upgrade"), release, chart) == (True, NAME, "deploy/helm/llm-serving-exporter")
    where = rest.index("--namespace")
    found = [word for word in rest[:where] + rest[where + 2 :] if word != "--reset-then-reuse-values"]
    return [str(ROOT / word) if word.startswith("deploy/") else word for word in found]


@pytest.mark.packages
@pytest.mark.parametrize("words", HELM, ids=lambda words: " ".join(words)[:60])
def test_helm_takes_each_command(words: list[str]) -> None:
    done = template(*rendered_with(words))
    assert done.returncode == 0, done.stderr


@pytest.mark.packages
def test_the_first_command_makes_what_is_waited_for() -> None:
    waited = [words[-1] for words in commands(PAGE) if "rollout" in words]
    for words, name in zip(HELM, waited, strict=False):
        kind = name.partition("/")[0]
        (workload,) = (one for one in render(*rendered_with(words)) if one["kind"].lower() == kind)
        assert workload["metadata"]["name"] == name.partition("/")[2]
        if kind == "daemonset":
            assert workload["spec"]["template"]["spec"]["nodeSelector"] == {"nvidia.com/gpu.present": "true"}
    assert waited == [f"daemonset/{NAME}", f"statefulset/{NAME}"]


def test_there_are_commands_for_each_mode() -> None:
    modes = {word.partition("=")[2] for words in HELM for word in words if word.startswith("mode=")}
    assert modes == {"daemonset", "statefulset", "sidecar"}


def test_the_yaml_of_the_page_parses() -> None:
    found = [load_yaml(text) for language, text in BLOCKS if language == "yaml"]
    assert len(found) >= 4
    assert all(isinstance(one, dict) for one in found)


@pytest.mark.packages
@pytest.mark.parametrize("values", PAGE_VALUES)
def test_the_values_of_the_page_are_taken(values: str, tmp_path: object) -> None:
    path = f"{tmp_path}/values.yaml"
    with open(path, "w") as file:
        file.write(values)
    mode = "sidecar" if "mode sidecar" in values else "daemonset"
    done = template("--values", path, f"--set=mode={mode}")
    assert done.returncode == 0, done.stderr


def test_what_is_linked_or_applied_is_there() -> None:
    linked = re.findall(r"\]\((?!https?:|#)([^)#]+)", PAGE)
    missing = {path for path in linked if not (ROOT / "docs" / path).exists()}
    assert missing == set()
    applied = {word for words in commands(PAGE) for word in words if word.startswith("deploy/")}
    assert len(applied) >= 5
    assert [path for path in applied if not (ROOT / path).exists()] == []
    assert all(f"stacks/{path.name}" in PAGE for path in STACKS.glob("*.yaml"))


def test_headings_that_are_linked_are_there() -> None:
    headings = {
        re.sub(r"[^\w -]", "", text).strip().lower().replace(" ", "-") for text in re.findall(r"^#+ (.+)$", PAGE, re.M)
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= headings
    assert "autoscaling" in headings


def test_values_that_are_named_exist() -> None:
    known = set(re.findall(r"^\| `([\w.]+)` \|", README, re.MULTILINE))
    named = set(
        re.findall(
            r"`((?:discovery|gpu|daemonset|statefulset|sidecar|scrape|networkPolicy|rbac|kubelet|dashboards|rules)\.[\w.]+)",
            PAGE,
        )
    )
    assert len(named) > 10
    assert {name for name in named if not any(name == one or name.startswith(f"{one}.") for one in known)} == set()


def test_the_steps_and_what_they_cost_are_said() -> None:
    said = re.search(r"in steps: 1 to 8, ([\d, ]+) and so on", PAGE)
    assert said
    assert (*range(1, 9), *map(int, said[1].split(", "))) == STEPS
    worst = {
        most: max(next(step for step in STEPS if step >= number) - number for number in range(1, most + 1))
        for most in (16, 32, 64)
    }
    assert worst == {16: 1, 32: 3, 64: 7}
    assert "at most 1 up to 16 replicas, 3 up to 32, 7 up to 64" in PAGE
    assert max((next(step for step in STEPS if step >= number) - number) / number for number in range(1, 65)) < 0.25
