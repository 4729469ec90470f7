"""Codes -> sentences that say what to do: why a signal is absent, what a failure means, what a state or a quality is.

One place for the landing page, `once` and METRICS.md. Each enum is covered whole.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from llm_serving_exporter.derive.table import find_explaining_field, find_sentence
from llm_serving_exporter.model.derived import Cap, Cause, Limiter, Tail, Verdict
from llm_serving_exporter.model.gpu import GpuAbsence, GpuReadings
from llm_serving_exporter.model.reading import State, TargetReading
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot, LimitSource, Quality
from llm_serving_exporter.model.target import PodFault, PodState, Role, Target
from llm_serving_exporter.render.numbers import CLIPPED, NOTHING, count, number, share

ABSENCES: Mapping[Absence, str] = {
    Absence.AVAILABLE: "",
    Absence.IDLE: "Nothing of it happened in the window, or at all yet; it comes with its first event.",
    Absence.WARMING_UP: (
        "It needs two pages of the same engine life; it comes within an interval or two, "
        "after a counter that fell by itself within a window."
    ),
    Absence.NOT_EXPORTED: "The engine does not put it on its page, in this version or with these flags.",
    Absence.NOT_CONFIGURED: "It needs a setting that is not set; METRICS.md names it.",
    Absence.VERSION_UNKNOWN: (
        "What it means depends on the engine's version, which is not known: "
        "make /version reachable on the engine's port."
    ),
    Absence.INVALID: (
        "What the page has of it makes no value, such as a histogram without its sum or a share of nothing: "
        "a fault of the engine, worth a report to it, or of a mapping of your own."
    ),
    Absence.IMPLAUSIBLE: (
        "The value cannot be true: it is no number, outside the range that METRICS.md states, or of a counter that fell while its "
        "engine did not restart. The log has it: a fault of the engine, worth a report to it, or of a mapping of your own."
    ),
    Absence.DUPLICATE: (
        "The page holds the same series more than once: several processes write to one page; "
        "give each a page of its own, or check the engine's multiprocess settings."
    ),
    Absence.INCONSISTENT: (
        "Two samples of the page that should say the same do not, so that neither is believed: "
        "the engine's back end and its metrics reporter may be of different versions."
    ),
    Absence.STALE: (
        "The engine brings it up to date only while requests end, and none has lately: what is on its page is of then, not of now."
    ),
    Absence.NO_METRICS: "This runtime publishes nothing about its work; what its GPUs do is shown.",
    Absence.OTHER_ROLE: "It does not mean the same on a replica that does one phase only, or on a front end: not shown there.",
    Absence.INPUT_MISSING: "A figure that it is worked out from is absent; that one's reason is listed too.",
    Absence.BELOW_BUCKETS: "The threshold lies below the first bucket edge of the engine's histogram: raise it to that edge or above.",
    Absence.GPUS_UNKNOWN: (
        "Which GPUs serve this target is not known, or not all of them are here: set targets[].gpus to their UUIDs or indices, "
        "or targets[].gpu_count for a server on another host; docs/kubernetes-gpus.md says what finds them in Kubernetes."
    ),
    Absence.MODEL_UNKNOWN: (
        "Which model this is, or its config, is not known: set targets[].model.config to its config.json or folder, "
        "or targets[].model.name to a model of the catalogue."
    ),
    Absence.ARCHITECTURE_UNKNOWN: (
        "No formula covers the model's architecture or weight format, and a guess would be wrong; the target's model line says which."
    ),
    Absence.PEAK_UNKNOWN: (
        "The GPU's peak is not known: neither the catalogue knows the card nor do NVML's clocks say it; "
        "set targets[].gpu_model where it is one of the catalogue's, or describe it in gpu_models."
    ),
    Absence.NOT_SOUND: (
        "The engine's own estimate is wrong for this model, weight format or release (docs/accuracy.md), and is not shown."
    ),
    Absence.NO_DECODE: "An embedding model does not decode.",
    Absence.NO_RIDGE: "At this context decode stays bound by bandwidth at every batch: reading KV takes longer than computing with it.",
    Absence.NO_PERMISSION: "The driver does not let the exporter's user read it.",
    Absence.PRICES_UNUSABLE: (
        "The price file cannot be used, or has changed a moment ago and is not believed yet: check-config and the log say what is wrong."
    ),
    Absence.NO_PRICE: "The price file states no price for its GPUs that has begun: state one by target, node or gpu_model.",
    Absence.PRICE_AMBIGUOUS: "Its nodes, or its several kinds of GPU, have different prices: state one by target.",
    Absence.GPU_CLAIMED_TWICE: (
        "Another target has the same GPUs, and which part of them is whose is not known: the driver's process list does not name the "
        "processes of each with their memory (another PID namespace?), or the other's have come since this one's went. Set "
        "targets[].gpu_share of each, at most 1 together."
    ),
    Absence.LAYOUT_UNREAD: (
        "The server spreads its work in a way that is not read here, or not in every figure (a parallel size above one in /server_info, "
        "such as prefill context parallelism): what depends on it would be wrong by that size."
    ),
    Absence.GPU_SHARED: (
        "Others work on the same GPU, and what the driver measures there is of all of them: gpu_dram_bandwidth_ratio and "
        "gpu_memory_used_bytes have it for the card."
    ),
    Absence.TARGET_DOWN: "The last good page is too old to be shown; the target's problem says why.",
}

_AS_IT_IS = frozenset(
    {
        Absence.IDLE,
        Absence.WARMING_UP,
        Absence.NOT_EXPORTED,
        Absence.INPUT_MISSING,
        Absence.OTHER_ROLE,
        Absence.STALE,
        Absence.NOT_SOUND,
        Absence.NO_DECODE,
        Absence.NO_RIDGE,
        Absence.GPU_SHARED,
        Absence.LAYOUT_UNREAD,
    }
)

FAILURES: Mapping[FailureReason, str] = {
    FailureReason.DNS: "The host name does not resolve: check the target's url and this machine's resolver.",
    FailureReason.REFUSED: "Nothing listens there: start the engine, or check host and port of the target's url.",
    FailureReason.UNREACHABLE: "The host cannot be reached: check routes, firewalls and network policies between here and there.",
    FailureReason.TIMEOUT: (
        "The engine did not answer in time: see whether it is overloaded or hung; "
        "raise timeout only if the page is just slow."
    ),
    FailureReason.TLS: "TLS failed: check tls.ca_file, the certificate's names and dates, and that the url's scheme fits the server.",
    FailureReason.SPEAKS_TLS: "The engine speaks TLS and is asked without: let the target's url begin with https://.",
    FailureReason.CLOSED: "The engine hung up before its answer was complete: look into its log for a crash or restart.",
    FailureReason.PROTOCOL: "What answers is not an HTTP server: check the port of the target's url.",
    FailureReason.UNAUTHORIZED: (
        "The engine wants credentials: set auth for the target, and check that token or password are the current ones."
    ),
    FailureReason.LOADING: "The engine is loading its model; nothing to do unless this lasts.",
    FailureReason.STATUS: (
        "The engine answers with an HTTP error: check metrics_path, and the engine's log for the cause; "
        "a server that has no metrics page needs runtime: ollama, deepspeed-mii or gpu-only."
    ),
    FailureReason.PAGE_FAILS: (
        "The engine says that it is healthy, and its metrics page alone fails: its log has the cause. What it does is not known meanwhile."
    ),
    FailureReason.REDIRECT: "The engine redirects to another place, which is not followed: put the final address into the target's url.",
    FailureReason.CONTENT_TYPE: (
        "What answers is not a metrics page: check metrics_path and port. "
        "TensorRT-LLM has one only with return_perf_metrics: true; its JSON is emptied by reading, and seldom asked for again."
    ),
    FailureReason.ENCODING: "The answer's compression is broken: look for a proxy between here and the engine.",
    FailureReason.TOO_LARGE: "The page is larger than max_body_bytes: raise it for the target if the page is meant to be that large.",
    FailureReason.EMPTY: "The page is empty: metrics are switched off, or nothing was served yet; set runtime for the target.",
    FailureReason.CREDENTIALS: (
        "A file with a token, password or certificate cannot be read: "
        "check that it exists and that the exporter's user may read it."
    ),
    FailureReason.MALFORMED: "The page is not valid exposition text: a fault of the engine or of a proxy; the whole page is discarded.",
    FailureReason.TRUNCATED: "The page ends in the middle of a line: the engine or a proxy cut it off.",
    FailureReason.TOO_MANY_SERIES: "The page has more series than max_series: raise it for the target if that many are meant.",
    FailureReason.UNKNOWN_RUNTIME: (
        "The page is not one that this target's table reads: point url and metrics_path at the engine, set runtime to what it is, "
        "or give it a mapping of its own (runtimes: in the configuration)."
    ),
    FailureReason.SEVERAL_SERVERS: (
        "Several servers answer at this address in turn, so its counters belong to no single one: list each replica as a target."
    ),
    FailureReason.NOT_AN_ENGINE: "This is the page of a router or gateway: point the target's url at the engines behind it.",
    FailureReason.NO_LIBRARY: (
        "libnvidia-ml.so.1 is not there: run the container with the NVIDIA runtime; on a host without NVIDIA GPUs set gpu.enabled: false, "
        "or device_exporter.url for AMD's and Intel's."
    ),
    FailureReason.NO_DRIVER: "The NVIDIA driver is not loaded: see dmesg and nvidia-smi on the node, or set gpu.enabled: false.",
    FailureReason.DRIVER_MISMATCH: "Driver and library differ in version, as after an upgrade: reload the driver or reboot the node.",
    FailureReason.NO_PERMISSION: (
        "The exporter may not read it: for NVML give it the devices /dev/nvidia* and /dev/nvidiactl, for the kubelet's socket UID 0."
    ),
    FailureReason.GPU_LOST: "A GPU fell off the bus: drain the node, see dmesg for the XID, then reset or reboot.",
    FailureReason.NVML: "NVML failed: try nvidia-smi on the node; the exporter tries again at each interval.",
    FailureReason.NO_CLIENT: "The client that asks the kubelet is not installed: install llm-serving-exporter[kubernetes].",
    FailureReason.NO_SOCKET: (
        "The kubelet's socket is not there: mount the kubelet's pod-resources folder, as hostPath and read-only, "
        "where gpu.pod_resources_socket expects it, or set that to auto or off."
    ),
    FailureReason.UNIMPLEMENTED: "What answers at the socket does not know PodResources v1: it needs Kubernetes 1.20 or newer.",
    FailureReason.KUBELET: "The kubelet refused the question: look into its log; the exporter asks again at each interval.",
    FailureReason.INTERNAL: "A fault of the exporter: its log has the traceback; please report it.",
}

STATES: Mapping[State, str] = {
    State.READY: "The last page was read and is in use.",
    State.LOADING: "The engine says that it is not ready yet, or its container has not been Ready since its start.",
    State.SLEEPING: "The engine was put to sleep: it serves nothing until it is woken.",
    State.DOWN: "The engine does not answer.",
    State.UNKNOWN: "Not known: no attempt yet, or an answer that says nothing about the engine.",
}

POD_FAULTS: Mapping[PodFault, str] = {
    PodFault.CRASH_LOOP: (
        "Kubernetes starts its container again and again (CrashLoopBackOff): kubectl logs --previous shows how it ends."
    ),
    PodFault.NODE_LOST: "Its node answers Kubernetes no more: kubectl describe node shows since when.",
    PodFault.WORKER_LOST: (
        "Another pod of its replica is gone, crashes or is on a lost node, and no request gets through without it: "
        "kubectl get pods shows which."
    ),
}

QUALITIES: Mapping[Quality, str] = {
    Quality.LIVE: "As of the moment the page was read.",
    Quality.LAGGING: "Counted when a request ends, so long requests show late.",
    Quality.SLOW: "The engine refreshes it only every few seconds.",
    Quality.CLIPPED: "The quantile lies outside the engine's bucket edges: at least or at most the value shown.",
    Quality.SUSPECT: "Contradicts another reading: an input is wrong.",
    Quality.APPROXIMATE: "Computed from counters that are updated at different moments: right over minutes, not over seconds.",
}

CAUSES: Mapping[Cause, str] = {
    Cause.GPU_COUNT: (
        "The number of GPUs in a step is probably wrong: all the engine's GPUs were taken for one tensor-parallel group; "
        "set targets[].tensor_parallel_size and pipeline_parallel_size."
    ),
    Cause.WEIGHT_FORMAT: (
        "The weights or the KV cache are probably smaller than assumed: set targets[].model.config, weight_format or kv_cache_dtype."
    ),
    Cause.INPUTS: "An input is wrong: check the model, its formats, the GPU and its number against the engine's start-up log.",
    Cause.SOURCES_DIFFER: (
        "What the GPUs' counters measure and what follows from the model and the engine's counters have differed by more than a quarter "
        "for five minutes: one of them is wrong. Check the model, its formats, and that the engine's GPUs are these and have no other work."
    ),
    Cause.COUNTERS: (
        "It shows no request while tokens flow without a break: the engine's gauge is wrong, as of some versions with several API servers."
    ),
    Cause.SEVERAL_SERVERS: (
        "Several servers or workers answer in turn, each with counters of its own: have the workers share one folder of counters, or "
        "list each as a target."
    ),
}

LIMITERS: Mapping[Limiter, str] = {
    Limiter.BANDWIDTH: "memory bandwidth: smaller weights or KV, more or faster GPUs, or a larger batch raise tokens per second",
    Limiter.COMPUTE: "compute: the GPUs' tensor cores are as busy as they get; more GPUs or a faster precision",
    Limiter.KV_CAPACITY: "KV capacity: requests wait for memory; more of it, an 8-bit KV cache, shorter contexts",
    Limiter.BATCH_LIMIT: (
        "the batch limit: requests wait while hardware has room; raise it "
        "(vLLM max_num_seqs, SGLang --max-running-requests, TensorRT-LLM max_batch_size)"
    ),
    Limiter.POWER: "a cap on power or heat, which holds the clock down: a higher cap, better cooling, or work of fewer joules a token",
    Limiter.PREFILL_INTERFERENCE: "prefill in decode's steps: smaller prefill chunks, or prefill and decode on replicas of their own",
    Limiter.ATTENTION: (
        "attention on the chip: sequences share a long prefix, which memory gives once and attention looks at for each of them; "
        "shorter prefixes, or kernels that read a common prefix once for all (cascade attention)"
    ),
    Limiter.OVERHEAD: "overhead: launches, communication or the scheduler; neither memory nor compute is near its ceiling",
    Limiter.STARVED: "nothing: there is hardly any work",
    Limiter.STALLED: "a standstill: requests are there and nothing moves; take a stack dump, then restart the replica",
    Limiter.TRANSFER: "KV on its way: requests wait for it from another engine or memory; look at the link and at the prefill replicas",
    Limiter.BLOCKED: (
        "something that holds requests back and that the page does not name: a LoRA budget, a grammar that is compiled, "
        "or KV that is loaded"
    ),
    Limiter.UNKNOWN: "not known",
}

LIMIT_SOURCES: Mapping[LimitSource, str] = {
    LimitSource.CONFIG: "configured",
    LimitSource.PAGE: "by its page",
    LimitSource.SERVER_INFO: "by the server",
    LimitSource.POD: "by its pod",
    LimitSource.COMMAND_LINE: "by its command line",
    LimitSource.OBSERVED: "observed, at least",
}

GPU_ABSENCES: Mapping[GpuAbsence, str] = {
    GpuAbsence.NOT_SUPPORTED: "This card, driver or library does not have it.",
    GpuAbsence.NO_PERMISSION: "The exporter's user may not read it.",
    GpuAbsence.DISABLED: "Switched off by configuration.",
    GpuAbsence.IN_USE: "NVML refuses it while something else holds the GPU; under MIG with driver 535 set gpu.gpm to false.",
    GpuAbsence.NO_DATA: "NVML has no value for it at the moment.",
    GpuAbsence.NO_WINDOW: "It needs two samples, and so far there is one.",
    GpuAbsence.ON_PARENT: "A part of a card (MIG, AMD's partitions) has none of its own; it is measured of the whole card.",
    GpuAbsence.ON_INSTANCES: "A GPU in MIG mode has none as a whole; its instances have it.",
    GpuAbsence.IMPLAUSIBLE: "The driver's value cannot be true: it is outside the range that METRICS.md states.",
    GpuAbsence.ERROR: "NVML failed to read it; the log has the call.",
}


def why_absent(
    signal: str,
    absence: Absence,
    missing: Mapping[str, str] = MappingProxyType({}),
    gpu_lacks: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Why a signal is not there and what to do, as one sentence or two; "" for one that is there.

    `signal` as in `Derived.signals`: an exported name without prefix, or latency_*, slo_*, phase_tokens_per_second_*. `missing`: field ->
    why the target's runtime never says it; `gpu_lacks`: signal -> why its GPUs cannot measure it.
    """
    if absence is Absence.NOT_EXPORTED and signal in gpu_lacks:
        return gpu_lacks[signal]
    never = missing.get(signal) or missing.get(find_explaining_field(signal))
    if never and absence is Absence.NOT_EXPORTED:
        return f"This runtime does not say it: {never.rstrip('.')}."
    if never and absence is Absence.INCONSISTENT:
        return f"The page says it more than once: {never.rstrip('.')}."
    return find_sentence(signal, absence) or ABSENCES[absence]


def can_be_set(absence: Absence) -> bool:
    """Whether somebody can do something about it here; else it passes, or is how this engine, model or GPU is."""
    return absence not in _AS_IT_IS


def what_to_do(reason: FailureReason) -> str:
    """What a failed attempt means and what to do, as one sentence."""
    return FAILURES[reason]


def describe_limiter(verdict: Verdict) -> str:
    """What limits a target, as the end of a sentence that begins with "limited by"; with the figures where a cap holds the clock."""
    cap = verdict.cap
    if verdict.state is not Limiter.POWER or cap is None:
        return LIMITERS[verdict.state]
    clock = f"the SM clock at {_megahertz(cap.sm_hertz)} of {_megahertz(cap.sm_max_hertz)} MHz"
    gain = f"full clock would give at most {cap.sm_max_hertz / cap.sm_hertz:.2f} times as much"
    if cap.reason == "power":
        drawn = f"{_watts(cap)} drawn by each GPU, and the" if cap.power_watts is not None else "a"
        return f"power: {drawn} cap holds {clock}; {gain}"
    return f"heat: a thermal cap holds {clock}; {gain}"


def _megahertz(hertz: float) -> str:
    return f"{hertz / 1e6:.0f}"


def _watts(cap: Cap) -> str:
    return (
        f"{cap.power_watts:.0f} of {cap.power_limit_watts:.0f} W"
        if cap.power_limit_watts
        else f"{cap.power_watts:.0f} W"
    )


def write_batch_limit(engine: EngineSnapshot) -> str:
    """`batch limit 256 (observed, at least)`; "" where it is not known."""
    if engine.batch_limit_requests is None:
        return ""
    source = LIMIT_SOURCES[engine.batch_limit_source or LimitSource.PAGE]
    return f"batch limit {count(engine.batch_limit_requests)} ({source})"


def why_gpu_absent(code: str) -> str:
    """Why a GPU reading is not there; unknown codes read as an error."""
    return GPU_ABSENCES[GpuAbsence(code) if code in set(GpuAbsence) else GpuAbsence.ERROR]


# names that a person reads, where the signal's own is not plain enough
_TITLES = {
    "ttft": "time to first token",
    "itl": "inter-token latency",
    "tpot": "time per output token",
    "e2e": "end to end",
    "queue": "time in the queue",
    "prefill": "prefill time",
    "decode": "decode time",
}
_ACRONYMS = {"usd": "USD", "kv": "KV", "gpu": "GPU", "http": "HTTP", "e2e": "end-to-end"}

_IMPOSSIBLE = {
    Cause.SOURCES_DIFFER: "is contradicted by another source",
    Cause.COUNTERS: "contradicts the engine's counters",
    Cause.SEVERAL_SERVERS: "falls and returns",
}


def describe_suspect(signal: str, cause: Cause) -> str:
    """Why a signal's value is impossible."""
    return f"{title(signal)} {_IMPOSSIBLE.get(cause, 'is above 1')}. {CAUSES[cause]}"


def title(name: str) -> str:
    """A signal's or latency's name for a person: "slo_ttft" -> "SLO time to first token"."""
    head, _, rest = name.partition("_")
    if head in ("slo", "latency") and rest:
        word = "SLO" if head == "slo" else "latency"
        return f"{word} {_TITLES.get(rest, rest)}"
    if name in _TITLES:
        return _TITLES[name]
    return " ".join(_ACRONYMS.get(word, word) for word in name.removesuffix("_total").split("_"))


def explain_pod(pod: PodState | None, state: State) -> str:
    """What Kubernetes knows about a target's pod that explains its state; "" where it knows nothing."""
    if pod is None:
        return ""
    if pod.fault is not None:
        return POD_FAULTS[pod.fault]
    if state is State.LOADING:
        return "Its container has not been Ready since its start, so that the engine counts as loading."
    return ""


# --- A part of a page or an answer that cannot be made takes none of the others with it.


log = logging.getLogger("llm_serving_exporter.render")

T = TypeVar("T")

# how the sentence for the reader begins
UNSHOWN = "This could not be shown"


def render_isolated(part: str, render: Callable[[], T], instead: Callable[[str], T]) -> T:
    """What `render` gives; where it fails, what `instead` makes of a sentence for the reader, and the log has the traceback.

    `part`: what it is about, for the log.
    """
    try:
        return render()
    except Exception as error:
        log.exception("%s could not be shown; this is a bug, please report it", part)
        return instead(f"{UNSHOWN} ({type(error).__name__}); the exporter's log has the cause.")


# --- A sentence that tells what to set -> the same with the place where the target at hand has it.


_MARK = "targets[]."
# keys that are plain words too: meant where somebody is told to do something with them
_PLAIN = ("runtime", "auth", "timeout", "url", "role", "headers", "interval", "tls", "model")


def place_remedy(text: str, target: Target) -> str:
    """The sentence with, at its end, where each key of a target that it mentions is set for this one.

    Unchanged for a target of the configuration's `targets:`, and where it mentions no key.
    """
    if not target.places or not text:
        return text
    keys = dict.fromkeys(
        found["marked"] or found["word"] or found["plain"]
        for found in _find_mentions(tuple(target.places)).finditer(text)
    )
    by_place: dict[str, list[str]] = {}
    for key in keys:
        place = target.places.get(key.partition(".")[0])
        if place is not None:
            by_place.setdefault(place, []).append(key)
    if not by_place:
        return text
    told = "; ".join(f"{', '.join(own)} {place}" for place, own in by_place.items())
    plain = text.replace(_MARK, "").rstrip()
    return f"{plain}{'' if plain.endswith(('.', '!', '?')) else '.'} For this target: {told}."


@lru_cache(maxsize=8)
def _find_mentions(keys: tuple[str, ...]) -> re.Pattern[str]:
    """Mentions of keys in a sentence: marked as such, in a form that no plain word has, or as what somebody is to set."""
    unmistakable = sorted((key for key in keys if "_" in key or key == "gpus"), key=len, reverse=True)
    return re.compile(
        rf"targets\[\]\.(?P<marked>[a-z_]+(?:\.[a-z_]+)*)"
        rf"|(?<![\w./-])(?P<word>(?:{'|'.join(unmistakable)})(?:\.[a-z_]+)?|tls\.[a-z_]+)(?![\w/])"
        rf"|\b(?:[Ss]et|[Cc]heck|[Rr]aise|[Ww]rite|[Pp]oint|target's) `?(?P<plain>(?:{'|'.join(_PLAIN)})(?:\.[a-z_]+)?)\b"
    )


# --- The long-context tail of an engine in words, for the landing page and `once`.


def longest_share(found: Tail | None) -> tuple[str, str]:
    """What the longest 1 % of the requests have of all context, and within which bounds."""
    if found is None or found.kv_share_ratio is None:
        return NOTHING, ""
    ratio = found.kv_share_ratio
    return share(ratio.expected), f"of all context; {share(ratio.lower)} to {share(ratio.upper)}"


def long_requests_fit(found: Tail | None) -> tuple[str, str]:
    """How many of the longest requests the KV cache holds, and how long those are. A missing lower bound reads as at most."""
    if found is None or not found.requests_fit:
        return NOTHING, ""
    bounds = found.requests_fit
    ends = [number(bounds[bound]) for bound in ("lower", "upper") if bound in bounds]
    p99 = found.prompt_p99
    prompt = f"p99 prompt {CLIPPED.get(p99.clipped, '')}{number(p99.value)} tokens" if p99 is not None else ""
    return ("" if "lower" in bounds else CLIPPED["bottom"]) + " to ".join(dict.fromkeys(ends)), prompt


# --- Who a target is, in a few words for a person: landing page, `once`.


def describe_identity(target: Target) -> str:
    """Pod, workload, nodes and labels of its own, as far as they are known; "" where nothing is."""
    known = target.identity
    pod = "/".join(part for part in (known.namespace, known.pod) if part)
    kind = f"{known.workload_kind} " if known.workload_kind else ""
    container = f" ({known.container})" if known.container and pod else ""
    nodes = f"node{'' if len(target.nodes) == 1 else 's'} {', '.join(target.nodes)}" if target.nodes else ""
    parts = (
        f"{'pod' if known.pod else 'namespace'} {pod}{container}" if pod else "",
        f"{kind}{known.workload}" if known.workload else "",
        nodes,
        ", ".join(f"{name}={text}" for name, text in known.labels),
    )
    return "; ".join(part for part in parts if part)


# --- What a host without NVML can still tell, in sentences: for the landing page, `once` and the log.


MOST_NAMED = 3
# of a driver that is not there, as on a host whose accelerators are not NVIDIA's
_NOT_HERE = frozenset({FailureReason.NO_LIBRARY, FailureReason.NO_DRIVER})


def explain_without_nvml(readings: GpuReadings | None, targets: Sequence[TargetReading]) -> tuple[str, ...]:
    """What still works, what does not, and what to set; () where GPUs are read, or where reading them only fails for now.

    `readings`: None where GPUs are not read at all.
    """
    if readings is not None and readings.attempt.reason not in _NOT_HERE:
        return ()
    return tuple(_explain(targets))


def _explain(targets: Sequence[TargetReading]) -> Iterator[str]:
    yield (
        "Without NVML everything that the engines' pages say is still here: load, latency, SLOs, KV cache, batch, preemptions."
    )
    engines = [reading for reading in targets if reading.role is not Role.FRONTEND and reading.target.gpus != ()]
    bare = [reading for reading in engines if not _is_known(reading)]
    needs = "ceilings, rooflines with the bandwidth that the model must move, fit, the limiter and cost"
    if not engines:
        yield f"For {needs} a target says what its GPUs are: gpu_model and gpu_count."
    elif bare:
        names = [reading.target.name for reading in bare]
        more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
        yield f"For {needs} set gpu_model and gpu_count of {', '.join(names[:MOST_NAMED])}{more}."
    else:
        yield f"Of {needs} nothing is missing: every target says what its GPUs are."
    yield (
        "Only a driver or a device exporter measures power, energy, temperature, memory in use, busy time and bandwidth in use: for AMD's "
        "GPUs and Intel's Gaudi set device_exporter.url (docs/other-gpus.md); of TPU, Trainium and Apple nothing is read."
    )


def _is_known(reading: TargetReading) -> bool:
    """Whether kind and number of a target's GPUs are known, from its configuration or by its own word."""
    gpus = reading.gpus.total
    return gpus is not None and bool(gpus.name) and gpus.count > 0
