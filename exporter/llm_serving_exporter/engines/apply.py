"""Runs a runtime's table over samples.

What depends only on a page's layout (which index feeds which field of which engine, and why a field is absent) is worked
out once into a Plan and kept while the layout stays the same object; a page then costs one pass over the plan.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from llm_serving_exporter.catalogue.serving import FIELD_BOUNDS
from llm_serving_exporter.catalogue.spec import Bounds
from llm_serving_exporter.engines.index import EngineIdentity, spellings
from llm_serving_exporter.engines.mapping import Runtime, selector
from llm_serving_exporter.engines.plan import Plan, make_plan, on_the_wire
from llm_serving_exporter.engines.rows import Reader
from llm_serving_exporter.model.numbers import Histogram
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import Layout, Page, Samples
from llm_serving_exporter.model.snapshot import (
    SHOWS_AN_ENGINE,
    Absence,
    EngineSnapshot,
    LeftOut,
    LimitSource,
    ServerFacts,
    Snapshot,
)

# of a labelled counter that is left out, so many keys are named
_MOST_KEYS = 5


def list_implausible(fields: Mapping[str, Any]) -> list[str]:
    """The fields of one engine whose values are outside their declared ranges; texts pass.

    What cannot be true goes no further, into no history, figure, limiter or bill. A labelled counter and a histogram go as a whole: with a
    part of them missing, their sums and shares would be of something else.
    """
    bad = []
    for name, value in fields.items():
        bounds = FIELD_BOUNDS.get(name)
        if bounds is None:
            continue
        if type(value) is float:  # the most of them
            if not bounds.least <= value <= bounds.most:  # NaN fails every comparison
                bad.append(name)
        elif not _admits(bounds, value):
            bad.append(name)
    return bad


def _admits(bounds: Bounds, value: object) -> bool:
    if isinstance(value, Histogram):
        return bounds.admits_histogram(value)
    if isinstance(value, Mapping):
        return all(map(bounds.admits, value.values()))
    return not isinstance(value, int | float) or bounds.admits(value)


def describe_value(value: object) -> str:
    """A value that is left out, for a person: "1e+308"; of a histogram its sum and count."""
    if isinstance(value, Histogram):
        total = "no sum" if value.sum is None else f"a sum of {value.sum:g}"
        return f"{value.count:g} events with {total}, or buckets that do not ascend to that"
    if isinstance(value, Mapping):
        return ", ".join(f"{number:g} for {key}" for key, number in list(value.items())[:_MOST_KEYS])
    return f"{value:g}" if isinstance(value, int | float) else str(value)


# of engines whose pages have one layout; what a server says of itself comes from outside
MOST_VERSIONS = 16

# counters that alerts watch: at 0 from the start, because an increase() over one that is born at 1 is 0
_FROM_ZERO = frozenset({"preemptions_total"})
# 2001: what is smaller is some other number
EARLIEST_START = 1e9
# a server's clock may run ahead of ours; a start further in the future is not a time
CLOCK_SKEW_SECONDS = 86_400.0


class Overrides(Struct, frozen=True):
    """What the configuration says about a target; None: it says nothing."""

    model_name: str | None = None  # names a model where the page does not
    batch_limit_requests: int | None = None  # wins over the page and the endpoints
    context_limit_tokens: int | None = None  # likewise
    decode_context_parallel_size: int | None = None  # wins over the endpoints
    pod_batch_limit: int | None = None  # by the arguments of its pod, where neither the page nor an endpoint says it
    command_line_batch_limit: int | None = None  # by those of its process, likewise after the pod's


def wanted_by(runtime: Runtime) -> Callable[[str], bool]:
    """A predicate over wire names for the parser: the samples that this runtime's table reads."""
    return on_the_wire(runtime).__contains__


class Plans:
    """The plans of many targets: those whose pages have one layout share it. Each is kept as long as its layout. Threads may share it."""

    def __init__(self) -> None:
        self._lock = Lock()
        # by layout: a table, the version of the engine, and how such a page is read by it
        self._plans: WeakKeyDictionary[Layout, list[tuple[Runtime, str | None, Plan]]] = WeakKeyDictionary()

    def find(self, runtime: Runtime, layout: Layout, version: str | None) -> Plan:
        """As `make_plan`."""
        with self._lock:
            of_layout = self._plans.setdefault(layout, [])
            for of_runtime, of_version, plan in of_layout:
                if of_runtime is runtime and of_version == version:
                    return plan
        plan = make_plan(runtime, layout, version)
        with self._lock:
            if len(of_layout) >= MOST_VERSIONS:
                of_layout.clear()
            of_layout.append((runtime, version, plan))
        return plan


class Normaliser:
    """Samples -> Snapshot for one target. Holds only the plan of the current layout; `apply` has no other memory.

    `plans`: of other targets.
    """

    def __init__(self, runtime: Runtime, facts: ServerFacts, overrides: Overrides, plans: Plans | None = None) -> None:
        self.runtime = runtime
        self._facts = facts
        self._overrides = overrides
        self._plans = Plans() if plans is None else plans
        self._layout: Layout | None = None
        self._plan: Plan | None = None

    def apply(self, samples: Samples, page: Page) -> Snapshot:
        """One snapshot of the page. Never fails: a gap is None and has its reason in `absent`; what cannot be true is one."""
        if self._plan is None or samples.layout is not self._layout:
            self._plan = self._plans.find(self.runtime, samples.layout, self._facts.version)
            self._layout = samples.layout
        plan, values = self._plan, samples.values
        absent = dict(plan.common.absent)
        left_out: list[LeftOut] = []
        engines = tuple(
            self._engine(identity, readers, values, absent, plan, left_out)
            for identity, readers in plan.engines.items()
        )
        start = values[plan.start_index] if plan.start_index is not None else None
        if start is not None and not EARLIEST_START < start < page.received_unix_seconds + CLOCK_SKEW_SECONDS:
            start = None
        return replace(
            plan.common,
            engines=engines,
            unix_seconds=page.received_unix_seconds,
            monotonic_seconds=page.received_monotonic_seconds,
            process_start_unix_seconds=start,
            absent=absent,
            foreign_labels={field: label for field, label in plan.foreign.items() if field in absent},
            left_out=tuple(left_out),
        )

    def _engine(
        self,
        identity: EngineIdentity,
        readers: Mapping[str, Reader],
        values: tuple[float, ...],
        absent: dict[str, Absence],
        plan: Plan,
        left_out: list[LeftOut],
    ) -> EngineSnapshot:
        fields: dict[str, Any] = {}
        for name, read in readers.items():
            value = read(values)
            if value is None:
                absent.setdefault(name, _why(name, plan))
            else:
                fields[name] = value
        facts = self._facts
        parts = self._overrides.decode_context_parallel_size or facts.decode_context_parallel_size or 1
        parts *= facts.prefill_context_parallel_size or 1
        for name in plan.of_a_context_part & fields.keys():
            if facts.unread_parallel_sizes:
                del fields[name]
                absent[name] = Absence.LAYOUT_UNREAD
            else:
                fields[name] *= parts
        self._add_limits(identity, fields, absent, plan)
        model_name = identity.model_name
        if not plan.names_models:
            # one model named elsewhere is the page's (a page without the label is of a server of one model)
            named = facts.model_names
            model_name = self._overrides.model_name or (named[0] if len(named) == 1 else "")
        for name in list_implausible(fields):
            left_out.append(LeftOut(model_name, identity.engine, name, describe_value(fields.pop(name))))
            absent[name] = Absence.IMPLAUSIBLE
        return EngineSnapshot(model_name, identity.engine, **fields)

    def _add_limits(
        self, identity: EngineIdentity, fields: dict[str, Any], absent: dict[str, Absence], plan: Plan
    ) -> None:
        """What else than the page says of an engine: its limits, and that what it has not counted yet stands at 0."""
        labelled = identity.engine != "" and not fields.keys().isdisjoint(SHOWS_AN_ENGINE)
        if "requests_running" not in fields and not labelled and not plan.silent:
            return  # limits belong to engines
        for name in _FROM_ZERO & plan.common.awaited:
            fields[name] = 0.0
            absent.pop(name, None)
        # the surest first
        limits = {
            LimitSource.CONFIG: self._overrides.batch_limit_requests,
            LimitSource.PAGE: fields.get("batch_limit_requests"),
            LimitSource.SERVER_INFO: self._facts.batch_limit_requests,
            LimitSource.POD: self._overrides.pod_batch_limit,
            LimitSource.COMMAND_LINE: self._overrides.command_line_batch_limit,
        }
        for source, limit in limits.items():
            if limit is not None:
                fields["batch_limit_requests"], fields["batch_limit_source"] = float(limit), source
                absent.pop("batch_limit_requests", None)
                break
        contexts = self._facts.context_limit_tokens
        context = self._overrides.context_limit_tokens or contexts.get(identity.model_name)
        if context is None and len(set(contexts.values())) == 1:
            context = next(iter(contexts.values()))
        if context is not None:
            fields["context_limit_tokens"] = float(context)
            absent.pop("context_limit_tokens", None)


def _why(field: str, plan: Plan) -> Absence:
    """Why a field that is on the page has no value."""
    if field in plan.inconsistent:
        return Absence.INCONSISTENT
    return Absence.NOT_CONFIGURED if field in plan.unset else Absence.INVALID


_OF_A_COUNTER = re.compile(r"_(?:total|count|sum|bucket)$")


def find_created(body: bytes, runtime: Runtime, sources: Mapping[str, int], fields: Iterable[str]) -> dict[str, float]:
    """Field -> when the youngest of its series was made, in Unix seconds by the server's clock; a field without such a series is left out.

    The `_created` series of Prometheus' and OpenMetrics' client libraries say it. `sources`: the snapshot's, field -> number of its row in
    the runtime's table. Reads the body a second time: only the rare page that shows a counter for the first time pays for it.
    """
    created = {}
    for field in sources.keys() & set(fields):
        names = {
            _OF_A_COUNTER.sub("", spelling) + "_created"
            for text in runtime.rows[sources[field]].samples
            for spelling in spellings(selector(text).name, runtime.respelt)
        }
        line = rb"^(?:%s)(?:\{.*\})?[ \t]+([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)[ \t]*\r?$" % b"|".join(
            re.escape(name.encode()) for name in sorted(names)
        )
        times = [float(match) for match in re.findall(line, body, re.MULTILINE)]
        if times:
            created[field] = max(times)
    return created
