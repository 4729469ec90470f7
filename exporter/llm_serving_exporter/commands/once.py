"""`once`: one reading of each target as a table or as JSON."""

from __future__ import annotations

import logging
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, TextIO, TypeVar

from llm_serving_exporter.catalogue import BY_NAME
from llm_serving_exporter.clock import elapsed_seconds
from llm_serving_exporter.cost.terms import PER_MILLION, PER_REQUEST
from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.gpus.exporter_source import DcgmSource
from llm_serving_exporter.gpus.kubelet import open_kubelet
from llm_serving_exporter.gpus.node_gpus import open_gpus
from llm_serving_exporter.model.cost import EngineCost, TargetCost
from llm_serving_exporter.model.derived import Derived, EngineDerived, Limiter
from llm_serving_exporter.model.numbers import Quantile, add_up
from llm_serving_exporter.model.reading import PageReading, TargetReading
from llm_serving_exporter.model.record import is_record, name_fields, replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.snapshot import Absence, EngineSnapshot
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.render.numbers import (
    NOTHING,
    count,
    describe_latency,
    describe_price,
    describe_split,
    number,
    share,
    size,
    span,
    usd,
    write_json,
)
from llm_serving_exporter.render.sentences import (
    can_be_set,
    describe_identity,
    describe_limiter,
    describe_suspect,
    explain_without_nvml,
    long_requests_fit,
    longest_share,
    render_isolated,
    title,
    why_absent,
    write_batch_limit,
)
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.problems import listed
from llm_serving_exporter.targets.host import HostedTarget, TargetHost
from llm_serving_exporter.terminal import EXIT_FAILED, EXIT_OK, print_line, print_message

# --- How `once` reads its targets: two samples of each, side by side, so that many take no longer than the slowest.


log = logging.getLogger("llm_serving_exporter.once")

# read at the same time; each is a thread that waits for its server
MOST_AT_ONCE = 64
# targets whose samples are no further apart share a pass over the GPUs
PASS_LASTS_SECONDS = 1.0
PROGRESS_EVERY_SECONDS = 0.5


class GpuPasses:
    """Passes over this node's GPUs for targets that are read in threads of their own: one at a time, shared where it is fresh."""

    def __init__(self, host: TargetHost) -> None:
        self._host = host
        self._lock = threading.Lock()
        self._count, self._ended = 0, 0.0

    def read(self, used: int = 0) -> int:
        """Sees to it that there is a pass of now, after the one with the number `used`; its number."""
        with self._lock:
            if self._count <= used or elapsed_seconds() - self._ended > PASS_LASTS_SECONDS:
                self._host.gpus.read_kubelet()
                self._host.read_gpus()
                self._host.gpus.read_dcgm()
                self._count, self._ended = self._count + 1, elapsed_seconds()
            return self._count


def read_twice(
    hosted: HostedTarget, gpus: GpuPasses, wait_seconds: float, wait: Callable[[float], None] = time.sleep
) -> TargetReading:
    """Two ticks `wait_seconds` apart, so that rates exist. One tick where the first fails. The GPUs are read before each."""
    used = gpus.read()
    reading = hosted.tick()
    hosted.refresh_facts()
    if reading.page.up:
        wait(wait_seconds)
        gpus.read(used)
        reading = hosted.tick()
    return reading


def read_all(host: TargetHost, wait_seconds: float, progress: TextIO) -> list[TargetReading]:
    """The readings of all the host's targets, in the order in which they were added. On a terminal, how far it is, on `progress`.

    A target whose reading fails for a fault of our own has that for its problem, and the others are read all the same.
    """
    targets, gpus = list(host.targets.values()), GpuPasses(host)
    readings = [TargetReading(hosted.target) for hosted in targets]
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    for place in range(len(targets)):
        todo.put(place)
    done = threading.Semaphore(0)

    def work() -> None:
        while True:
            try:
                place = todo.get_nowait()
            except queue.Empty:
                return
            readings[place] = _read_isolated(targets[place], gpus, wait_seconds)
            done.release()

    for _ in range(min(len(targets), MOST_AT_ONCE)):
        # an interrupted command does not wait for servers that hang
        threading.Thread(target=work, name="once", daemon=True).start()
    what = targets[0].target.name if len(targets) == 1 else count_nouns(len(targets), "target")
    _await(done, len(targets), what, progress)
    return readings


def _read_isolated(hosted: HostedTarget, gpus: GpuPasses, wait_seconds: float) -> TargetReading:
    try:
        return read_twice(hosted, gpus, wait_seconds)
    except Exception as error:
        log.exception("target=%s: reading it failed; this is a bug, please report it", hosted.target.name)
        problem = f"internal error ({type(error).__name__}); see the log"
        return TargetReading(hosted.target, page=PageReading(up=False, problem=problem))


def _await(done: threading.Semaphore, count: int, what: str, progress: TextIO) -> None:
    """Until `count` targets are done, with a line that says how many are on a terminal."""
    on_terminal, begun, finished = progress.isatty(), elapsed_seconds(), 0
    while finished < count:
        if done.acquire(timeout=PROGRESS_EVERY_SECONDS):
            finished += 1
        elif on_terminal:
            of = "" if count == 1 else f", {finished} done"
            progress.write(f"\rreading {what}: two samples{of}, {elapsed_seconds() - begun:.0f} s ")
            progress.flush()
    if on_terminal:
        progress.write("\r\x1b[K")


# --- `once`: what a target costs, for the table and for JSON, from no more than two samples.


_PHASES = ("prefill", "decode", "blended")
# signals that nothing can be said of where the target has not answered: its problem says why
_OF_TOKENS = (PER_MILLION, PER_REQUEST)


def cost_document(reading: TargetReading) -> dict[str, Any] | None:
    """Names as the exported series, without prefix; `signals` has why a figure is absent. None before the first tick."""
    cost = reading.cost
    if cost is None:
        return None
    gpus, price = reading.gpus.total, cost.price
    return {
        "gpus": gpus.count if gpus is not None else None,
        "gpu_name": gpus.name or None if gpus is not None else None,
        "price_usd_per_gpu_hour": price.usd_per_gpu_hour if price is not None else None,
        "rate": price.rate.name if price is not None else None,
        "before_commitments": price is not None and price.before_commitments,
        "method": cost.method.value,
        "engines": [_engine_document(each) for each in cost.engines],
        "signals": {name: reason.value for name, reason in cost.signals.items()},
    }


def _engine_document(engine: EngineCost) -> dict[str, Any]:
    each: dict[str, dict[str, float]] = {}
    for (phase, basis), amount in engine.window.usd_per_million_tokens.items():
        each.setdefault(phase, {})[basis] = amount
    return {
        "model_name": engine.model_name,
        "engine": engine.engine,
        "role": engine.role,
        "cost_usd_per_million_tokens": each,
        "tokens_per_usd": engine.window.tokens_per_usd,
        "cost_usd_per_request_mean": engine.window.usd_per_request,
        "energy_joules_per_token": engine.window.joules_per_token,
    }


def cost_lines(reading: TargetReading) -> list[str]:
    """Lines for the table: the price in force and each engine's figures. () where the target has no price or did not answer."""
    cost = reading.cost
    price = None if cost is None else describe_price(reading, cost)
    if cost is None or price is None or not reading.page.up:
        return []
    lines = [f"\n  cost: {price}; {describe_split(cost)}"]
    for each in cost.engines:
        rows = _engine_rows(each)
        if rows:
            width = max(len(label) for label, _ in rows)
            lines.append(f"    model {each.model_name or '?'}, engine {each.engine}")
            lines += [f"      {label:<{width}}  {value}" for label, value in rows]
    return lines


def _engine_rows(one: EngineCost) -> list[tuple[str, str]]:
    each, window = one.window.usd_per_million_tokens, one.window
    rows = []
    for phase in _PHASES:
        allocated, busy = each.get((phase, "allocated")), each.get((phase, "busy"))
        if allocated is not None:
            without_idle = f" ({usd(busy)} without idle time)" if usd(busy) != usd(allocated) else ""
            rows.append((phase, f"{usd(allocated)} per million tokens{without_idle}"))
    if not rows and window.tokens_per_usd:
        # what is known without the split that needs the model
        rows.append(
            ("all tokens", f"{usd(1e6 / window.tokens_per_usd)} per million tokens, sent and generated together")
        )
    if window.usd_per_request is not None:
        rows.append(("request, mean", usd(window.usd_per_request)))
    if window.joules_per_token is not None:
        rows.append(("energy", number(window.joules_per_token, "J/token")))
    return rows


def absent_costs(reading: TargetReading) -> Mapping[str, str]:
    """Why each figure of cost is absent: signal -> sentence. Empty where the target did not answer."""
    cost = reading.cost
    if cost is None or not reading.page.up:
        return {}
    return {signal: _why(signal, why, reading, cost) for signal, why in cost.signals.items() if why}


def _why(signal: str, why: Absence, reading: TargetReading, cost: TargetCost) -> str:
    if signal not in _OF_TOKENS or cost.price is None or why not in (Absence.IDLE, Absence.WARMING_UP):
        return why_absent(signal, why, reading.server.missing, reading.gpus.lacks)
    between = (
        f"the {span(reading.page.derived.window_seconds)} between the two samples"
        if reading.page.derived
        else "one sample"
    )
    if why is Absence.IDLE:
        nothing = "no request finished" if signal == PER_REQUEST else "no token was counted"
        return f"In {between} {nothing}, and without one there is no cost of one: try a longer --wait."
    return f"What {between} cost is not split over tokens yet: try a longer --wait."


# --- The command


T = TypeVar("T")


def run(
    config: Config,
    targets: Sequence[Target],
    *,
    wait_seconds: float,
    as_json: bool,
    everything: bool = False,
    host: TargetHost | None = None,
) -> int:
    """Reads each target twice, `wait_seconds` apart, all of them side by side, and prints what it found.

    Gives the exit status: 0 where all answered and could be shown, else 1.

    `everything`: the table lists every absent signal, not only those that somebody can act on. `host`: what reads them (default: one of its
    own, with NVML and dcgm-exporter as configured). Raises ConfigError where a target or the dcgm-exporter cannot be asked as configured.
    """
    if not targets:
        keys = dict.fromkeys(section.kind for section in config.discovery)
        sources = f"{listed(keys, 'and')} {'has' if len(keys) == 1 else 'have'}" if keys else "the configuration has"
        here = "" if config.shard is None else f" in shard {config.shard}"
        print_message(f"error: {sources} no target to read{here} now")
        return EXIT_FAILED
    for fault in config.price_problems:
        print_message(f"error: {fault}")
    for warning in config.price_warnings:
        print_message(f"warning: {warning}")
    host = host if host is not None else open_host(config, wait_seconds)
    try:
        for target in targets:
            host.add_target(fit_target(target, wait_seconds))
        host.settle_targets()
        readings = read_all(host, wait_seconds, sys.stderr)
    finally:
        host.close()
    failed: list[str] = []
    if as_json:
        documents = [_isolate(reading, as_document_of, _describe_unshown, failed) for reading in readings]
        printed = print_line(write_json(documents[0] if len(documents) == 1 else documents))
    else:
        table = partial(as_table, everything=everything)
        tables = [_isolate(reading, table, _name_unshown, failed) for reading in readings]
        printed = print_line("\n".join([*tables, *_explain_gpus(host, readings)]))
    return EXIT_OK if printed and not failed and all(reading.page.up for reading in readings) else EXIT_FAILED


def _explain_gpus(host: TargetHost, readings: Sequence[TargetReading]) -> list[str]:
    """Without NVML: what is missing for it, and what to set."""
    read = host.gpus.latest.readings
    if not any(reading.page.up for reading in readings):
        return []
    return [f"\n{' '.join(sentences)}"] if (sentences := explain_without_nvml(read, readings)) else []


def _isolate(
    reading: TargetReading,
    render: Callable[[TargetReading], T],
    instead: Callable[[TargetReading, str], T],
    failed: list[str],
) -> T:
    """A target's part of the answer; one that cannot be made is named in `failed`, and takes none of the others with it."""

    def leave_out(why: str) -> T:
        failed.append(reading.target.name)
        return instead(reading, why)

    return render_isolated(f"target {reading.target.name}", lambda: render(reading), leave_out)


def _describe_unshown(reading: TargetReading, why: str) -> dict[str, Any]:
    return {"target": reading.target.name, "state": reading.server.state.value, "problem": why, "engines": []}


def _name_unshown(reading: TargetReading, why: str) -> str:
    return f"{reading.target.name}: {reading.server.state.value}\n  {why}"


def open_host(config: Config, wait_seconds: float) -> TargetHost:
    """A host with the GPUs of this node and the device exporters as configured. Raises ConfigError."""
    dcgm = DcgmSource(config.dcgm) if config.dcgm is not None else None
    return TargetHost(
        fit_config(config, wait_seconds),
        gpu_source=open_gpus(config),
        dcgm_source=dcgm,
        kubelet_source=open_kubelet(config.gpu),
    )


def fit_config(config: Config, wait_seconds: float) -> Config:
    """The configuration with windows that hold both samples, however far apart they are."""
    return replace(config, window_seconds=max(config.window_seconds, 2 * wait_seconds))


def fit_target(target: Target, wait_seconds: float) -> Target:
    """The target with an interval no shorter than the wait: a longer wait would pass for an outage, of which nothing is known."""
    return replace(target, interval_seconds=max(target.interval_seconds, wait_seconds))


def _plain(value: Any) -> Any:
    if is_record(value):
        return {name: _plain(getattr(value, name)) for name in name_fields(value) if name != "figures"}
    if isinstance(value, Mapping):
        return {str(key.value if isinstance(key, Enum) else key): _plain(item) for key, item in value.items()}
    if isinstance(value, Quantile):
        return value._asdict()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def as_document_of(reading: TargetReading) -> dict[str, Any]:
    """The reading for programs: names as the exported series, without prefix; null where absent, with reasons in `signals`."""
    snapshot, derived = reading.page.snapshot, reading.page.derived
    return {
        "target": reading.target.name,
        "identity": {**_plain(reading.target.identity), "labels": dict(reading.target.identity.labels)},
        "nodes": list(reading.target.nodes),
        "state": reading.server.state.value,
        "problem": reading.page.problem or None,
        "runtime": reading.server.runtime or None,
        "version": reading.server.facts.version,
        "metrics_url": reading.server.metrics_url,
        "window_seconds": derived.window_seconds if derived else None,
        "engines": [
            {**_add_former_names(_plain(engine)), "derived": _figures(figures)}
            for engine, figures in zip(
                snapshot.engines if snapshot else (), derived.engines if derived else (), strict=True
            )
        ],
        "limiter": derived.verdict.state.value if derived and derived.verdict else None,
        "limiter_evidence": dict(derived.verdict.evidence) if derived and derived.verdict else {},
        "suspect": {name: cause.value for name, cause in derived.causes.items()} if derived else {},
        "cost": cost_document(reading),
        "models": {name: _model(facts) for name, facts in reading.server.models.items()},
        "signals": {name: reason.value for name, reason in derived.signals.items()} if derived else {},
        "quality": {name: quality.value for name, quality in derived.quality.items()} if derived else {},
    }


def _figures(figures: EngineDerived) -> dict[str, Any]:
    """What is derived, with each published gauge that has one value under the name of its series."""
    plain: dict[str, Any] = _plain(figures)
    published = {name: values[()] for name, values in figures.series.items() if () in values}
    return _add_former_names(plain | published)


def _add_former_names(document: dict[str, Any]) -> dict[str, Any]:
    """With what has the name of a series that was renamed under its former name, too."""
    renamed = [(name, BY_NAME[name].former) for name in document if name in BY_NAME]
    return document | {former.name: document[name] for name, former in renamed if former is not None}


def _model(facts: ModelFacts | FactsError) -> dict[str, Any]:
    if isinstance(facts, FactsError):
        return {"known": False, "problem": str(facts)}
    geometry = facts.geometry
    return {
        "known": True,
        "origin": facts.origin,
        "family": geometry.family,
        "parameters_total": geometry.parameters_total,
        "parameters_active": geometry.parameters_active,
        "decode_read_parameters": geometry.decode_read_parameters,
        "weight_bytes": facts.weight_bytes,
        "kv_bytes_per_token": facts.kv_bytes_per_token,
        "weight_formats": sorted({group.format.name for group in facts.groups}),
        "kv_format": facts.kv_format,
    }


def _rows(engine: EngineSnapshot, figures: EngineDerived) -> list[tuple[str, str]]:
    rates = figures.phase_tokens_per_second
    limit = f", {write_batch_limit(engine)}" if engine.batch_limit_requests is not None else ""
    batch = figures.batch_size_mean
    return [
        ("prefill", number(rates.get("prefill"), "tokens/s")),
        ("decode", number(rates.get("decode"), "tokens/s")),
        ("requests running", count(engine.requests_running) + limit),
        ("requests waiting", count(engine.requests_waiting)),
        ("batch size, mean", number(batch, "sequences decoding in a step") if batch is not None else NOTHING),
        ("batch utilisation", share(figures.batch_utilization_ratio)),
        ("KV cache in use", f"{share(engine.kv_cache_usage_ratio)} of {count(engine.kv_cache_capacity_tokens)} tokens"),
        ("prefix cache hits", share(figures.prefix_cache_hit_ratio)),
        ("context, mean", number(figures.context_tokens_mean, "tokens")),
        ("KV cache a request", number(figures.kv_cache_tokens_per_request, "tokens")),
        ("preemptions", number(figures.preemptions_per_second, "per s")),
        *_tail_rows(figures),
        *((title(name), describe_latency(figures.latency.get(name))) for name in ("ttft", "itl", "e2e", "queue")),
        *_roofline_rows(figures),
    ]


def _tail_rows(figures: EngineDerived) -> list[tuple[str, str]]:
    rows = []
    share_of_context, bounds = longest_share(figures.tail)
    if bounds:
        rows.append(("longest 1 % of requests", f"{share_of_context} {bounds}"))
    fit, prompt = long_requests_fit(figures.tail)
    if prompt:
        rows.append(("long requests that fit", f"{fit}, {prompt}"))
    return rows


def _of_a_loaded_model(engine: EngineSnapshot) -> list[tuple[str, str]]:
    if engine.model_gpu_memory_bytes is None:
        return []
    return [
        ("GPU memory", size(engine.model_gpu_memory_bytes)),
        ("longest context", f"{count(engine.context_limit_tokens)} tokens"),
    ]


def _roofline_rows(figures: EngineDerived) -> list[tuple[str, str]]:
    """What needs facts; a row only where there is something to say."""
    roof = figures.roofline
    rows = []
    if roof.ratio:
        sources = ", ".join(f"{source} {share(value)}" for source, value in roof.ratio.items())
        ceiling = None if roof.bandwidth_ceiling is None else roof.bandwidth_ceiling / 1e12
        rows.append(("memory bandwidth", f"{sources} of {number(ceiling, 'TB/s')}"))
    if roof.compute_ratio is not None:
        rows.append(("compute", f"{share(roof.compute_ratio)} of the dense peak"))
    if roof.decode_ceiling is not None:
        ridge = f"; compute-bound from batch {number(roof.batch_ridge)}" if roof.batch_ridge is not None else ""
        rows.append(
            ("decode ceiling", f"{number(roof.decode_ceiling, 'tokens/s')}, reached {share(roof.decode_ratio)}{ridge}")
        )
    if figures.gpu_memory_bytes:
        parts = ", ".join(f"{part} {size(value)}" for part, value in figures.gpu_memory_bytes.items())
        rows.append(("GPU memory", parts))
    return rows


def _absent(derived: Derived, reading: TargetReading, everything: bool) -> list[str]:
    """One line a reason, with the signals that it keeps away: what somebody can act on first, and only that unless `everything`."""
    of_cost = absent_costs(reading)
    of_page = {
        name: why_absent(name, why, reading.server.missing, reading.gpus.lacks)
        for name, why in derived.signals.items()
        if why
    }
    sentences = {**of_page, **of_cost}
    reasons = {**derived.signals, **(reading.cost.signals if of_cost and reading.cost is not None else {})}
    by_sentence: dict[str, list[str]] = {}
    for signal in sorted(sentences, key=lambda name: not can_be_set(reasons[name])):
        if everything or can_be_set(reasons[signal]):
            by_sentence.setdefault(sentences[signal], []).append(title(signal))
    lines = [f"    {', '.join(signals)}: {sentence}" for sentence, signals in by_sentence.items()]
    left = len(sentences) - add_up(map(len, by_sentence.values()))
    if left:
        what = "signals are" if left > 1 else "signal is"
        lines.append(
            f"    {left} more {what} absent for reasons that pass or that nothing here changes: --all lists them"
        )
    return lines


def as_table(reading: TargetReading, *, everything: bool = False) -> str:
    """The reading for a person, with what is absent and why: of that all where `everything`, else what somebody can act on."""
    server = reading.server
    runtime = f"{server.runtime or 'runtime unknown'} {server.facts.version or ''}"
    lines = [f"{reading.target.name}: {server.state.value}, {runtime}".rstrip()]
    if server.metrics_url:
        lines.append(f"  {server.metrics_url}")
    if identity := describe_identity(reading.target):
        lines.append(f"  {identity}")
    if reading.page.problem:
        lines.append(f"  {reading.page.problem}")
    snapshot, derived = reading.page.snapshot, reading.page.derived
    for engine, figures in zip(snapshot.engines if snapshot else (), derived.engines if derived else (), strict=True):
        rows = _rows(engine, figures) if engine.is_engine else _of_a_loaded_model(engine)
        if not rows:
            continue  # families without the engine's label, on a page with several engines
        lines.append(f"\n  model {engine.model_name or '?'}, engine {engine.engine}")
        width = max(len(label) for label, _ in rows)
        lines += [f"    {label:<{width}}  {value}" for label, value in rows]
    lines += cost_lines(reading)
    for name, facts in reading.server.models.items():
        if isinstance(facts, FactsError):
            lines.append(f"\n  model {name or '?'} is not known: {facts}")
    if derived and derived.verdict and derived.verdict.state is not Limiter.UNKNOWN:
        lines.append(f"\n  limited by {describe_limiter(derived.verdict)}")
    if derived:
        lines += [f"  suspect: {describe_suspect(signal, cause)}" for signal, cause in derived.causes.items()]
        lines.append(f"\n  over {span(derived.window_seconds)}; not available:")
        lines += _absent(derived, reading, everything) or ["    nothing is missing"]
    return "\n".join(lines)
