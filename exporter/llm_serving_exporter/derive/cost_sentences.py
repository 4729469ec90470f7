"""What to do where a figure of cost is absent. The cost meter knows the reasons; the sentences stand with those of the other signals."""

from __future__ import annotations

from collections.abc import Mapping

from llm_serving_exporter.catalogue import cost as names
from llm_serving_exporter.model.snapshot import Absence

_NO_PRICES = {
    Absence.NOT_CONFIGURED: (
        "Set cost.price_file to a file of what GPUs cost (docs/cost.md), or give --gpu-price beside --target; a server without a GPU "
        "has no cost."
    )
}

# by signal, which is the metric's name
COST_SENTENCES: Mapping[str, Mapping[Absence, str]] = {
    names.COST.name: _NO_PRICES,
    names.COST_PER_MILLION.name: _NO_PRICES,
    names.COST_PER_REQUEST.name: _NO_PRICES,
    names.SAVINGS.name: {
        **_NO_PRICES,
        Absence.INPUT_MISSING: (
            "It needs the engine's count of cached prompt tokens, the model's facts and the GPUs' compute peak."
        ),
    },
    names.GPU_SECONDS.name: {Absence.NOT_CONFIGURED: "It is configured as a server without a GPU."},
    names.ENERGY.name: {
        Absence.GPUS_UNKNOWN: (
            "Its GPUs, or some of them, are not seen here: run an exporter on their node, and set targets[].gpus there if they are "
            "not found."
        ),
        Absence.NOT_EXPORTED: "The driver gave no energy counter of one of its GPUs: the log, and the reading of that GPU, say why.",
    },
}
