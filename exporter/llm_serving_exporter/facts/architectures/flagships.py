"""The table of decoders whose layers attend in more ways than one."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from llm_serving_exporter.facts.architectures import (
    bailing,
    deepseek_v4,
    gemma_shared,
    inkling,
    lfm3,
    longcat,
    mimo,
    minimax_m3,
    mllama,
    muse,
    nemotron_nas,
    step3,
)
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.geometry import Geometry

BUILDERS: Mapping[str, Callable[[Fields], Geometry]] = {
    **bailing.BUILDERS, **deepseek_v4.BUILDERS, **gemma_shared.BUILDERS, **inkling.BUILDERS, **lfm3.BUILDERS,
     **longcat.BUILDERS, **mimo.BUILDERS,
    **minimax_m3.BUILDERS, **mllama.BUILDERS, **muse.BUILDERS,
     **nemotron_nas.BUILDERS, **step3.BUILDERS,
}  # fmt: skip
