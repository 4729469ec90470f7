"""The review of docs/sample: a simulated fortnight of a small fleet, in closed form, so that it comes out the same each time.

One model is scaled by the clock, one moved to cheaper GPUs on Wednesday, one came on Tuesday; a batch job ran for ten hours on Thursday; an
exporter was away on Saturday; some committed GPUs stood unused. Ten earlier weeks are known from tables, two of them are not.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import pi, sin

from llm_serving_exporter.commands.what_if.capacity import Request
from llm_serving_exporter.commands.what_if.week import Week as Load
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import name_fields
from llm_serving_review.evidence.context import ModelLoad
from llm_serving_review.evidence.past import Past, Source, WeekSpend, list_weeks_before
from llm_serving_review.evidence.usage import (
    Book,
    Episode,
    Evidence,
    Fleet,
    Gap,
    Gauge,
    Hours,
    Line,
    Owner,
    Usage,
)
from llm_serving_review.evidence.week import parse_week, week_before
from llm_serving_review.figures.review import Review, build_review
from llm_serving_review.settings.settings import ApiPrice, MonthlyCosts, Settings
from tests.support.builders.costevidence import UTC
from tests.support.builders.loads import Served, make_load

WEEK = parse_week("2026-W46", UTC)
BEFORE = week_before(WEEK, UTC)
SETTINGS = Settings(
    by_labels=("team",),
    title="LLM serving: cost review (sample)",
    api_price=ApiPrice("an API", 0.60, 0.15, 1.80),
    monthly_costs=MonthlyCosts(storage=400, network=700, monitoring=300, engineering=6000),
    objectives={"ttft": 0.99, "itl": 0.99},
    dashboards_url="https://grafana.example.com",
)
_BUDGET = 60_000.0
_COMMITTED = 18
_PRICES = {
    ("H100", "reserved"): 2.35,
    ("H100", "on demand"): 3.9,
    ("L40S", "on demand"): 1.6,
    ("L4", "on demand"): 0.72,
}
_FIRST = -168
# for each token, of prompts and answers
_REQUESTS = 0.0007


@dataclass(frozen=True)
class Replica:
    """Hours of the fortnight run from -168 to 168, 0 is Monday's midnight of the week under review."""

    name: str
    model: str
    team: str
    gpu: str
    gpus: int
    rate: str
    node: str
    tokens_per_hour: float
    there: Callable[[int], bool] = lambda hour: True
    busier: Callable[[int], float] = lambda hour: 1.0


def _is_day(hour: int) -> bool:
    return 7 <= hour % 24 < 21


def _is_batch(hour: int) -> bool:
    """Thursday from 9 to 19."""
    return 81 <= hour < 91


LLAMA, QWEN, MISTRAL, GPT, BGE = (
    "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen3-32B", "mistralai/Mistral-Small-3.2-24B", "openai/gpt-oss-120b", "BAAI/bge-m3",
)  # fmt: skip
REPLICAS = (
    *(Replica(f"llama-70b-{n}:8000", LLAMA, "assistants", "H100", 4, "reserved", f"gpu-a{n}", 9.2e7) for n in range(4)),
    *(Replica(f"qwen-32b-{n}:8000", QWEN, "search", "H100", 2, "on demand", "gpu-b0", 6.1e7, lambda h: h < 58) for n in range(2)),
    *(Replica(f"qwen-32b-l40s-{n}:8000", QWEN, "search", "L40S", 2, "on demand", "gpu-c0", 6.1e7, lambda h: h >= 58) for n in range(2)),
    *(Replica(f"qwen-batch-{n}:8000", QWEN, "search", "H100", 4, "on demand", "gpu-b1", 9e7, _is_batch, lambda h: 1.7) for n in range(6)),
    *(Replica(f"mistral-{n}:8000", MISTRAL, "agents", "H100", 1, "on demand", "gpu-b2", 4.4e7, _is_day) for n in range(3)),
    Replica("gpt-oss-0:8000", GPT, "agents", "H100", 2, "on demand", "gpu-b3", 8.8e7, lambda h: h >= 34),
    Replica("bge-m3-0:7997", BGE, "search", "L4", 1, "on demand", "gpu-d0", 2.5e8),
)  # fmt: skip
# hours in which Prometheus saw nothing of one replica
_DARK = ("llama-70b-3:8000", 122, 134)


def make_sample() -> Review:
    """The review."""
    return build_review(make_evidence(), SETTINGS, make_past())


def make_evidence() -> Evidence:
    """Both weeks."""
    now, before = _make_usage(0), _make_usage(_FIRST)
    gap = Gap(
        _extra(REPLICAS[3]), _DARK[0], WEEK.begin + 3600 * _DARK[1], WEEK.begin + 3600 * _DARK[2], True, 4.0, _PRICES["H100", "reserved"]
    )  # fmt: skip
    model = {"model_name": LLAMA, "role": "unified"}
    need = tuple(2.0 if _load(hour) < 0.62 else 3.0 for hour in range(168))
    return Evidence(
        WEEK,
        BEFORE,
        now,
        before,
        _make_book(0),
        Fleet(
            present=(Gauge(model, (4.0,) * 168),),
            required=(
                Gauge({**model, "reserve": "none"}, tuple(value - 1 for value in need)),
                Gauge({**model, "reserve": "nodes"}, need),
            ),
            bandwidth=tuple(
                Gauge({"model_name": name, "role": "unified", "source": "gpm"}, (ratio,) * 168) for name, ratio in _FULL.items()
            ),
            batch=tuple(Gauge({"model_name": name, "role": "unified"}, (ratio / 2,) * 168) for name, ratio in _FULL.items()),
        ),
        (
            Episode("LLMServingTTFTBurn", "critical", f"{QWEN} / ttft", WEEK.begin + 3600 * 82, WEEK.begin + 3600 * 83.5),
            Episode("LLMServingKVSaturated", "warning", MISTRAL, WEEK.begin + 3600 * 34, WEEK.begin + 3600 * 37),
        ),
        (gap,),
        methods=(("roofline", "model, GPU"),),
        watched_hours=168.0,
        book_before=_make_book(_FIRST),
        loads=(ModelLoad(((), LLAMA, "unified"), _make_load()),),
    )  # fmt: skip


def _make_load() -> Load:
    """Of the four that serve the largest model in FP8; the prefix cache has most of their prompts."""
    of, tokens_of_request = REPLICAS[0], 1 / _REQUESTS
    sent, made, computed = 0.82 * tokens_of_request, 0.18 * tokens_of_request, 200.0
    request = Request(computed, sent - computed, made, sent + made / 2, sent + made / 2)
    served = Served(
        LLAMA, "H100 SXM 80GB", of.gpus, 4.0, _PRICES[of.gpu, of.rate], request, kv_tokens=1_200_000.0, weight_format="fp8"
    )  # fmt: skip
    requests_per_second = 4 * of.tokens_per_hour * _REQUESTS / 3600
    return make_load(served, [requests_per_second * _load(hour) for hour in range(168)])


_FULL = {LLAMA: 0.52, QWEN: 0.61, MISTRAL: 0.38, GPT: 0.44, BGE: 0.12}


def make_past() -> Past:
    """Ten weeks before both; two of them are not known."""
    weeks = []
    for number, week in enumerate(list_weeks_before(WEEK)):
        if number in (0, 6, 7):
            continue
        scale = 0.985**number * (1.0 + 0.02 * sin(3 * number))
        begins = [round(hour.begin) for hour in week.hours]
        usd_by_hour = {at: round(47.5 * scale * _shape(index), 4) for index, at in enumerate(begins)}
        tokens_by_hour = {at: round(6.2e8 * scale * _load(index - 168)) for index, at in enumerate(begins)}
        usd, tokens = add_up(usd_by_hour.values()), add_up(tokens_by_hour.values())
        weeks.append(
            WeekSpend(
                week, Source.FILE, usd + 640.0, tokens, usd / tokens * 1e6, 168.0, usd_by_hour=usd_by_hour,
                tokens_by_hour=tokens_by_hour,
            )
        )  # fmt: skip
    return Past(tuple(weeks))


def _shape(hour: int) -> float:
    """Spend of an hour over a quiet one: replicas by day."""
    return 1.24 if _is_day(hour) else 1.0


def _load(hour: int) -> float:
    """Share of a replica's tokens: day and night, weekends, a tenth more in the second week."""
    weekend = 0.7 if hour % 168 >= 120 else 1.0
    return (0.62 + 0.33 * sin(2 * pi * (hour % 24 - 8) / 24)) * weekend * (1.08 if hour >= 0 else 1.0)


def _extra(of: Replica) -> tuple[tuple[str, str], ...]:
    return (("team", of.team),)


def _is_known(of: Replica, hour: int) -> bool:
    return of.there(hour) and not (of.name == _DARK[0] and _DARK[1] <= hour < _DARK[2])


def _make_usage(first: int) -> Usage:
    found: dict[str, list[Line]] = {name: [] for name in name_fields(Usage) if name not in ("unread",)}

    def put(name: str, of: Replica, labels: tuple[str, ...], value: Callable[[int], float]) -> None:
        owner = Owner(_extra(of), of.name, of.model, "unified")
        hours: Hours = tuple(value(hour) if _is_known(of, hour) else None for hour in range(first, first + 168))
        if any(one is not None for one in hours):
            found[name].append(Line(owner, labels, hours))

    for replica in REPLICAS:
        _put_replica(replica, put)
    return Usage(**{name: tuple(lines) for name, lines in found.items()})


def _put_replica(of: Replica, put: Callable[[str, Replica, tuple[str, ...], Callable[[int], float]], None]) -> None:
    price = _PRICES[of.gpu, of.rate]

    def busy(hour: int) -> float:
        return min(0.97, 0.86 * _load(hour) * of.busier(hour))

    def tokens(share: float) -> Callable[[int], float]:
        return lambda hour: share * of.tokens_per_hour * _load(hour) * of.busier(hour)

    for phase, share in (("prefill", 0.34), ("decode", 0.66)):
        put("cost", of, (phase, of.rate, "roofline"), lambda hour, share=share: share * busy(hour) * of.gpus * price)
    put("cost", of, ("idle", of.rate, "roofline"), lambda hour: (1 - busy(hour)) * of.gpus * price)
    put("gpu_seconds", of, ("busy", of.rate), lambda hour: busy(hour) * of.gpus * 3600)
    put("gpu_seconds", of, ("idle", of.rate), lambda hour: (1 - busy(hour)) * of.gpus * 3600)
    made = 0.0 if of.model == BGE else 0.18
    for name, share in (
        ("prompt_tokens", 0.82), ("cached_tokens", 0.24), ("prefill_tokens", 0.58), ("decode_tokens", made), ("requests", _REQUESTS),
    ):  # fmt: skip
        put(name, of, (), tokens(share))
    put("energy_joules", of, (), lambda hour: (160 + 420 * busy(hour)) * of.gpus * 3600)
    put("carbon_grams", of, (), lambda hour: (160 + 420 * busy(hour)) * of.gpus / 1000 * 380)
    if of.rate == "reserved":
        put("energy_cost", of, (), lambda hour: (160 + 420 * busy(hour)) * of.gpus / 1000 * 0.19)
    for slo, good in (("ttft", 0.9935), ("itl", 0.9978)):
        put("slo", of, (slo, "good"), lambda hour, good=good: _REQUESTS * good * of.tokens_per_hour * _load(hour))
        put("slo", of, (slo, "bad"), lambda hour, good=good: _REQUESTS * (1 - good) * of.tokens_per_hour * _load(hour))


def _make_book(first: int) -> Book:
    def gauge(value: float, of: Replica, **labels: str) -> Gauge:
        return Gauge(
            {"target": of.name, **labels},
            tuple(value if of.there(hour) else None for hour in range(first, first + 168)),
        )

    here = [of for of in REPLICAS if any(of.there(hour) for hour in range(first, first + 168))]
    rates: Mapping[str, str] = {
        "reserved": "reserved", "on demand": "on_demand",
    }  # fmt: skip
    return Book(
        prices=tuple(gauge(_PRICES[of.gpu, of.rate], of, gpu_name=of.gpu, rate=of.rate) for of in here),
        gpus=tuple(gauge(float(of.gpus), of, gpu_name=of.gpu) for of in here),
        nodes=tuple(gauge(1.0, of, node=of.node) for of in here),
        workloads=tuple(
            gauge(
                1.0,
                of,
                workload=of.name.rpartition("-")[0].replace("-l40s", ""),
                workload_kind="Deployment",
                namespace=of.team,
            )
            for of in here
        ),
        committed=(Gauge({"rate": "reserved"}, (float(_COMMITTED),) * 168),),
        rates=rates,
        budget_usd_per_month=_BUDGET,
    )
