"""The pods that other tests rely on: every stack is there, and each pod is whole."""

from __future__ import annotations

from functools import cache

from tests.support.builders.pods import FIXTURES, STACKS, Pod, fixture_pods
from tests.support.rows import check_rows


@cache
def read_all() -> list[tuple[str, Pod]]:
    return [(stack, pod) for stack in STACKS for pod in fixture_pods(stack)]


def test_each_stack_has_its_pods() -> None:
    assert set(STACKS) == {
        "dynamo", "kaito", "kserve", "kubeai", "leaderworkerset", "llm-d", "ome", "production-stack", "ray", "sglang",
    }  # fmt: skip


@check_rows("stack", STACKS)
def test_each_file_names_its_source(stack: str) -> None:
    above = (FIXTURES / f"{stack}.yaml").read_text().partition("apiVersion")[0]
    assert "/" in above
    assert " at " in above or "(" in above


@check_rows(
    ("stack", "pod"), read_all, ids=lambda value: value if isinstance(value, str) else value["metadata"]["name"]
)
def test_each_pod_is_whole(stack: str, pod: Pod) -> None:
    metadata = pod["metadata"]
    (owner,) = metadata["ownerReferences"]
    assert owner["controller"] is True
    assert metadata["name"].startswith(metadata["generateName"])
    assert pod["spec"]["containers"]
    assert "status" not in pod
    ports = [port for one in pod["spec"]["containers"] for port in one.get("ports", ())]
    names = [port["name"] for port in ports if "name" in port]
    assert all(len(name) <= 15 for name in names), "the API server takes no longer name of a port"
    assert len(set(names)) == len(names)


def test_owners_are_the_same_for_pods_of_one_workload_only() -> None:
    owners = {}
    for _stack, pod in read_all():
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owners.setdefault(owner["uid"], owner["name"]) == owner["name"]
