"""A client of the Kubernetes API for tests: it makes what controllers and kubelets would make, and takes rights away."""

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import requests

from tests.support.waiting import PATIENCE_SECONDS

Manifest = dict[str, Any]

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
READ_PODS = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "watch"]}]
_RBAC = "rbac.authorization.k8s.io/v1"


class KubeApi:
    """One user's view of a cluster. `close` when done; the address may die and come back meanwhile."""

    def __init__(self, url: str, ca_file: Path, token: str) -> None:
        self.url, self.ca_file, self.token = url, ca_file, token
        self._paths: dict[tuple[str, str], tuple[str, bool]] = {}
        self.http = requests.Session()
        self.http.trust_env = False
        self.http.verify = str(ca_file)

    def close(self) -> None:
        self.http.close()

    def request(self, method: str, path: str, body: Any = None, *, kind: str = "", **query: str) -> requests.Response:
        """Any answer, whatever its status. `kind`: the content type where it is not plain JSON."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind or "application/json"}
        return self.http.request(
            method, self.url + path, json=body, params=query, headers=headers, timeout=PATIENCE_SECONDS
        )

    def call(self, method: str, path: str, body: Any = None, *, kind: str = "", **query: str) -> Any:
        """What a request answers that must succeed."""
        answer = self.request(method, path, body, kind=kind, **query)
        assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json()

    # objects of any kind

    def path_of(self, manifest: Manifest) -> str:
        """Where the object is, as the cluster's own discovery says it."""
        version, kind = manifest["apiVersion"], manifest["kind"]
        if (version, kind) not in self._paths:
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            for resource in self.call("GET", root)["resources"]:
                if "/" not in resource["name"]:
                    self._paths[version, resource["kind"]] = (f"{root}/%s{resource['name']}", resource["namespaced"])
        path, namespaced = self._paths[version, kind]
        metadata = manifest["metadata"]
        place = f"namespaces/{metadata.get('namespace', 'default')}/" if namespaced else ""
        return f"{path % place}/{metadata['name']}"

    def try_apply(self, manifest: Manifest, *, dry_run: bool = False) -> requests.Response:
        """Server-side apply with every field of the manifest checked against the schema; any answer."""
        query = {"fieldManager": "tests", "force": "true", "fieldValidation": "Strict"}
        return self.request(
            "PATCH", self.path_of(manifest), manifest, kind=APPLY, **query, **({"dryRun": "All"} if dry_run else {})
        )

    def apply(self, *manifests: Manifest) -> None:
        """Server-side apply of each in turn; all must be taken."""
        for manifest in manifests:
            answer = self.try_apply(manifest)
            assert answer.ok, f"{manifest['kind']} {manifest['metadata']['name']}: {answer.text}"

    def remove(self, manifest: Manifest) -> None:
        """Deletes the object at once."""
        self.call("DELETE", self.path_of(manifest), {"gracePeriodSeconds": 0, "propagationPolicy": "Background"})

    def create_namespace(self, name: str, **labels: str) -> str:
        """Its name; one that is there gets the labels."""
        self.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        return name

    # pods, as their controllers and kubelets handle them

    def create_pod(self, pod: Manifest, status: Mapping[str, Any] | None = None, *, namespace: str = "") -> Manifest:
        """The pod as stored, in `namespace` where given, with the status that a kubelet would write."""
        made = copy.deepcopy(pod)
        if namespace:
            made["metadata"]["namespace"] = namespace
        made = self.call("POST", self.path_of(made).rpartition("/")[0], made, fieldValidation="Strict")
        return made if status is None else self.set_status(made, status)

    def set_status(self, pod: Manifest, status: Mapping[str, Any]) -> Manifest:
        """Writes the status as its kubelet would; a list in it replaces the list that was there."""
        return self.call("PATCH", f"{_pod_path(pod)}/status", {"status": status}, kind=MERGE)

    def label_pod(self, pod: Manifest, **labels: str | None) -> Manifest:
        """Sets or, with None, takes away labels."""
        return self.call("PATCH", _pod_path(pod), {"metadata": {"labels": labels}}, kind=MERGE)

    def annotate_pod(self, pod: Manifest, annotations: Mapping[str, str | None]) -> Manifest:
        """Sets or, with None, takes away annotations."""
        return self.call("PATCH", _pod_path(pod), {"metadata": {"annotations": dict(annotations)}}, kind=MERGE)

    def terminate_pod(self, pod: Manifest, grace_seconds: int = 30) -> None:
        """Marks it as about to go: it has a deletion time, and its kubelet (there is none) would stop it."""
        self.call("DELETE", _pod_path(pod), {"gracePeriodSeconds": grace_seconds})

    def delete_pod(self, pod: Manifest) -> None:
        """Takes it away at once."""
        self.call("DELETE", _pod_path(pod), {"gracePeriodSeconds": 0})

    def pods(self, namespace: str) -> list[Manifest]:
        return list(self.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"])

    # who may do what

    def create_account(self, namespace: str, name: str) -> str:
        """A token of a new service account, good for an hour."""
        self.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}})
        return self.request_token(namespace, name)

    def create_account_anew(self, namespace: str, name: str) -> str:
        """A token of an account that takes the place of another one: no token of that one is good any more."""
        self.call("DELETE", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}")
        return self.create_account(namespace, name)

    def request_token(self, namespace: str, name: str) -> str:
        """A further token of the account."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        return str(self.call("POST", path, asked)["status"]["token"])

    def grant(
        self, account: tuple[str, str], rules: Iterable[Mapping[str, Any]] = READ_PODS, *, within: str | None = None
    ) -> tuple[Manifest, Manifest]:
        """Gives the account (namespace, name) rules in the namespace `within`, or in all of them; the role and its binding."""
        kind = "ClusterRole" if within is None else "Role"
        metadata = {"name": f"{account[0]}-{account[1]}", **({} if within is None else {"namespace": within})}
        role = {"apiVersion": _RBAC, "kind": kind, "metadata": metadata, "rules": [dict(rule) for rule in rules]}
        binding = {
            "apiVersion": _RBAC,
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": metadata["name"]},
            "subjects": [{"kind": "ServiceAccount", "namespace": account[0], "name": account[1]}],
        }
        self.apply(role, binding)
        return role, binding

    def revoke(self, granted: tuple[Manifest, Manifest]) -> None:
        """Takes back what `grant` gave. The API server may go on by its cache for an instant."""
        for manifest in reversed(granted):
            self.remove(manifest)


def _pod_path(pod: Manifest) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
