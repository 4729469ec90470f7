"""What flags say of the GPUs of the servers that --target names, so that one command shows what a server elsewhere costs."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.config.checks import Placed
from llm_serving_exporter.config.gpu_name import check_gpu_model
from llm_serving_exporter.config.options import TARGET, TARGET_GPU_COUNT, TARGET_GPU_MODEL, TARGET_GPU_PRICE, Settings
from llm_serving_exporter.config.target_keys import TargetSettings
from llm_serving_exporter.model.prices import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.schema.context import Context

# of a price that a flag states: that of a price file which names none
RATE = Rate(RateKind.ON_DEMAND.value, RateKind.ON_DEMAND)


def complete_stated_gpus(own: TargetSettings, settings: Settings) -> TargetSettings:
    """The settings of a server of --target, with what --gpu-model and --gpu-count say."""
    said = {
        field: settings[option.name].value
        for field, option in (("gpu_model", TARGET_GPU_MODEL), ("gpu_count", TARGET_GPU_COUNT))
        if option.name in settings
    }
    return replace(own, **said)


def price_stated_gpus(settings: Settings, targets: Sequence[Placed]) -> PriceBook | None:
    """The prices that --gpu-price states, a server each; None where it is not given."""
    if TARGET_GPU_PRICE.name not in settings:
        return None
    usd = settings[TARGET_GPU_PRICE.name].value
    statements = (PriceStatement(Scope.TARGET, item.target.name, usd, RATE.name) for item in targets)
    return PriceBook(tuple(statements), (RATE,))


def refuse_stated_gpus(settings: Settings, context: Context) -> None:
    """Refuses a GPU that nobody knows, what says something of no server, and beside a price file what only one of them can say."""
    if TARGET_GPU_MODEL.name in settings:
        said = settings[TARGET_GPU_MODEL.name]
        check_gpu_model(said.value, said.place, context)
    for option in (TARGET_GPU_MODEL, TARGET_GPU_COUNT, TARGET_GPU_PRICE):
        if option.name in settings and TARGET.name not in settings:
            fix = f"Give {TARGET.flag} too, or set targets[] and cost.price_file in the configuration file."
            settings[option.name].place.refuse(f"it is about the servers of {TARGET.flag}, and there are none", fix)
    if TARGET_GPU_PRICE.name in settings and "cost.price-file" in settings:
        fix = "Leave one of them out; the price file can state what the GPUs of a target cost."
        settings[TARGET_GPU_PRICE.name].place.refuse("there is a price file as well", fix)
