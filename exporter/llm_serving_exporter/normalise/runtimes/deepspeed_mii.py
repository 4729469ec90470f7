"""DeepSpeed-MII 0.3: it has no metrics page, its health endpoints say only that it answers. Facts: mii/ of 0.3.3."""

from __future__ import annotations

from llm_serving_exporter.normalise.mapping import PageKind, Runtime
from llm_serving_exporter.normalise.runtimes.gpu_only import nothing_but

RUNTIME = Runtime(
    name="deepspeed-mii",
    title="DeepSpeed-MII",
    rows=(),
    # the OpenAI server and the FastAPI server; the REST gateway
    # (https://github.com/deepspeedai/DeepSpeed-MII/blob/v0.3.3/mii/entrypoints/openai_api_server.py, .../mii/grpc_related/restful_gateway.py)
    paths=("/health", "/healthz"),
    kind=PageKind.NONE,
    without_metrics=True,
    missing=nothing_but(),
    versions="<=0.3.3",
)
