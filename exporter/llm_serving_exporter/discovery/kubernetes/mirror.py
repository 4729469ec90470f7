"""A copy of a list that an API server holds, kept by list and watch (https://kubernetes.io/docs/reference/using-api/api-concepts/).

The list is read page by page; from its version on a watch tells what changes, and bookmarks how far it is. A watch that ends is taken up
where it was; where the server does not know that version any more (410), the list is read again. Whatever goes wrong, what is known stays.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

import msgspec

from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.discovery.kubernetes.api import Api, ApiError, Listing, SilentError, describe_error
from llm_serving_exporter.errors import Problem
from llm_serving_exporter.model.record import Struct

log = logging.getLogger("llm_serving_exporter.discovery")

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

PAGE_ITEMS = 100
# what one exporter keeps of a list; far more than it can read
MOST_RECORDS = 20_000
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
# how long one watch is asked to last: not all exporters of a cluster begin theirs again at a time
SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS = 240, 300
QUIET_WATCH_SECONDS = 5.0
# a server, or what stands before it, may end every watch early: nothing is lost by that, and a new pod is not to wait for long
LONGEST_QUIET_PAUSE_SECONDS = 4.0
# a list may be too old before its last page is read: fewer and larger pages take less time
LARGEST_PAGE_ITEMS = 2_500
# what no list has, whatever it tells of a page after it
MOST_PAGES = 5_000
# how often in a row a list may be too old at once before that is a problem
MOST_QUIET_LISTS = 2
BAD_REQUEST, GONE = 400, 410
# refusals that say nothing of the version that was asked for
_ABOUT_US = frozenset({401, 403, 429})


class Copy(Struct, Generic[K, V], frozen=True):
    """A copy at an instant."""

    records: Mapping[K, V] | None  # None: the list has not been read once
    problems: tuple[Problem, ...]  # why it may be out of date, or lack something
    clock_offset_seconds: float | None = None  # of the server's clock to the monotonic one here; None: not known


class _Meta(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815  # as the API spells it
    continue_: str = msgspec.field(name="continue", default="")


class _Page(msgspec.Struct):
    metadata: _Meta
    items: list[msgspec.Raw] | None = None


class _Versioned(msgspec.Struct):
    metadata: _Meta


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Status(msgspec.Struct):
    code: int = 0
    message: str = ""


_PAGE, _VERSIONED = msgspec.json.Decoder(_Page), msgspec.json.Decoder(_Versioned)
_EVENT, _STATUS = msgspec.json.Decoder(_Event), msgspec.json.Decoder(_Status)


# makes a connection to the API server; raises ApiError
Connect = Callable[[], Api]


class Mirror(Generic[K, V]):
    """Copies a list in a thread of its own, from `start` to `stop`.

    `reduce` makes a key and a record of an object; None for one that is not to be kept. It raises msgspec.MsgspecError for what it cannot
    make out. `pause` waits that many seconds, and says whether it was stopped meanwhile.
    """

    def __init__(
        self,
        listing: Listing,
        connect: Connect,
        reduce: Callable[[msgspec.Raw], tuple[K, V | None]],
        pause: Callable[[float], bool] | None = None,
    ) -> None:
        self.listing = listing
        self._connect, self._reduce = connect, reduce
        self._stopping = threading.Event()
        self._pause = pause or self._stopping.wait
        self._lock = threading.Lock()
        self._records: dict[K, V] = {}
        self._is_listed = False
        # counts changes of records and problems
        self._revision = 0
        # why the server could not be asked last; what could not be made out since the list was read
        self._failure: Problem | None = None
        self._oddity: Problem | None = None
        # version of what is known; None: the list has to be read
        self._version: str | None = None
        # whether the server may have gone back to an older state meanwhile
        self._is_doubtful = False
        # how many items a page is asked to have
        self._page_items = PAGE_ITEMS
        self._clock_offset_seconds: float | None = None
        # whether the last exchange began with a list
        self._listed_last = False
        self._api: Api | None = None
        self._thread = threading.Thread(target=self._run, name=f"kubernetes {listing.what}", daemon=True)

    # --- for whoever asks -----------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begins to copy; returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the copying; waits for nothing. May be called twice, and before `start`."""
        self._stopping.set()
        api = self._api
        if api is not None:
            # one that is connecting just now ends by itself afterwards
            api.interrupt()

    @property
    def revision(self) -> int:
        """Another number when something has changed."""
        return self._revision

    def copy(self) -> Copy[K, V]:
        """What is known now."""
        with self._lock:
            problems = tuple(problem for problem in (self._failure, self._oddity) if problem is not None)
            return Copy(dict(self._records) if self._is_listed else None, problems, self._clock_offset_seconds)

    # --- the thread -----------------------------------------------------------------------------------------------

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            pause, longest = 0.0, LONGEST_PAUSE_SECONDS
            try:
                failures = 0 if self._follow() else failures + 1
                longest = LONGEST_QUIET_PAUSE_SECONDS
            except SilentError as error:
                log.debug("%s: %s", self.listing.name, error)
                failures, self._is_doubtful = 1, True
            except ApiError as error:
                if self._stopping.is_set():
                    break
                self._is_doubtful |= error.code not in _ABOUT_US
                if error.code == GONE:
                    log.info("%s: the list is read again: %s", self.listing.name, error)
                    self._version = None
                else:
                    self._note_failure(error)
                # after an outage its version is often too old: the server is there again, so that the list need not wait as long as the
                # outage has taught. A server that forgets what it has just listed has to be left alone
                is_new = error.code == GONE and not self._listed_last
                failures, pause = (0 if is_new else failures + 1), error.wait_seconds
                if error.code == GONE and failures > MOST_QUIET_LISTS:
                    self._note_failure(error)
                self._disconnect()
            except Exception as error:
                log.exception("%s: this is a bug, please report it", self.listing.name)
                self._note_failure(ApiError(f"internal error ({type(error).__name__})"))
                self._version = None
                failures += 1
                self._disconnect()
            longest = min(longest, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 16))
            if self._pause(max(pause, longest * random.uniform(0.5, 1.0)) if failures else random.uniform(0.0, 0.2)):
                break
        self._disconnect()

    def _disconnect(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            api.close()

    def _follow(self) -> bool:
        """Lists where that is needed, and watches until the server ends the watch; whether anything came of it. Raises ApiError."""
        if self._api is None:
            self._api = self._connect()
        if self._is_doubtful and self._version is not None:
            self._check_version(self._api)
        listed = self._listed_last = self._version is None
        if listed:
            self._read_list(self._api)
        began = elapsed_seconds()
        try:
            events = self._watch(self._api)
        except ApiError as error:
            if error.code == BAD_REQUEST:
                # a version of another kind of server
                self._version = None
            raise
        # a quiet list is no failure; a server that ends each watch at once is not asked for the next one at once
        return listed or events > 0 or elapsed_seconds() - began >= QUIET_WATCH_SECONDS

    def _check_version(self, api: Api) -> None:
        """Forgets the version where the server is not that far: it was restored from a backup, or another one has its address.

        A watch from a version that is still to come is taken, and silent until it comes, for days. Raises ApiError.
        """
        # of all objects, not of those that are selected: the server need not look for one
        now = self._decode(_PAGE, api.get_page(self.listing.path, {"limit": "1"})).metadata.resourceVersion
        self._is_doubtful = False
        if self._version is not None and _is_before(now, self._version):
            what = f"the server is at version {now}, before {self._version}: the list is read again"
            log.info("%s: %s", self.listing.name, what)
            self._version = None

    def _read_list(self, api: Api) -> None:
        """Reads the list. One that is too old before its last page has larger pages from then on. Raises ApiError."""
        try:
            self._read_pages(api)
        except ApiError as error:
            if error.code == GONE:
                self._page_items = min(LARGEST_PAGE_ITEMS, self._page_items * 5)
            raise
        self._is_doubtful = False

    def _read_pages(self, api: Api) -> None:
        records: dict[K, V] = {}
        parameters = {**self.listing.parameters, "limit": str(self._page_items)}
        oddity: Problem | None = None
        left_out = 0
        for _ in range(MOST_PAGES):
            page = self._decode(_PAGE, api.get_page(self.listing.path, parameters))
            self._note_clock(api)
            for item in page.items or ():
                try:
                    key, record = self._reduce(item)
                except msgspec.MsgspecError as error:
                    oddity = self.listing.explain_oddity(error)
                    continue
                if record is not None and len(records) >= MOST_RECORDS:
                    left_out += 1
                elif record is not None:
                    records[key] = record
            if self._stopping.is_set():
                raise ApiError("stopped")
            if not page.metadata.continue_:
                break
            if page.metadata.continue_ == parameters.get("continue"):
                raise ApiError("the list has no end: after a page the same one comes again")
            parameters["continue"] = page.metadata.continue_
        else:
            raise ApiError(f"the list has more than {MOST_PAGES} pages")
        if left_out:
            oddity = self.listing.explain_excess(left_out, MOST_RECORDS)
        with self._lock:
            if records != self._records or not self._is_listed or self._failure or oddity != self._oddity:
                self._revision += 1
            self._records, self._is_listed = records, True
            self._failure, self._oddity = None, oddity
        self._version = page.metadata.resourceVersion

    def _watch(self, api: Api) -> int:
        """The number of events until the server ends the watch."""
        seconds = random.randint(SHORTEST_WATCH_SECONDS, LONGEST_WATCH_SECONDS)
        parameters = {
            **self.listing.parameters,
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
            "timeoutSeconds": str(seconds),
        }
        events = 0
        for line in api.watch_lines(self.listing.path, parameters):
            if self._stopping.is_set():
                break
            if line:
                events += 1
                self._apply(self._decode(_EVENT, line))
                continue
            self._note_clock(api)
            if self._failure is not None:
                with self._lock:
                    self._failure = None
                    self._revision += 1
        return events

    def _note_clock(self, api: Api) -> None:
        with self._lock:
            self._clock_offset_seconds = api.clock_offset_seconds

    def _apply(self, event: _Event) -> None:
        if event.type == "ERROR":
            status = self._decode(_STATUS, event.object)
            # what it would tell next is not known, and from the same version it would say the same again
            self._version = None
            raise ApiError(describe_error(ApiError(status.message or "an error without a message")), status.code)
        version = self._decode(_VERSIONED, event.object).metadata.resourceVersion
        goes_back = bool(self._version) and _is_before(version, self._version or "")
        # what is deleted may be told as it was last
        if goes_back and event.type != "DELETED":
            complaint = f"the API server tells of version {version} after {self._version}"
            self._version = None
            raise ApiError(complaint, GONE)
        if event.type in ("ADDED", "MODIFIED", "DELETED"):
            try:
                key, record = self._reduce(event.object)
            except msgspec.MsgspecError as error:
                with self._lock:
                    self._oddity = self.listing.explain_oddity(error)
                    self._revision += 1
            else:
                self._put_record(key, None if event.type == "DELETED" else record)
        if version and not goes_back:
            self._version = version

    def _put_record(self, key: K, record: V | None) -> None:
        with self._lock:
            before = self._records.get(key)
            if record == before:
                return
            if record is None:
                del self._records[key]
            elif before is not None or len(self._records) < MOST_RECORDS:
                self._records[key] = record
            else:
                self._oddity = self.listing.explain_excess(1, MOST_RECORDS)
            self._revision += 1

    def _decode(self, decoder: msgspec.json.Decoder[D], body: bytes | msgspec.Raw) -> D:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            # what was lost is not known
            self._version = None
            raise ApiError(f"the API server sent what is no {self.listing.what}: {describe_error(error)}") from None

    def _note_failure(self, error: ApiError) -> None:
        problem = self.listing.explain_failure(error, is_known=self._is_listed)
        with self._lock:
            if problem != self._failure:
                self._failure = problem
                self._revision += 1


def _is_before(version: str, other: str) -> bool:
    """Whether a version is older than another one of the same list. They are numbers of etcd, so that others are not compared."""
    return version.isascii() and version.isdigit() and other.isascii() and other.isdigit() and int(version) < int(other)


# --- ResourceSlices of a node (Dynamic Resource Allocation): which GPU or MIG instance a device of a claim is.
#
# The structures are those of resource.k8s.io/v1, which Kubernetes 1.34 and newer serve. The attribute `uuid`: NVIDIA/k8s-dra-driver-gpu,
# cmd/gpu-kubelet-plugin/deviceinfo.go.


DRIVER = "gpu.nvidia.com"
UUID = "uuid"
PATH = "/apis/resource.k8s.io/v1/resourceslices"
# the API allows 128 in one slice
_MOST_DEVICES, _LONGEST_TEXT = 256, 256
_RIGHTS = "Give its service account list and watch on resourceslices by a ClusterRole (resource.k8s.io), or leave out gpu.dra."
_ABSENT = "Kubernetes 1.34 and newer have them; leave out gpu.dra where the cluster is older or no driver is installed."


class _Attribute(msgspec.Struct):
    string: str | None = None


class _Device(msgspec.Struct):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None


class _Pool(msgspec.Struct):
    name: str = ""
    generation: int = 0


class _Spec(msgspec.Struct):
    driver: str = ""
    pool: _Pool = msgspec.field(default_factory=_Pool)
    devices: list[_Device] | None = None


class _SliceMeta(msgspec.Struct):
    name: str = ""


class _Slice(msgspec.Struct):
    metadata: _SliceMeta = msgspec.field(default_factory=_SliceMeta)
    spec: _Spec = msgspec.field(default_factory=_Spec)


_SLICE = msgspec.json.Decoder(_Slice)


class SliceRecord(Struct, frozen=True):
    """Some devices of a pool."""

    pool: str  # its name, mostly that of the node
    generation: int  # of the pool: slices of an older one are void
    uuids: tuple[
        tuple[str, str], ...
    ]  # device and the UUID of its GPU or MIG instance; devices without one are left out


def decode_slice(body: bytes | msgspec.Raw) -> tuple[str, SliceRecord | None]:
    """A slice: its name, and what is kept of it; None where another driver made it. Raises msgspec.MsgspecError for what is no slice."""
    found = _SLICE.decode(body)
    if not found.metadata.name:
        raise msgspec.ValidationError("a resource slice without a name")
    spec = found.spec
    if spec.driver != DRIVER:
        return found.metadata.name, None
    uuids = ((one.name, _find_uuid(one)) for one in (spec.devices or ())[:_MOST_DEVICES])
    known = tuple((name, uuid) for name, uuid in uuids if name and uuid)
    return found.metadata.name, SliceRecord(spec.pool.name, spec.pool.generation, known)


def _find_uuid(device: _Device) -> str:
    """An attribute without a domain is the driver's own."""
    attributes = device.attributes or {}
    attribute = attributes.get(UUID) or attributes.get(f"{DRIVER}/{UUID}") or _Attribute()
    return (attribute.string or "")[:_LONGEST_TEXT]


def map_devices(slices: Iterable[SliceRecord]) -> dict[tuple[str, str], str]:
    """UUIDs by pool and device, of each pool's newest generation: while a driver replaces its slices there are some of both."""
    every = tuple(slices)
    newest: dict[str, int] = {}
    for each in every:
        newest[each.pool] = max(each.generation, newest.get(each.pool, each.generation))
    return {
        (each.pool, device): uuid
        for each in every
        if each.generation == newest[each.pool]
        for device, uuid in each.uuids
    }


def watch_slices(node: str, connect: Connect) -> Mirror[str, SliceRecord]:
    """A copy of the node's slices, to be started."""
    parameters = {"fieldSelector": f"spec.nodeName={node},spec.driver={DRIVER}"}
    name = f"kubernetes (resource slices of node {node})"
    where = f"of node {node}"
    listing = Listing(name, "resourceslices", PATH, where, _RIGHTS, parameters, absent=_ABSENT)
    return Mirror(listing, connect, decode_slice)
