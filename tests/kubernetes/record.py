"""Records what a real API server says to a client that lists and watches pods.

    KUBE_APISERVER=/path/to/kube-apiserver .venv/bin/python -m tests.kubernetes.record

writes tests/unit/discovery/conversations/*.json: one conversation a file, each exchange with what was asked and what was answered, a watch
as its events in their order. What is left out of the answers: `managedFields`, who wrote which field when, which is longer than the pods.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.builders.pods import crash_loop_status, fixture_pod, fixture_pods, pending_status, running_status
from tests.support.paths import TESTS
from tests.support.servers.kube_api import KubeApi, Manifest
from tests.support.servers.kube_cluster import KubeCluster
from tests.support.waiting import PATIENCE_SECONDS, wait_until

CONVERSATIONS = TESTS / "unit" / "discovery" / "conversations"
_PODS = "/api/v1/pods"
# of pods, so that a list of the fixtures takes several answers
_PAGE = "4"
_STACKS = ("production-stack", "sglang", "llm-d", "kserve", "ray", "leaderworkerset")


class Recorder:
    """One conversation: what is asked through it is kept."""

    def __init__(self, api: KubeApi, version: str) -> None:
        self._api, self._version = api, version
        self.exchanges: list[dict[str, Any]] = []

    def ask(self, **query: str) -> Any:
        """One request that is answered at once; the answer's body."""
        answer = self._api.request("GET", _PODS, **query)
        self.exchanges.append({"query": query, "status": answer.status_code, "body": _without_noise(answer.json())})
        return answer.json()

    def list_all(self) -> str:
        """Every page of the pods; the version to watch from."""
        page = self.ask(limit=_PAGE)
        while page["metadata"].get("continue"):
            page = self.ask(limit=_PAGE, **{"continue": page["metadata"]["continue"]})
        return str(page["metadata"]["resourceVersion"])

    def watch(self, version: str, happens: Callable[[], None] | None = None, seconds: int = 8) -> str:
        """A watch until the server ends it; the last version that it told."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        events: list[dict[str, Any]] = []
        headers = {"Authorization": f"Bearer {self._api.token}"}
        with self._api.http.get(
            self._api.url + _PODS, params=query, headers=headers, stream=True, timeout=PATIENCE_SECONDS
        ) as answer:
            if happens is not None:
                happens()
            for line in answer.iter_lines():
                events.append(_without_noise(json.loads(line)))
        self.exchanges.append({"query": query, "status": answer.status_code, "events": events})
        return str(events[-1]["object"].get("metadata", {}).get("resourceVersion", "")) if events else version

    def write(self, name: str) -> None:
        text = ",\n".join(json.dumps(exchange, separators=(",", ":")) for exchange in self.exchanges)
        (CONVERSATIONS / f"{name}.json").write_text(f'{{"server":"{self._version}","exchanges":[\n{text}\n]}}\n')


def _without_noise(found: Any) -> Any:
    if isinstance(found, dict):
        return {key: _without_noise(value) for key, value in found.items() if key != "managedFields"}
    return [_without_noise(value) for value in found] if isinstance(found, list) else found


def record_changes(admin: KubeApi, recorder: Recorder) -> None:
    """A list in pages; a watch in which a pod appears, gets its address, is ready and crashes, and another goes; one more from its end."""
    version = recorder.list_all()
    gone = next(pod for pod in admin.pods("sglang"))
    pod = fixture_pod("production-stack", "router")
    pod["metadata"]["name"] = "vllm-deployment-router-5d6c9f8b74-added"

    def happens() -> None:
        added = admin.create_pod(pod)
        admin.set_status(added, pending_status())
        admin.set_status(added, running_status(added, "10.0.1.1", ready=False))
        admin.set_status(added, running_status(added, "10.0.1.1"))
        admin.terminate_pod(gone)
        admin.delete_pod(gone)
        admin.set_status(added, crash_loop_status(added, "10.0.1.1"))

    bookmark = recorder.watch(version, happens)
    assert recorder.exchanges[-1]["events"][-1]["type"] == "BOOKMARK", (
        "the server gave no bookmark before its watch ended"
    )

    def goes_on() -> None:
        admin.set_status(
            {"metadata": {"namespace": "llm", "name": pod["metadata"]["name"]}},
            running_status(pod, "10.0.1.1", restarts=8),
        )

    recorder.watch(bookmark, goes_on, seconds=4)
    recorder.write("changes")


def record_too_old(cluster: KubeCluster, recorder: Recorder) -> None:
    """A watch from a version that the server no longer has: an ERROR event; the client lists again."""
    version = recorder.list_all()
    cluster.forget_versions()
    recorder.watch(version)
    assert recorder.exchanges[-1]["events"][0]["object"]["code"] == 410
    recorder.watch(recorder.list_all(), seconds=1)
    recorder.write("too_old")


def record_list_expired(cluster: KubeCluster, recorder: Recorder) -> None:
    """A list that becomes too old between two pages; the client lists again."""
    page = recorder.ask(limit=_PAGE)
    cluster.forget_versions()
    recorder.ask(limit=_PAGE, **{"continue": page["metadata"]["continue"]})
    assert recorder.exchanges[-1]["status"] == 410
    recorder.watch(recorder.list_all(), seconds=1)
    recorder.write("list_expired")


def record_refusal(name: str, recorder: Recorder) -> None:
    """A list that is refused."""
    recorder.ask(limit=_PAGE)
    recorder.write(name)


def record_revoked(
    cluster: KubeCluster, reader: KubeApi, recorder: Recorder, granted: tuple[Manifest, Manifest]
) -> None:
    """A right that is taken back while a watch is open: the watch lasts as long as it may, what is asked next is refused."""
    version = recorder.watch(recorder.list_all(), lambda: cluster.admin.revoke(granted), seconds=4)
    wait_until(lambda: not reader.request("GET", _PODS).ok, "the right to be gone")
    recorder.ask(watch="true", allowWatchBookmarks="true", resourceVersion=version, timeoutSeconds="4")
    recorder.ask(limit=_PAGE)
    recorder.write("revoked")


def main() -> None:
    program = os.environ.get("KUBE_APISERVER") or sys.exit("KUBE_APISERVER names no kube-apiserver program")
    CONVERSATIONS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, KubeCluster(Path(folder), program) as cluster:
        admin = cluster.admin
        version = str(admin.call("GET", "/version")["gitVersion"])
        reader = cluster.user(admin.create_account("default", "exporter"))
        granted = admin.grant(("default", "exporter"))
        wait_until(lambda: reader.request("GET", _PODS).ok, "the right to take effect")
        pods = [pod for stack in _STACKS for pod in fixture_pods(stack)]
        for namespace in sorted({pod["metadata"]["namespace"] for pod in pods}):
            admin.create_namespace(namespace)
        stored = [admin.create_pod(pod, running_status(pod, f"10.0.0.{number}")) for number, pod in enumerate(pods, 1)]
        record_changes(admin, Recorder(reader, version))
        # five are enough for two pages
        for pod in stored[6:]:
            admin.delete_pod(pod)
        record_too_old(cluster, Recorder(reader, version))
        record_list_expired(cluster, Recorder(reader, version))
        record_refusal("forbidden", Recorder(cluster.user(admin.create_account("default", "stranger")), version))
        record_refusal("unauthorized", Recorder(cluster.user("no-such-token"), version))
        record_revoked(cluster, reader, Recorder(reader, version), granted)


if __name__ == "__main__":
    main()
