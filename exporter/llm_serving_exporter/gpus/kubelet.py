"""The kubelet of this node, asked over its Unix socket which container has which devices (PodResources v1).

The socket is root's, in a folder that only root may enter: this is the DaemonSet's way (docs/kubernetes-gpus.md).
"""

from __future__ import annotations

import errno
import logging
import os
import stat
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.gpus.ownership import NodeGrants, keep_parts
from llm_serving_exporter.gpus.source import KubeletReader
from llm_serving_exporter.model.gpu import ContainerGrants, DeviceGrant, GpuIdentity, KubeletReadings, Worker
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import Attempt, FailureReason, Stage
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.settings.config import GpuConfig
from llm_serving_exporter.settings.kinds import AUTO_WORD, OFF_WORD

if TYPE_CHECKING:
    import grpc

log = logging.getLogger("llm_serving_exporter.kubelet")

# of a kubelet whose root folder is the usual one; others (k0s, microk8s, rke2 with a data folder of its own) are configured
DEFAULT_SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
DEADLINE_SECONDS = 3.0
# kubelet's clients of this API take at most this much; 500 pods with 16 devices each are 1 MB
ANSWER_BYTES_MAX = 16 << 20
# sockaddr_un of the kernel: 108 bytes with the one that ends the path
PATH_BYTES_MAX = 107
# what there is on a node changes when a device plugin starts again
ALLOCATABLE_EVERY_SECONDS = 60.0


def open_kubelet(config: GpuConfig) -> KubeletReader | None:
    """The kubelet as configured; None where GPUs are switched off or it is not to be asked."""
    if not config.enabled or config.pod_resources_socket == OFF_WORD:
        return None
    if config.pod_resources_socket == AUTO_WORD:
        return KubeletSource(DEFAULT_SOCKET, expected=False)
    return KubeletSource(config.pod_resources_socket)


class KubeletSource:
    """Asks one kubelet, from one thread at a time. Nothing is imported or opened before there is a socket.

    `expected` False: a socket that does not exist means that there is no kubelet, and is no failure.
    """

    def __init__(
        self,
        socket: str,
        *,
        expected: bool = True,
        deadline_seconds: float = DEADLINE_SECONDS,
        monotonic: Callable[[], float] = elapsed_seconds,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._socket, self._expected, self._deadline_seconds = socket, expected, deadline_seconds
        self._monotonic, self._wall = monotonic, wall
        self._channel: grpc.Channel | None = None
        # of the socket that the channel is connected to: a kubelet that starts again makes a new one
        self._inode: tuple[int, int] | None = None
        # what there is on the node, and when it is asked again
        self._allocatable: tuple[DeviceGrant, ...] | None = None
        self._allocatable_due_seconds = float("-inf")
        self._said: FailureReason | str | None = ""

    def read(self) -> KubeletReadings | None:
        """One question and its answer, within the deadline."""
        started = self._monotonic()
        try:
            found = self._find_socket()
            if found is None:
                self.close()
                if not self._expected:
                    return None
                readings = self._fail(started, FailureReason.NO_SOCKET, f"{self._socket} is not there")
            else:
                readings = self._ask(found, started)
        except OSError as error:
            denied = isinstance(error, PermissionError)
            reason = FailureReason.NO_PERMISSION if denied else FailureReason.KUBELET
            readings = self._fail(started, reason, f"{self._socket}: {error.strerror or error}")
        except ImportError as error:
            detail = f"{error}: install llm-serving-exporter[kubernetes]"
            readings = self._fail(started, FailureReason.NO_CLIENT, detail)
        except Exception as error:
            log.exception("asking the kubelet failed; this is a bug, please report it")
            detail = f"internal error ({type(error).__name__}); the log has the traceback"
            readings = self._fail(started, FailureReason.INTERNAL, detail)
        self._log_change(readings.attempt)
        return readings

    def close(self) -> None:
        """Ends the connection; may be called twice."""
        channel, self._channel, self._inode = self._channel, None, None
        if channel is not None:
            channel.close()

    def _find_socket(self) -> tuple[int, int] | None:
        """What the socket is known by; None where there is none. Raises OSError where that cannot be seen."""
        try:
            found = os.stat(self._socket)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISSOCK(found.st_mode):
            raise OSError(0, "this is no socket")
        if len(os.fsencode(Path(self._socket).absolute())) > PATH_BYTES_MAX:
            what = f"the path of a socket has at most {PATH_BYTES_MAX} bytes: mount its folder at a shorter one"
            raise OSError(0, what)
        if not os.access(self._socket, os.W_OK):
            raise PermissionError(0, "the exporter's user may not connect to it: run it with UID 0")
        return found.st_dev, found.st_ino

    def _ask(self, inode: tuple[int, int], started: float) -> KubeletReadings:
        # its library writes lines of its own to the standard error where a kubelet ends
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        import grpc
        from google.protobuf.message import DecodeError

        from llm_serving_exporter.gpus import pod_resources

        if inode != self._inode or self._channel is None:
            self.close()
            self._channel = _connect(grpc, self._socket)
            self._inode = inode
            self._allocatable_due_seconds = float("-inf")
        try:
            body = self._call(pod_resources.LIST)
            containers = pod_resources.read_containers(body)
            if started >= self._allocatable_due_seconds:
                self._allocatable = self._ask_allocatable(grpc)
                self._allocatable_due_seconds = started + ALLOCATABLE_EVERY_SECONDS
        except grpc.RpcError as error:
            # the next question begins with a connection of its own
            self.close()
            return self._fail(started, *_explain(grpc, error))
        except DecodeError as error:
            return self._fail(started, FailureReason.PROTOCOL, f"the answer is no list of pods: {error}")
        now = self._monotonic()
        attempt = Attempt(Stage.GPU, None, "", self._wall(), now - started, page_bytes=len(body))
        return KubeletReadings(attempt, now, containers, self._allocatable)

    def _ask_allocatable(self, grpc: Any) -> tuple[DeviceGrant, ...] | None:
        from llm_serving_exporter.gpus import pod_resources

        try:
            return pod_resources.read_allocatable(self._call(pod_resources.ALLOCATABLE))
        except grpc.RpcError as error:
            # switched off by a feature gate before Kubernetes 1.28: the list alone says who has what
            if error.code() in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN):
                return None
            raise

    def _call(self, method: str) -> bytes:
        assert self._channel is not None
        answer = self._channel.unary_unary(method)(b"", timeout=self._deadline_seconds)
        assert isinstance(answer, bytes)
        return answer

    def _fail(self, started: float, reason: FailureReason, detail: str) -> KubeletReadings:
        now = self._monotonic()
        return KubeletReadings(Attempt(Stage.GPU, reason, detail, self._wall(), now - started), now)

    def _log_change(self, attempt: Attempt) -> None:
        said, self._said = self._said, attempt.reason
        if said == attempt.reason:
            return
        if attempt.reason is None:
            log.info("kubelet %s: it says which pod has which devices", self._socket)
        else:
            log.warning("kubelet %s: reason=%s: %s", self._socket, attempt.reason.value, attempt.detail)


def _connect(grpc: Any, socket: str) -> Any:
    options = (
        ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
        # a proxy of the environment has nothing to do with a socket of this machine
        ("grpc.enable_http_proxy", 0),
        # else a new channel is given the connection that an older one had to the same path: to the kubelet of before
        ("grpc.use_local_subchannel_pool", 1),
        # the name that goes out as :authority: a path would be refused by servers that check it
        ("grpc.default_authority", "localhost"),
    )
    return grpc.insecure_channel(f"unix:{Path(socket).absolute()}", options=options)


def _explain(grpc: Any, error: Any) -> tuple[FailureReason, str]:
    code, detail = error.code(), str(error.details())[:300]
    too_large = code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in detail
    # as SELinux does it: the rights of the file allow what is refused
    denied = code is grpc.StatusCode.UNAVAILABLE and os.strerror(errno.EACCES) in detail
    reasons = {
        grpc.StatusCode.UNAVAILABLE: FailureReason.REFUSED,
        grpc.StatusCode.DEADLINE_EXCEEDED: FailureReason.TIMEOUT,
        grpc.StatusCode.UNIMPLEMENTED: FailureReason.UNIMPLEMENTED,
        grpc.StatusCode.PERMISSION_DENIED: FailureReason.NO_PERMISSION,
    }
    if denied or too_large:
        reason = FailureReason.NO_PERMISSION if denied else FailureReason.TOO_LARGE
    else:
        reason = reasons.get(code, FailureReason.KUBELET)
    return reason, f"{code.value[1]}: {detail}"


# --- What the kubelet said so far -> which container has which devices now, through its restarts.
#
# A kubelet that has just started lists no pod at all, then those of its own files, and only then those of the API server
# (k8s.io/kubernetes v1.34.4, podmanager and config.PodConfig); a device plugin that has not registered again leaves its devices out.


# a kubelet starts again within a minute: what it said before holds that long, and a while
KUBELET_KEPT_SECONDS = 600.0
NO_KUBELET = (
    "no kubelet says which GPUs its pod has: set gpus, run the exporter as a DaemonSet with the kubelet's pod-resources folder, "
    "or let it read the engine's environment (docs/kubernetes-gpus.md)"
)


class _Kept(Struct, frozen=True):
    """Devices that a container had when the kubelet last said so. It has them as long as its pod is."""

    pod_uid: str  # of the pod that had them; another pod may get its name
    container: ContainerGrants  # with its devices then
    said_seconds: float  # monotonic


class KubeletMemory:
    """The answers of one kubelet. Not to be used by several threads at once."""

    def __init__(self) -> None:
        # what it last said, and its last answer that was good
        self._last: KubeletReadings | None = None
        self._good: KubeletReadings | None = None
        # the good answer that `_kept` and `_parts` are of
        self._known: KubeletReadings | None = None
        # by namespace, pod and container
        self._kept: Mapping[tuple[str, str, str], _Kept] = {}
        # how many parts each GPU has that is shared by time
        self._parts: Mapping[str, int] = {}

    def note_answer(self, readings: KubeletReadings | None) -> None:
        """One more answer; None: there is no kubelet to ask."""
        self._last = readings
        if readings is None or readings.attempt.ok:
            self._good = readings

    def find_grants(
        self,
        targets: Iterable[Target],
        workers: Iterable[Worker],
        gpus: Collection[GpuIdentity],
        finished: Collection[tuple[str, str]],
        slices: Mapping[tuple[str, str], str],
        now: float,
    ) -> NodeGrants | None:
        """Which devices the pods of `targets` and `workers` have; None where the kubelet has said nothing for too long.

        `gpus`: those that NVML shows; `finished`: pods that have ended; `slices`: as in `NodeGrants`; `now`: monotonic seconds.
        """
        good = self._good
        if good is None or now - good.monotonic_seconds > KUBELET_KEPT_SECONDS:
            return None
        uids = {(one.identity.namespace, one.identity.pod): one.identity.pod_uid for one in targets}
        uids |= {(one.namespace, one.pod): one.pod_uid for one in workers}
        filled = replace(good, containers=_fill_gaps(good, self._kept, uids))
        if good is not self._known:
            self._kept = _keep_devices(good, self._kept, uids)
            self._parts = keep_parts(self._parts, filled)
            self._known = good
        return NodeGrants(filled, gpus, finished, slices, self._parts)

    def explain_silence(self) -> str:
        """Why the kubelet does not say who has which devices."""
        if self._last is None or self._last.attempt.ok:
            return NO_KUBELET
        return f"the kubelet does not say which GPUs its pod has: {self._last.attempt.detail}"


def _keep_devices(
    answer: KubeletReadings, before: Mapping[tuple[str, str, str], _Kept], uids: Mapping[tuple[str, str], str]
) -> dict[tuple[str, str, str], _Kept]:
    """What is remembered after an answer: of the pods in `uids` (namespace and name -> uid), and no longer than KUBELET_KEPT_SECONDS."""
    now = answer.monotonic_seconds
    kept = {
        key: one
        for key, one in before.items()
        if uids.get(key[:2]) == one.pod_uid and now - one.said_seconds <= KUBELET_KEPT_SECONDS
    }
    for one in answer.containers:
        uid = uids.get((one.namespace, one.pod), "")
        if uid and one.grants:
            kept[one.namespace, one.pod, one.container] = _Kept(uid, one, now)
    return kept


def _fill_gaps(
    answer: KubeletReadings, kept: Mapping[tuple[str, str, str], _Kept], uids: Mapping[tuple[str, str], str]
) -> tuple[ContainerGrants, ...]:
    """The containers of an answer. Those that it lists without the devices that they had, or not at all, have them still.

    Not where a device is another pod's by now, nor where the pod is another one, or said so too long ago.
    """
    if not kept:
        return answer.containers
    has_devices = {(one.namespace, one.pod, one.container) for one in answer.containers if one.grants}
    owners = {grant: (one.namespace, one.pod) for one in answer.containers for grant in one.grants}
    missed = {
        key: one.container
        for key, one in kept.items()
        if key not in has_devices
        and uids.get(key[:2]) == one.pod_uid
        and answer.monotonic_seconds - one.said_seconds <= KUBELET_KEPT_SECONDS
        and all(owners.get(grant, key[:2]) == key[:2] for grant in one.container.grants)
    }
    if not missed:
        return answer.containers
    others = (one for one in answer.containers if (one.namespace, one.pod, one.container) not in missed)
    return (*others, *missed.values())
