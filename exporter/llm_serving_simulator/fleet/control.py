"""What can be asked of a running fleet and done to it: requests -> JSON. No socket here.

GET  /fleet                        replicas with their URLs, nodes and states; the time
GET  /truth?begin=S&end=S          the fleet's own counts between two simulated times (default: from 0 to now)
POST /nodes/NAME/lose | return
POST /replicas/NAME/hang | resume | restart
POST /scale/N   /rolling-update   /slow/FACTOR   /errors/SHARE   /prefix-cache/reset | off | on
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qs, unquote

from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import as_dict
from llm_serving_simulator.fleet.fleet import Fleet

Document = dict[str, object]

_QUANTILES = (0.5, 0.9, 0.95, 0.99)


def control(fleet: Fleet, urls: Mapping[str, str], method: str, path: str) -> tuple[int, Document]:
    """One request at a fleet that has been moved on to now: status and JSON. What is wrong with a request is 400 or 404 with a sentence."""
    where, _, query = path.partition("?")
    words = [unquote(word) for word in where.strip("/").split("/")]
    try:
        if method == "GET":
            return _read(fleet, urls, words, parse_qs(query))
        return _apply_command(fleet, words)
    except KeyError as error:
        return 404, {"error": f"there is no {error.args[0]!r} here; see GET /fleet"}
    except ValueError as error:
        return 400, {"error": str(error)}


def fleet_document(fleet: Fleet, urls: Mapping[str, str]) -> Document:
    """GET /fleet."""
    replicas = [
        {
            "name": replica.name,
            "url": urls.get(replica.name),
            "nodes": list(replica.spec.nodes),
            "gpus": replica.spec.engine.gpus,
            "gpu_model": replica.spec.engine.gpu_spec.name,
            "model": replica.spec.engine.served_name,
            "runtime": replica.spec.engine.runtime,
            "state": replica.state.value,
            "hung": bool(replica.engine and replica.engine.hung),
            "ready": replica.ready,
            "starts": replica.starts,
            "running": len(replica.engine.running) if replica.engine else 0,
            "waiting": len(replica.engine.waiting) if replica.engine else 0,
            "kv_usage_ratio": replica.engine.kv.usage_ratio if replica.engine else None,
        }
        for replica in fleet.replicas.values()
    ]
    nodes = [{"name": node, "lost": node in fleet.lost_nodes} for node in fleet.nodes]
    return {
        "seconds": fleet.now_seconds,
        "unix_seconds": fleet.unix_seconds(fleet.now_seconds),
        "replicas": replicas,
        "nodes": nodes,
    }


def truth_document(fleet: Fleet, begin_seconds: float, end_seconds: float) -> Document:
    """GET /truth. Raises ValueError where nothing is known of the interval."""
    truth = fleet.truth(begin_seconds, end_seconds)
    return {
        "begin_seconds": truth.begin_seconds,
        "end_seconds": truth.end_seconds,
        "arrived": truth.arrived,
        "lost": truth.lost,
        "retried": truth.retried,
        "unrouted": truth.unrouted,
        "peak_waiting": truth.peak_waiting,
        "prefill_tokens": truth.prefill_tokens,
        "decode_tokens": truth.decode_tokens,
        "finished": truth.counts.finished,
        "rejected": truth.counts.rejected,
        "counts": as_dict(truth.counts),
        "ttft_seconds": {
            "count": len(truth.ttft_seconds),
            "sum": add_up(truth.ttft_seconds),
            **{f"p{quantile * 100:g}": truth.ttft_quantile_seconds(quantile) for quantile in _QUANTILES},
        },
    }


def _read(
    fleet: Fleet, urls: Mapping[str, str], words: list[str], query: Mapping[str, list[str]]
) -> tuple[int, Document]:
    match words:
        case ["fleet"]:
            return 200, fleet_document(fleet, urls)
        case ["truth"]:
            begin = _number(query.get("begin", ["0"])[0])
            end = _number(query.get("end", [repr(fleet.now_seconds)])[0])
            return 200, truth_document(fleet, begin, end)
    return 404, {"error": "GET /fleet or GET /truth?begin=SECONDS&end=SECONDS"}


def _apply_command(fleet: Fleet, words: list[str]) -> tuple[int, Document]:
    match words:
        case ["nodes", name, "lose"]:
            fleet.lose_node(name)
        case ["nodes", name, "return"]:
            fleet.return_node(name)
        case ["replicas", name, "hang"]:
            fleet.hang([name])
        case ["replicas", name, "resume"]:
            fleet.resume([name])
        case ["replicas", name, "restart"]:
            fleet.restart(name)
        case ["scale", count]:
            fleet.scale(int(_number(count)))
        case ["rolling-update"]:
            fleet.rolling_update()
        case ["slow", factor]:
            fleet.slow_down(_positive(factor))
        case ["errors", share]:
            fleet.fail(_share(share))
        case ["prefix-cache", "reset"]:
            fleet.reset_prefix_cache()
        case ["prefix-cache", "off" | "on" as which]:
            fleet.look_up_prefixes(which == "on")
        case _:
            return 404, {"error": "POST /nodes/NAME/lose|return, /replicas/NAME/hang|resume|restart, /scale/N, /rolling-update, "
                         "/slow/FACTOR, /errors/SHARE or /prefix-cache/reset|off|on"}  # fmt: skip
    return 200, {"done": "/".join(words), "seconds": fleet.now_seconds}


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a number") from None
    if not 0 <= value < float("inf"):
        raise ValueError(f"{text!r} is not a number from 0 up")
    return value


def _share(text: str) -> float:
    value = _number(text)
    if value > 1:
        raise ValueError("a share of requests is a number from 0 to 1")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value == 0:
        raise ValueError("a slow-down is a factor above 0; 1 is none")
    return value
