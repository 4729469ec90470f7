"""What other tests rely on: recorded conversations and the server that replays them, and the pods of every stack."""

from __future__ import annotations

import json
from functools import cache

import requests

from tests.support.builders.pods import FIXTURES, STACKS, Pod, fixture_pods
from tests.support.rows import check_rows
from tests.support.servers.kube_replay import KubeReplay, conversation
from tests.support.waiting import PATIENCE_SECONDS


def ask(server: KubeReplay, **query: str) -> requests.Response:
    return requests.get(f"{server.url}/api/v1/pods", params=query, timeout=PATIENCE_SECONDS, stream="watch" in query)


def test_a_client_that_forgets_where_it_was_is_noticed() -> None:
    """That one which carries on is told everything, the mirror's own tests show."""
    with KubeReplay("changes") as server:
        page = ask(server).json()
        while page["metadata"].get("continue"):
            page = ask(server, **{"continue": page["metadata"]["continue"]}).json()
        assert ask(server, watch="true", resourceVersion="1").status_code == 500
        assert [asked.query["resourceVersion"] for asked in server.strays] == ["1"]


def test_after_the_last_recorded_watch_one_stays_open() -> None:
    with KubeReplay("changes") as server:
        page = ask(server).json()
        while page["metadata"].get("continue"):
            page = ask(server, **{"continue": page["metadata"]["continue"]}).json()
        version = page["metadata"]["resourceVersion"]
        while server.left:
            *_, bookmark = ask(server, watch="true", resourceVersion=version).iter_lines()
            version = json.loads(bookmark)["object"]["metadata"]["resourceVersion"]
        still_open = ask(server, watch="true", resourceVersion=version)
        assert (still_open.status_code, server.strays) == (200, [])
    # the server's end ends it
    assert still_open.content == b""


def test_a_right_that_is_taken_back_ends_no_watch_and_refuses_the_next() -> None:
    exchanges = conversation("revoked")
    assert [exchange["status"] for exchange in exchanges][-3:] == [200, 403, 403]
    assert "events" in exchanges[-3]


# --- the pods that other tests rely on: every stack is there, and each pod is whole ---


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
