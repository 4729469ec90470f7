"""Loads of models as `ceiling --from-prometheus` reads them, by a step whose time is known, without a Prometheus."""

from collections.abc import Iterator, Mapping, Sequence

from llm_serving_exporter.commands.what_if.answer import Asked, find_facts, find_peaks
from llm_serving_exporter.commands.what_if.capacity import Objective, Request, Server, serve
from llm_serving_exporter.commands.what_if.reach import Factors, Reach, Window
from llm_serving_exporter.commands.what_if.week import Week
from llm_serving_exporter.derive.work import Roof
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct, field

FACTORS: Factors = (1.3, 1.6, 0.5, 0.001, 0.0)
_HOUR_SECONDS = 3600.0


class Served(Struct, frozen=True):
    """A model and what its replicas are; `kv_tokens` and `batch_limit` of a replica."""

    model: str
    gpu: str = "H100 SXM 80GB"
    tensor: int = 1
    replicas: float = 6.0
    usd_per_gpu_hour: float = 2.0
    request: Request = Request(600.0, 200.0, 240.0, 920.0, 930.0)
    objectives: Mapping[str, float] = field(default_factory=lambda: {"ttft": 2.0})
    largest_node: int = 1
    kv_tokens: float = 432_000.0
    batch_limit: float = 256.0
    weight_format: str = "bf16"
    kv_format: str = "bf16"


def make_load(served: Served, rates: Sequence[float]) -> Week:
    """`rates`: requests/s of all replicas, by hour."""
    facts = find_facts(Asked(served.model), served.weight_format)
    server = Server(
        Roof(facts, find_peaks(served.gpu), Parallel(served.tensor)),
        Reach(FACTORS), served.kv_tokens, served.batch_limit,
    )  # fmt: skip
    seconds = len(rates) * _HOUR_SECONDS
    requests = add_up(rates) * _HOUR_SECONDS
    return Week(
        seconds, 1.0, served.model, "unified", served.gpu, served.tensor, 1, served.replicas, served.largest_node,
        tuple(rate for rate in rates for _ in range(12)), served.request, requests, requests * served.request.tokens,
        tuple(_list_windows(server, served, rates)), served.kv_tokens, served.batch_limit, served.objectives,
        served.usd_per_gpu_hour, served.weight_format, served.kv_format,
    )  # fmt: skip


def _list_windows(server: Server, served: Served, rates: Sequence[float]) -> Iterator[Window]:
    request = served.request
    for rate in rates:
        state = serve(server, request, Objective(), rate / served.replicas, round(served.replicas)) if rate else None
        if state is not None:
            prefill = state.batch / (request.output - 1) * request.computed
            yield Window(state.step_seconds, state.batch, request.context, prefill, request.computed, request.cached)
