"""SGLang's router up to sglang-router 0.2: the table. Made from its source, never met until recorded."""

from __future__ import annotations

from llm_serving_exporter.normalise.runtimes.rust_routers import make_router

RUNTIME = make_router(
    "sglang-router",
    "SGLang router",
    "sgl_router_",
    source="https://github.com/sgl-project/sglang/blob/06261b2af99814657474f184c92427c64a4f0add/sgl-router/src/metrics.rs",
    caveat="Booked when an answer begins, however it ends.",
    versions="<0.3",
    also_ignored="sgl_tokenizer_*",
)
