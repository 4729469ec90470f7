"""A real Kubernetes API server with its etcd on loopback. There is no kubelet and no controller: tests write what those would."""

import secrets
import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.servers.kube_api import KubeApi
from tests.support.servers.server_process import ServerProcess, program


class KubeCluster:
    """`with KubeCluster(folder, "/path/to/kube-apiserver") as cluster:`; data, keys and logs stay in `folder`.

    Authorization is RBAC. Admission is the server's own default, PodSecurity among it, less ServiceAccount, which would wait for a
    controller to make each namespace's default account.
    """

    def __init__(self, folder: Path, kube_apiserver: str) -> None:
        self._folder, self._program = folder, kube_apiserver
        self._running = ExitStack()
        self.ca_file = folder / "ca.pem"
        self.admin_token = secrets.token_urlsafe(32)

    def __enter__(self) -> Self:
        self._write_keys()
        try:
            self._etcd = self._running.enter_context(_etcd(self._folder))
            self._api = self._running.enter_context(self._api_server())
            self.admin = self.user(self.admin_token)
        except BaseException:
            self._running.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._running.close()

    @property
    def url(self) -> str:
        return self._api.url

    @property
    def log(self) -> str:
        """What the API server has said."""
        return self._api.log

    def user(self, token: str) -> KubeApi:
        """The view of whoever has this token; closed with the cluster."""
        api = KubeApi(self.url, self.ca_file, token)
        self._running.callback(api.close)
        return api

    def kubeconfig(self, token: str) -> Path:
        """A file for kubectl and other clients."""
        path = self._folder / f"kubeconfig-{secrets.token_hex(4)}"
        path.write_text(
            f"""apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "{self.url}", certificate-authority: "{self.ca_file}"}}}}]
users: [{{name: user, user: {{token: "{token}"}}}}]
contexts: [{{name: here, context: {{cluster: here, user: user}}}}]
"""
        )
        return path

    def kill_api_server(self) -> None:
        """Ends the API server at once; etcd keeps what it had."""
        self._api.kill()

    def start_api_server(self) -> None:
        """Brings it up again where it was."""
        port = int(self.url.rpartition(":")[2])
        self._api = self._running.enter_context(self._api_server(port))

    def back_up(self) -> None:
        """Puts aside what there is now. The API server is away for a moment."""
        self.kill_api_server()
        self._etcd.kill()
        shutil.rmtree(self._folder / "backup", ignore_errors=True)
        shutil.copytree(self._folder / "etcd", self._folder / "backup")
        self._start_again()

    def restore(self) -> None:
        """Makes all as it was at `back_up`, versions of objects included, as whoever restores etcd from a snapshot does."""
        self.kill_api_server()
        self._etcd.kill()
        shutil.rmtree(self._folder / "etcd")
        shutil.copytree(self._folder / "backup", self._folder / "etcd")
        self._start_again()

    def _start_again(self) -> None:
        port = int(self._etcd.url.rpartition(":")[2])
        self._etcd = self._running.enter_context(_etcd(self._folder, port))
        self.start_api_server()

    def replace_authority(self) -> None:
        """Gives the API server a certificate of a new authority, which takes the place of the one in `ca_file`."""
        self.kill_api_server()
        self._write_certificates()
        self.start_api_server()

    def forget_versions(self) -> None:
        """Makes every resource version before now too old, as hours do: etcd is compacted, and the watch cache starts empty."""
        # any write will do: what is asked for from now on is newer than what was known
        self.admin.create_namespace("default", forgotten=secrets.token_hex(4))
        revision = self._etcd.http.post(f"{self._etcd.url}/v3/kv/range", json={"key": "AA=="}).json()["header"][
            "revision"
        ]
        answer = self._etcd.http.post(
            f"{self._etcd.url}/v3/kv/compaction", json={"revision": revision, "physical": True}
        )
        assert answer.ok, answer.text
        self.kill_api_server()
        self.start_api_server()

    def _write_keys(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write_certificates()
        accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self._folder / "accounts.key").write_bytes(
            accounts.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        (self._folder / "tokens.csv").write_text(f'{self.admin_token},admin,admin,"system:masters"\n')

    def _write_certificates(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca_file))
        own = authority.issue_cert("127.0.0.1", "localhost", "kubernetes.default.svc")
        own.private_key_pem.write_to_path(str(self._folder / "api.key"))
        (self._folder / "api.pem").write_bytes(b"".join(blob.bytes() for blob in own.cert_chain_pems))

    def _api_server(self, port: int | None = None) -> ServerProcess:
        folder = self._folder
        fixed = (
            self._program,
            f"--etcd-servers={self._etcd.url}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--tls-cert-file={folder / 'api.pem'}",
            f"--tls-private-key-file={folder / 'api.key'}",
            f"--cert-dir={folder}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder / 'accounts.key'}",
            f"--service-account-signing-key-file={folder / 'accounts.key'}",
            "--service-cluster-ip-range=10.96.0.0/16",
            # nothing else reaches it under an address of the cluster's own
            "--endpoint-reconciler-type=none",
            "--disable-admission-plugins=ServiceAccount",
            # as clusters have it; PodSecurity says who may be
            "--allow-privileged=true",
        )
        return ServerProcess(
            lambda port: (*fixed, f"--secure-port={port}"),
            folder / "api.log",
            ready="/readyz",
            port=port,
            authority=self.ca_file,
        )


def _etcd(folder: Path, port: int | None = None) -> ServerProcess:
    def command(port: int) -> tuple[str, ...]:
        # what a test writes need not outlive the machine; the peers' port is not used
        return (
            program("etcd"),
            "--name=test",
            f"--data-dir={folder / 'etcd'}",
            f"--listen-client-urls=http://127.0.0.1:{port}",
            f"--advertise-client-urls=http://127.0.0.1:{port}",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--unsafe-no-fsync=true",
            "--log-level=error",
        )

    return ServerProcess(command, folder / "etcd.log", ready="/health", port=port)
