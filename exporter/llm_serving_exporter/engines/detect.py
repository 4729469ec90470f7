"""Which runtime speaks on a page. Never a guess on generic names."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from llm_serving_exporter.engines.index import spellings
from llm_serving_exporter.engines.mapping import OF_A_PROCESS, Fingerprint, Mark, Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.sample import Layout, SeriesKey
from llm_serving_exporter.model.text import clean


class Router(Struct, frozen=True):
    """A page that is no engine's but a router's or gateway's."""

    title: str  # with its article
    fingerprints: tuple[Fingerprint, ...]  # any of them identifies it
    instead: str = "point url at the engines behind it"  # what to point a target at


_DYNAMO_FRONTEND = (Mark("dynamo_frontend_*"), Mark("nv_llm_http_service_*"))
_DYNAMO_WORKER = tuple(
    Mark(name)
    for name in (
        "dynamo_component_requests*", "dynamo_work_handler_*", "dynamo_component_total_blocks", "dynamo_component_gpu_cache_*",
        "dynamo_component_kvstats_*", "dynamo_component_model_load_*",
    )
)  # fmt: skip
_RENAMED_FRONTEND = (
    "if it is a frontend, unset DYN_METRICS_PREFIX there, or write a table based_on dynamo-frontend (docs/dynamo.md)"
)
_ENGINES_NAMES = (Mark("vllm:*"), Mark("sglang:*"), Mark("trtllm_*"), Mark("trtllm:*"), Mark("lmdeploy:*"))

ROUTERS = (
    # its /engine_metrics joins its workers' pages and says from whom each series is (facts runtimes-vllm-sglang 2.6)
    Router(
        "an SGLang model gateway (its workers' pages in one)",
        tuple(Fingerprint((Mark(name, "worker_addr"),)) for name in ("sglang:*", "vllm:*", "trtllm_*")),
        "point url at the engines behind it, or at its own metrics port, which is a front door's page",
    ),
    # on a system port of its own; a frontend has these families too, and where its own are renamed nothing tells it from a router
    Router(
        "a Dynamo router, or of a Dynamo frontend under another DYN_METRICS_PREFIX",
        (Fingerprint((Mark("dynamo_component_router_*"),), (*_DYNAMO_FRONTEND, *_ENGINES_NAMES)),),
        f"point url at the Dynamo frontend, and at its workers' system ports; {_RENAMED_FRONTEND}",
    ),
    # without the KV router a frontend has the uptime only; a worker has its endpoint's families before the first request
    Router(
        "a Dynamo process that serves no endpoint (a frontend under another DYN_METRICS_PREFIX?)",
        (Fingerprint((Mark("dynamo_component_*"),), (*_DYNAMO_FRONTEND, *_ENGINES_NAMES, *_DYNAMO_WORKER)),),
        f"point url at the Dynamo frontend, or at a worker that is ready; {_RENAMED_FRONTEND}",
    ),
    # the role of the workers behind it stands in the names (facts runtimes-others 5.5)
    Router(
        "TensorRT-LLM's disaggregated server",
        (Fingerprint((Mark("ctx_total_requests*"), Mark("gen_total_requests*"))),),
        "point url at its context and generation servers",
    ),
)  # fmt: skip


FAMILIES_SHOWN = 12
_SUFFIXES = ("_total", "_bucket", "_count", "_sum")


class Detection(Struct, frozen=True):
    """What a page can be."""

    runtimes: tuple[Runtime, ...]  # those that the page can be of; exactly one is an answer
    router: Router | None  # what it is, where it routes to engines
    families: tuple[str, ...]  # a few that the page has, for the message

    @property
    def runtime(self) -> Runtime | None:
        """The runtime, where the page is one engine's."""
        return self.runtimes[0] if len(self.runtimes) == 1 else None


def labels_needed(runtimes: Mapping[str, Runtime] = RUNTIMES) -> Callable[[str], bool]:
    """A predicate over sample names: whether detection looks at their labels, so that the parser has to keep them."""
    prints = [(fingerprint, runtime.respelt) for runtime in runtimes.values() for fingerprint in runtime.fingerprints]
    prints += [(fingerprint, ()) for router in ROUTERS for fingerprint in router.fingerprints]
    names = tuple(
        {
            form
            for fingerprint, respelt in prints
            for mark in (*fingerprint.all_of, *fingerprint.none_of)
            if mark.label is not None
            for form in spellings(mark.name, respelt)
        }
    )
    exact = frozenset(name for name in names if not name.endswith("*"))
    prefixes = tuple(name[:-1] for name in names if name.endswith("*"))
    return lambda name: name.startswith(prefixes) or not exact.isdisjoint(_list_families(name))


def _list_families(name: str) -> list[str]:
    """A sample's name, and what its family may be called: suffixes of counters and histograms are the family's."""
    return [name, *(name.removesuffix(suffix) for suffix in _SUFFIXES if name.endswith(suffix))]


class _Seen:
    def __init__(self, layout: Layout) -> None:
        self._names = layout.names | set(layout.types)
        # a page has thousands of names, and the runtimes hundreds of marks
        self._families = {family for name in self._names for family in _list_families(name)}
        # samples by what their family may be called
        self._keys: dict[str, list[SeriesKey]] = {}
        for key in layout.keys:
            for family in _list_families(key.name):
                self._keys.setdefault(family, []).append(key)

    def matches(self, fingerprints: Iterable[Fingerprint], respelt: tuple[tuple[str, str], ...] = ()) -> bool:
        return any(
            all(self._has(mark, respelt) for mark in fingerprint.all_of)
            and not any(self._has(mark, respelt) for mark in fingerprint.none_of)
            for fingerprint in fingerprints
        )

    def _has(self, mark: Mark, respelt: tuple[tuple[str, str], ...]) -> bool:
        forms, label = spellings(mark.name, respelt), mark.label
        if label is None:
            return any(self._has_name(form) for form in forms)
        return any(key.label(label) is not None for form in forms for key in self._list_samples(form))

    def _has_name(self, wanted: str) -> bool:
        if wanted.endswith("*"):
            return any(name.startswith(wanted[:-1]) for name in self._names)
        return wanted in self._families

    def _list_samples(self, wanted: str) -> Iterator[SeriesKey]:
        if not wanted.endswith("*"):
            yield from self._keys.get(wanted, ())
            return
        for family, keys in self._keys.items():
            if family.startswith(wanted[:-1]):
                yield from keys


def detect(layout: Layout, runtimes: Mapping[str, Runtime] = RUNTIMES) -> Detection:
    """Recognises a page by what only one runtime has on it. A router's page is never taken for an engine's, unless a configuration's own
    table knows it.

    The layout has to hold the samples of which `labels_needed` is true. `runtimes`: those that may speak; a configuration's own
    are believed before built-in ones, so that a fork that kept its engine's names can be told from it.
    """
    seen = _Seen(layout)
    families = sorted(clean(name) for name in layout.types or layout.names if not name.startswith(OF_A_PROCESS))
    shown = tuple(families[:FAMILIES_SHOWN])
    matching = tuple(runtime for runtime in runtimes.values() if seen.matches(runtime.fingerprints, runtime.respelt))
    configured = tuple(runtime for runtime in matching if runtime.name not in RUNTIMES)
    if configured:
        return Detection(configured, None, shown)
    for router in ROUTERS:
        if seen.matches(router.fingerprints):
            return Detection((), router, shown)
    return Detection(matching, None, shown)
