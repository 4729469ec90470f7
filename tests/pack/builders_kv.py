"""Series and firings for the cases of the checks kv, tail, node_loss and gpu, in promtool's notation."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.pack.builders import STATES


def flat(*spans: tuple[float | str, int]) -> str:
    """Values that stay: (value, how many samples) in a row; "_" for a scrape that failed, "stale" for a series that ended."""
    texts = (
        " ".join([value] * count) if isinstance(value, str) else f"{float(value)}+0x{count - 1}"
        for value, count in spans
    )
    return " ".join(texts)


def growing(*spans: tuple[float, int], start: float = 0.0) -> str:
    """A counter: (growth a sample, how many samples) in a row."""
    texts = []
    for step, count in spans:
        texts.append(f"{start}+{step}x{count - 1}")
        start += step * count
    return " ".join(texts)


def selector(name: str, **labels: str) -> str:
    """`name{label="value",…}`."""
    matchers = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{matchers}}}"


def labelled(series: Mapping[str, str], **labels: str) -> dict[str, str]:
    """The series with more labels, such as those that tell clusters apart."""
    more = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {f"{name.removesuffix('}')},{more}}}": values for name, values in series.items()}


@dataclass(frozen=True)
class Replica:
    """What a replica shows all the time. Rates are tokens/s of the whole replica; `engines` share everything evenly.

    `nodes`: () where none is known. `ceilings`: prefill and decode, tokens/s; `seconds`: reference seconds per token of both.
    `limit`, `capacity`, `used`: None where the engine does not say. `waits`: minutes after which `waiting` requests wait. `started`:
    minutes before the history begins.
    """

    nodes: Sequence[str] = ("a",)
    prefill: float = 200.0
    decode: float = 60.0
    running: float = 20.0
    waiting: float = 0.0
    waits: int = 0
    started: float = 120.0
    used: float | None = 40_000.0
    capacity: float | None = 100_000.0
    limit: float | None = 100.0
    ceilings: tuple[float, float] | None = (1000.0, 500.0)
    seconds: tuple[float, float] | None = None
    gpu_name: str = "H100 SXM"
    state: str = "ready"
    engines: int = 1


def fleet(model: str, replicas: Iterable[Replica], minutes: int, *, role: str = "unified") -> dict[str, str]:
    """The series of a model's replicas, called <model>-<number>, scraped each minute."""
    series: dict[str, str] = {}
    for number, replica in enumerate(replicas):
        series |= replica_series(f"{model}-{number}", model, role, replica, minutes)
    return series


def replica_series(target: str, model: str, role: str, replica: Replica, minutes: int) -> dict[str, str]:
    """Everything that a replica's exporter shows of it for so long, from the first scrape on."""
    return health_series(target, model, role, replica, flat((1.0, minutes))) | serving_series(
        target, model, role, replica, minutes
    )


def health_series(target: str, model: str, role: str, replica: Replica, holds: str) -> dict[str, str]:
    """What there is of a target whatever its state. `holds`: values of the series that are 1."""
    identity = {"target": target, "model_name": model, "role": role}
    series = {
        selector("llm_serving_target_info", **identity, runtime="vllm", version="0.32.0", group=""): holds,
        selector("llm_serving_target_gpus", target=target, gpu_name=replica.gpu_name): holds,
    }
    start = holds.replace("1.0", f"{-60.0 * replica.started}")
    series[selector("llm_serving_target_start_time_seconds", target=target)] = start
    for node in replica.nodes:
        series[selector("llm_serving_target_node_info", **identity, node=node)] = holds
    for state in STATES:
        values = holds if state == replica.state else holds.replace("1.0", "0.0")
        series[selector("llm_serving_target_state", target=target, state=state)] = values
    return series


def serving_series(
    target: str, model: str, role: str, replica: Replica, minutes: int, tail: str = ""
) -> dict[str, str]:
    """What its page says. `tail`: values that follow, such as "stale"."""
    series: dict[str, str] = {}
    for engine in map(str, range(replica.engines)):
        labels = {"target": target, "model_name": model, "engine": engine, "role": role}
        gauges = {
            "requests_running": replica.running,
            "kv_cache_capacity_tokens": replica.capacity,
            "kv_cache_used_tokens": replica.used,
            "batch_limit_requests": replica.limit,
        }
        for name, value in gauges.items():
            if value is not None:
                series[selector(f"llm_serving_{name}", **labels)] = flat((value / replica.engines, minutes))
        calm = [(0.0, replica.waits)] if replica.waits else []
        waiting = flat(*calm, (replica.waiting / replica.engines, minutes - replica.waits))
        series[selector("llm_serving_requests_waiting", **labels)] = waiting
        for number, (phase, rate) in enumerate((("prefill", replica.prefill), ("decode", replica.decode))):
            counter = growing((60 * rate / replica.engines, minutes))
            series[selector(f"llm_serving_{phase}_tokens_total", **labels)] = counter
            if replica.ceilings is not None:
                ceiling = flat((replica.ceilings[number] / replica.engines, minutes))
                series[selector("llm_serving_phase_ceiling_tokens_per_second", **labels, phase=phase)] = ceiling
            if replica.seconds is not None:
                seconds = flat((replica.seconds[number], minutes))
                series[selector("llm_serving_phase_reference_seconds_per_token", **labels, phase=phase)] = seconds
    return {name: f"{values} {tail}".strip() for name, values in series.items()}
