"""What other tests rely on: recorded conversations and the server that replays them, and the pods of every stack."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
import requests

from tests.support.builders.pods import FIXTURES, STACKS, Pod, fixture_pods
from tests.support.rows import check_rows
from tests.support.servers.kube_replay import KubeReplay, conversation
from tests.support.waiting import PATIENCE_SECONDS


def ask(server: KubeReplay, **query: str) -> requests.Response:
    return requests.get(f"{server.url}/api/v1/pods", params=query, timeout=PATIENCE_SECONDS)


def list_all(server: KubeReplay) -> tuple[list[dict[str, Any]], str]:
    """The pods of every page, and the version to watch from."""
    page = ask(server).json()
    pods = page["items"]
    while page["metadata"].get("continue"):
        page = ask(server, **{"continue": page["metadata"]["continue"]}).json()
        pods += page["items"]
    return pods, page["metadata"]["resourceVersion"]


def watch(server: KubeReplay, version: str) -> list[dict[str, Any]]:
    lines = ask(server, watch="true", resourceVersion=version).iter_lines()
    return [json.loads(line) for line in lines]


def told(events: list[dict[str, Any]]) -> list[str]:
    """The kinds of its events; how many bookmarks come at the end of a watch is up to the server, one at least."""
    kinds = [event["type"] for event in events]
    assert kinds[-1] == "BOOKMARK"
    return [kind for kind in kinds if kind != "BOOKMARK"]


def test_a_client_that_carries_on_sees_all_changes() -> None:
    with KubeReplay("changes") as server:
        pods, version = list_all(server)
        events = watch(server, version)
        later = watch(server, events[-1]["object"]["metadata"]["resourceVersion"])
        assert (server.left, server.strays) == (0, [])
    assert len(pods) == 14
    assert told(events) == ["ADDED", *["MODIFIED"] * 5, "DELETED", "MODIFIED"]
    assert told(later) == ["MODIFIED"]


def test_a_client_that_forgets_where_it_was_is_noticed() -> None:
    with KubeReplay("changes") as server:
        list_all(server)
        assert ask(server, watch="true", resourceVersion="1").status_code == 500
        assert [asked.query["resourceVersion"] for asked in server.strays] == ["1"]


def test_a_version_that_is_too_old_is_an_event_of_a_watch_and_the_status_of_a_list() -> None:
    with KubeReplay("too_old") as server:
        (error,) = watch(server, list_all(server)[1])
        assert (error["type"], error["object"]["code"]) == ("ERROR", 410)
        assert list_all(server)[0]
    with KubeReplay("list_expired") as server:
        page = ask(server).json()
        assert ask(server, **{"continue": page["metadata"]["continue"]}).status_code == 410
        assert list_all(server)[0]


@pytest.mark.parametrize(("name", "status"), [("forbidden", 403), ("unauthorized", 401)])
def test_refusals_say_who_may_not_do_what(name: str, status: int) -> None:
    with KubeReplay(name) as server:
        answer = ask(server)
    assert answer.status_code == status
    assert answer.json()["kind"] == "Status"
    assert answer.json()["message"]


def test_a_right_that_is_taken_back_ends_no_watch_and_refuses_the_next() -> None:
    exchanges = conversation("revoked")
    assert [exchange["status"] for exchange in exchanges][-3:] == [200, 403, 403]
    assert "events" in exchanges[-3]


def test_after_the_last_recorded_watch_one_stays_open() -> None:
    with KubeReplay("changes") as server:
        _pods, version = list_all(server)
        bookmark = watch(server, version)[-1]["object"]["metadata"]["resourceVersion"]
        last = watch(server, bookmark)[-1]["object"]["metadata"]["resourceVersion"]
        still_open = requests.get(
            f"{server.url}/api/v1/pods",
            params={"watch": "true", "resourceVersion": last},
            stream=True,
            timeout=PATIENCE_SECONDS,
        )
        assert still_open.status_code == 200
        assert server.strays == []
    # the server's end ends it
    assert still_open.content == b""


def test_events_come_one_by_one_where_a_test_wants_that() -> None:
    with KubeReplay("changes", by_event=True) as server:
        _pods, version = list_all(server)
        answer = requests.get(
            f"{server.url}/api/v1/pods",
            params={"watch": "1", "resourceVersion": version},
            stream=True,
            timeout=PATIENCE_SECONDS,
        )
        lines = answer.iter_lines()
        server.send_event()
        assert json.loads(next(lines))["type"] == "ADDED"
        server.send_event()
        assert json.loads(next(lines))["type"] == "MODIFIED"
        answer.close()


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
