"""What Prometheus knows of a model over some days: its load by five minutes, its requests, how its engines stepped, what it cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from llm_serving_exporter.clients.json_api import Prometheus, Sample
from llm_serving_exporter.clients.stored_labels import escape_regex
from llm_serving_exporter.commands.what_if.capacity import Request
from llm_serving_exporter.commands.what_if.reach import Window
from llm_serving_exporter.errors import LLMServingExporterError
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.target import Role
from llm_serving_exporter.model.text import escape_label_value

_STEP_SECONDS = 300.0
# windows that are asked for at most, of all replicas together
_MOST_WINDOWS = 60_000
# gaps between tokens that a window needs before its mean says something
_FEWEST_GAPS = 100.0
# moments with fewer requests than this share of the busiest say little of what the busiest are like
_BUSY_SHARE = 0.7
# of the time to a first token, beyond which the queue is long
_LONG_QUEUE = 0.5
# beyond so many deviations a five-minute rate is a burst, and no chance
_CHANCE = 3.0
# the objectives that an answer holds the load against
_OBJECTIVES = ("ttft", "itl", "e2e")
Points = Mapping[float, float]


class UnansweredError(LLMServingExporterError):
    """A question that what Prometheus has cannot answer; the message says what to do."""


class Week(Struct, frozen=True):
    """A model and role over the days that were asked for."""

    seconds: float  # in which there were targets
    present_share: float  # of the time since the first request that was seen
    model_name: str
    role: str
    gpu_name: str
    gpus: int  # of a replica
    ranks: int  # data-parallel, of a replica
    replicas: float  # mean
    largest_node: int  # replicas that it has; 0: not known
    rates: tuple[float, ...]  # requests/s, each over five minutes
    request: Request  # of the busiest moments
    requests: float  # in all
    tokens: float  # prompts as sent, and answers, in all
    windows: tuple[Window, ...]
    kv_tokens: float | None  # of a replica
    batch_limit: float | None  # of a replica
    objectives: Mapping[str, float]  # thresholds in seconds
    usd_per_gpu_hour: float | None
    weight_format: str
    kv_format: str


def smooth_peak(rates: Sequence[float], share: float) -> float:
    """The rate that a share of requests come at or below. Chance within five minutes is smoothed, a burst stays."""
    smooth = []
    for place, rate in enumerate(rates):
        near = rates[max(0, place - 2) : place + 3]
        mean = add_up(near) / len(near)
        chance = _CHANCE * math.sqrt(max(rate, mean) / _STEP_SECONDS)
        smooth.append(mean if abs(rate - mean) <= chance else rate)
    left = (1 - share) * add_up(smooth)
    for rate in sorted(smooth, reverse=True):
        left -= rate
        if left < 0:
            return rate
    return 0.0


def find_first_token_seconds(
    seconds: float | None, events: float | None, queued: float | None, left: float | None
) -> float | None:
    """Mean seconds from the queue to a first token, of `events` first tokens and of `left` requests that had been queued; None where that
    is not known, or where queues were long: who ends has waited at another time than who begins."""
    if not seconds or not events or queued is None or not left:
        return None
    first, queue = seconds / events, queued / left
    return first - queue if queue <= _LONG_QUEUE * first else None


# queries by what they tell, § standing for the labels of what is asked about. Rates are a second, over five minutes
_FINISHED = "model:llm_serving_requests_finished:rate5m{§}"
_OF_MODEL = {
    "sent tokens": "model:llm_serving_prompt_tokens:rate5m{§}",
    "computed tokens": 'model:llm_serving_phase_tokens:rate5m{§,phase="prefill"}',
    "made tokens": 'model:llm_serving_phase_tokens:rate5m{§,phase="decode"}',
    "running": "avg_over_time(model:llm_serving_requests_running:sum{§}[5m])",
    "KV tokens": "avg_over_time(model:llm_serving_kv_cache_used_tokens:sum{§}[5m])",
}
_BY_TARGET = {
    "computed tokens": 'last_over_time(target:llm_serving_phase_tokens:rate5m{§,phase="prefill"}[5m])',
    "made tokens": 'last_over_time(target:llm_serving_phase_tokens:rate5m{§,phase="decode"}[5m])',
    "batch": "avg_over_time(target:llm_serving_batch_size_mean:max{§}[5m])",
    "context": "avg_over_time(target:llm_serving_context_tokens_mean:max{§}[5m])",
    "running": "avg_over_time(target:llm_serving_requests_running:sum{§}[5m])",
    "never idle": "min_over_time(target:llm_serving_requests_running:sum{§}[5m])",
}
# of engines, which have no record: how long gaps, first tokens and the queue before them took in all, and how many there were
_BY_ENGINE = {
    "gap seconds": "llm_serving_inter_token_latency_seconds_sum{§}",
    "gaps": 'llm_serving_inter_token_latency_seconds_bucket{§,le="+Inf"}',
    "first token seconds": "llm_serving_time_to_first_token_seconds_sum{§}",
    "first tokens": 'llm_serving_time_to_first_token_seconds_bucket{§,le="+Inf"}',
    "queue seconds": "llm_serving_request_queue_time_seconds_sum{§}",
    "queued": 'llm_serving_request_queue_time_seconds_bucket{§,le="+Inf"}',
}


class _Reader:
    """Queries about what has these labels over the same moments. What is below 0 was never measured: these are counts."""

    def __init__(self, prometheus: Prometheus, labels: Mapping[str, str], begin: float, end: float) -> None:
        self._prometheus, self._begin, self.end = prometheus, begin, end
        self.span = f"{end - begin:.0f}s"
        self._labels = ",".join(f'{name}="{escape_label_value(value)}"' for name, value in labels.items())
        self.gpus = f"last_over_time(target:llm_serving_gpus:max{{§}}[{self.span}])"

    def points(self, query: str, step_seconds: float = _STEP_SECONDS) -> dict[str, Points]:
        """By target, "" for a sum of them."""
        series = self._prometheus.range(
            query.replace("§", self._labels), self._begin + _STEP_SECONDS, self.end, step_seconds
        )
        return {
            labels.get("target", ""): {at: value for at, value in points if value >= 0} for labels, points in series
        }

    def total(self, query: str) -> Points:
        """Of all series together; none where there is none."""
        return self.points(f"sum({query})").get("", {})

    def instant(self, query: str) -> Sequence[Sample]:
        """At the end of the days."""
        return self._prometheus.instant(query.replace("§", self._labels), self.end)

    def value(self, query: str) -> float | None:
        """At the end of the days."""
        value = self._prometheus.value(query.replace("§", self._labels), self.end)
        return value if value is not None and value >= 0 else None

    def mean(self, record: str, function: str = "avg_over_time") -> float | None:
        """Of a record over the days, of all its series."""
        return self.value(f"avg({function}({record}{{§}}[{self.span}]))")


def read_week(prometheus: Prometheus, model: str, role: str | None, seconds: float) -> Week:
    """The days until now. Raises UnansweredError where there is nothing to go by, ApiError where Prometheus does not answer."""
    end = prometheus.now()
    name, role = _find_model(prometheus, model, role, seconds, end)
    return read_load(prometheus, {"model_name": name, "role": role}, end - seconds, end)


def read_load(prometheus: Prometheus, labels: Mapping[str, str], begin: float, end: float) -> Week:
    """What has these labels (model_name, role, and those that tell fleets apart) between two moments; raises what `read_week` does."""
    reader = _Reader(prometheus, labels, begin, end)
    seconds, name, role = end - begin, labels["model_name"], labels["role"]
    finished = reader.total(_FINISHED)
    if not add_up(finished.values()):
        raise UnansweredError(
            f"{name} ({role}) finished no request in the last {seconds / 86400:g} days: ask about days with a load, with a longer --over"
        )
    rates = {"finished": finished, **{what: reader.total(query) for what, query in _OF_MODEL.items()}}
    # a pool of one phase may not count the other's tokens
    for words, other, kinds in (
        ("prompts", Role.DECODE, ("sent tokens", "computed tokens")),
        ("answers", Role.PREFILL, ("made tokens",)),
    ):
        if role != other and not any(add_up(rates[kind].values()) for kind in kinds):
            raise UnansweredError(
                f"no token of {words} was counted for {name} ({role}), as where a model embeds or its engines do not say: "
                "ask about one that is counted"
            )
    gpu, gpus = _find_gpus(reader, name)
    engines = f"count by (target, engine) (last_over_time(llm_serving_kv_cache_usage_ratio{{§}}[{reader.span}]))"
    ranks = reader.value(f"max(count by (target) ({engines}))")
    usd, held = (
        reader.value(f"sum(sum_over_time({record}:increase1h{{§}}[{reader.span}:1h]))")
        for record in ("model:llm_serving_cost_usd", "target:llm_serving_gpu_seconds")
    )
    stated = f"avg(last_over_time(llm_serving_gpu_price_usd_per_hour[{reader.span}]) and on (target) {reader.gpus})"
    price = 3600 * usd / held if usd and held else reader.value(stated)
    replicas = reader.mean("model:llm_serving_ready_replicas:sum") or 0.0
    node = reader.mean("model:llm_serving_largest_node_replicas:max", "max_over_time")
    info = f'last_over_time(llm_serving_model_info{{model_name="{escape_label_value(name)}"}}[{reader.span}])'
    formats = next((labels for labels, _ in prometheus.instant(info, end)), {})
    count = reader.value("count(target:llm_serving_gpus:max{§})") or replicas or 1.0
    step_seconds = _STEP_SECONDS * math.ceil(count * seconds / _STEP_SECONDS / _MOST_WINDOWS)
    seen = len(finished) * _STEP_SECONDS
    return Week(
        seen, seen / (end - min(finished) + _STEP_SECONDS), name, role,
        gpu, round(gpus), max(1, round(ranks or 1)), replicas, round(node or 0),
        tuple(finished[at] for at in sorted(finished)), _mean_request(rates, reader.mean("target:llm_serving_context_tokens_mean:max")),
        add_up(finished.values()) * _STEP_SECONDS,
        (add_up(rates["sent tokens"].values()) + add_up(rates["made tokens"].values())) * _STEP_SECONDS,
        tuple(_list_windows(reader, rates, step_seconds)),
        reader.mean("target:llm_serving_kv_cache_capacity_tokens:sum", "max_over_time"),
        reader.mean("target:llm_serving_batch_limit_requests:sum", "max_over_time"),
        _objectives(reader), price,
        formats.get("weight_format", ""), formats.get("kv_format", ""),
    )  # fmt: skip


def _find_gpus(reader: _Reader, name: str) -> tuple[str, float]:
    """Of a replica: their kind and their number."""
    most, least = (
        {labels.get("gpu_name", ""): n for labels, n in reader.instant(f"{function} by (gpu_name) ({reader.gpus})")}
        for function in ("max", "min")
    )
    if len(most) > 1:
        many = " and ".join(sorted(kind or "an unknown GPU" for kind in most))
        raise UnansweredError(
            f"{name} ran on {many}, whose steps cannot be separated: ask about days with one kind, with --over"
        )
    ((kind, gpus),) = most.items() or [("", 0.0)]
    if not kind:
        raise UnansweredError(f"the GPUs of {name} are not known: give its targets gpu_model and gpu_count")
    fewest = least.get(kind, gpus)
    if gpus != fewest:
        raise UnansweredError(
            f"replicas of {name} ran on {fewest:.3g} to {gpus:.3g} x {kind}, whose steps cannot be separated: "
            "ask about days with one size, with --over"
        )
    if gpus < 1 or gpus != round(gpus):
        raise UnansweredError(
            f"a replica of {name} has {gpus:.3g} x {kind}: what a part of a card reaches beside its neighbours is not known; "
            "ask about a model on whole cards"
        )
    return kind, gpus


def _find_model(prometheus: Prometheus, model: str, role: str | None, seconds: float, end: float) -> tuple[str, str]:
    """The name as served, and the role."""
    query = f"count by (model_name, role) (last_over_time(model:llm_serving_targets:count[{seconds:.0f}s]))"
    known = {(labels.get("model_name", ""), labels.get("role", "")) for labels, _ in prometheus.instant(query, end)}
    if not known:
        raise UnansweredError(
            "Prometheus has no record of any model: load the recording rules (llm-serving-exporter rules) and ask after a day of load"
        )
    names = sorted({name for name, _ in known})
    short = model.lower().rsplit("/", 1)[-1]
    served = [name for name in names if name == model] or [
        name for name in names if name.lower().rsplit("/", 1)[-1] == short
    ]
    if len(served) != 1:
        raise UnansweredError(f"Prometheus has no record of a model {model}: write one of {', '.join(names)}")
    roles = sorted(of for name, of in known if name == served[0])
    asked = [of for of in roles if role in (None, of)]
    if len(asked) != 1:
        raise UnansweredError(f"{served[0]} is served as {' and '.join(roles)}: choose one with --role")
    return served[0], asked[0]


def _mean_request(rates: Mapping[str, Points], context: float | None) -> Request:
    """Of the moments at which requests come at nearly the highest rates. `context`: tokens that a decode step attends to."""
    finished = rates["finished"]
    highest = sorted(finished.values())[int(0.99 * (len(finished) - 1))]
    busy = {at for at, rate in finished.items() if rate >= _BUSY_SHARE * highest}

    def mean(what: str) -> float:
        points = {at: value for at, value in rates[what].items() if at in busy}
        count = add_up(finished[at] for at in points)
        return add_up(points.values()) / count if count else 0.0

    computed, sent, output, running, used = map(
        mean, ("computed tokens", "sent tokens", "made tokens", "running", "KV tokens")
    )
    context = context or sent + output / 2
    held = used / running if running and used else context
    return Request(computed, max(0.0, sent - computed), max(1.0, output), context, held)


def _list_windows(reader: _Reader, rates: Mapping[str, Points], step_seconds: float) -> Iterator[Window]:
    """Of each replica, five minutes in which it worked. `rates`: of the model."""
    series = {
        what: reader.points(query, step_seconds)
        for what, query in (
            *((what, f"max by (target) ({query})") for what, query in _BY_TARGET.items()),
            *((what, f"sum by (target) (max by (target, engine) (rate({counter}[5m])))") for what, counter in _BY_ENGINE.items()),
            ("clock", _clock_query(reader)),
        )
        if query
    }  # fmt: skip
    if not series["gap seconds"] or not series["gaps"]:
        # kept by nobody: sequences that run are those whose next token is waited for
        series |= {"gap seconds": series["running"], "gaps": series["made tokens"]}
    for target, points in series["computed tokens"].items():
        for at, prefill in points.items():
            now = {what: by_target.get(target, {}).get(at) for what, by_target in series.items()}
            begun, whole = rates["finished"].get(at), rates["computed tokens"].get(at)
            if not begun or whole is None:
                continue
            cached = (rates["sent tokens"].get(at, 0.0) - whole) / begun
            prompt = whole / begun, cached if cached >= 1 else 0.0
            latency, events, context, clock = now["gap seconds"], now["gaps"], now["context"], now.get("clock")
            if latency and events and context and events * _STEP_SECONDS >= _FEWEST_GAPS:
                # a step's sequences; where nobody counts steps, of a Poisson number of them those that are there when some are
                batch = max(1.0, now["batch"] or latency / -math.expm1(-latency))
                first = find_first_token_seconds(
                    now["first token seconds"], now["first tokens"], now["queue seconds"], now["queued"]
                )
                step = latency / events
                yield Window(step, batch, context, prefill * step, *prompt, clock, first)
            elif prefill and now["never idle"]:
                yield Window(1.0, 0.0, 0.0, prefill, *prompt, clock)


def _clock_query(reader: _Reader) -> str:
    """Of the cards of these targets alone: a fleet may have thousands. "" where none is known."""
    cards = reader.instant(
        f"count by (gpu) (last_over_time(llm_serving_gpu_target_info[{reader.span}]) and on (target) {reader.gpus})"
    )
    which = f'gpu=~"{escape_label_value("|".join(escape_regex(labels.get("gpu", "")) for labels, _ in cards))}"'
    target = f"max by (gpu, target) (last_over_time(llm_serving_gpu_target_info{{{which}}}[5m]))"
    clock = f"max by (gpu) (avg_over_time(gpu:llm_serving_gpu_sm_clock:ratio{{{which}}}[5m]))"
    return f"avg by (target) ({target} * on (gpu) group_left () {clock})" if cards else ""


def _objectives(reader: _Reader) -> dict[str, float]:
    """By name, the threshold that counts."""
    found: dict[str, float] = {}
    query = f"count by (slo, threshold) (last_over_time(llm_serving_slo_events_total{{§}}[{reader.span}]))"
    for labels, _ in reader.instant(query):
        with suppress(ValueError):
            seconds = float(labels.get("threshold", ""))
            if labels.get("slo") in _OBJECTIVES and 0 < seconds < math.inf:
                found[labels["slo"]] = seconds
    return found
