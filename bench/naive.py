"""A naive exporter, as a team writes it in an afternoon: requests reads the page, prometheus_client parses it and publishes some gauges.

`python -m bench.naive PORT SECONDS [URL]`. It knows no roofline, no limiter and no cost. It is a peer of bench.cycle.
"""

from __future__ import annotations

import sys
import time

import requests
from prometheus_client import Counter, Gauge, start_http_server
from prometheus_client.parser import text_string_to_metric_families

SCRAPES = Counter("naive_scrapes", "Pages that were read.")
RATES = Gauge("naive_tokens_per_second", "Tokens a second since the page before.", ["phase"])
RUNNING = Gauge("naive_requests_running", "Requests that run.")
USAGE = Gauge("naive_kv_cache_usage_ratio", "Share of the KV cache in use.")
_COUNTERS = {"prefill": "vllm:prompt_tokens_total", "decode": "vllm:generation_tokens_total"}


def main(port: int, seconds: float, url: str) -> None:
    start_http_server(port, addr="127.0.0.1")
    session, before, read_at = requests.Session(), dict[str, float](), time.monotonic()
    following = time.monotonic()
    while True:
        if url:
            now = time.monotonic()
            found: dict[str, float] = {}
            for family in text_string_to_metric_families(session.get(url, timeout=5).text):
                for sample in family.samples:
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
            for phase, name in _COUNTERS.items():
                if name in before:
                    RATES.labels(phase).set((found[name] - before[name]) / (now - read_at))
            RUNNING.set(found["vllm:num_requests_running"])
            USAGE.set(found["vllm:kv_cache_usage_perc"])
            before, read_at = found, now
            SCRAPES.inc()
        following = max(following + seconds, time.monotonic())
        time.sleep(following - time.monotonic() if following > time.monotonic() else 0.0)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "")
