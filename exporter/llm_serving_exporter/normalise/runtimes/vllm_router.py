"""vLLM's router in Rust (package vllm-router): the table, from a recording.

It counts requests, and nothing of them: the one time that it measures is a stream's until its headers, an answer's that is not streamed
until its end. In the recording that is 5 ms where the client had its first token after 22 ms and its last after 192.
"""

from __future__ import annotations

from llm_serving_exporter.normalise.runtimes.rust_routers import make_router

RUNTIME = make_router(
    "vllm-router",
    "vLLM router",
    "vllm_router_",
    source="https://pypi.org/project/vllm-router/0.1.17/",
    caveat="Booked when an answer begins, however it ends; what it refuses itself is not in it.",
    versions=">=0.1,<=0.1.17",
    covered="0.1.17",
)
