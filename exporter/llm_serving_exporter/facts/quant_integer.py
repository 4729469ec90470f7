"""Readers of the dialects that keep integers per group of a row: GPTQ, AWQ, AutoRound.

They take Linear layers; lm_head only where the config says so (GPTQ's and AutoRound's `lm_head` or its name in their overrides).
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.quant_names import Patterns, compiled, found_in, matches, plain, runs
from llm_serving_exporter.facts.quant_settings import Scheme, Settings
from llm_serving_exporter.model.geometry import Module
from llm_serving_exporter.model.weights import WeightFormat

_WIDTHS = range(2, 9)
# what makes a key of AutoRound's overrides an expression: vLLM model_executor/layers/quantization/auto_round.py get_layer_config
_OF_EXPRESSIONS = frozenset(r"*+?^$()[]{}|\\")


def _integer(settings: Settings, base: Settings, *, zero_point: bool) -> WeightFormat:
    bits = settings.whole("bits", "w_bit", "w_bits", default=0, least=0) or base.whole("bits", "w_bit", "w_bits")
    if bits not in _WIDTHS:
        raise settings.refused("bits", f"is {bits}, not 2 to 8")
    keys = ("group_size", "q_group_size")
    # absent from both: 128, the default of each of the tools
    size = settings.whole(*keys, default=base.whole(*keys, default=128, least=-1), least=-1)
    return formats.integer(bits, size, zero_point=zero_point)


def gptq(settings: Settings) -> Scheme:
    """`bits`, `group_size` (-1: per row), `lm_head`, `modules_in_block_to_quantize`, and GPTQModel's `dynamic` rules.

    A GPTQ checkpoint holds zero points also where it is symmetric, so that they are counted.
    """
    usual = _integer(settings, settings, zero_point=True)
    only = Patterns(_flattened(settings, "modules_in_block_to_quantize"))
    rules: list[tuple[re.Pattern[str], WeightFormat | None]] = []
    for pattern, override in settings.entries("dynamic").items():
        # "-:" leaves out what it matches, "+:" or nothing overrides; the first rule that matches holds
        expression = compiled(pattern.removeprefix("-:").removeprefix("+:"))
        left_out = pattern.startswith("-:")
        rules.append((expression, None if left_out else _integer(override, settings, zero_point=True)))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        for expression, chosen in rules:
            if any(matches((expression,), name) for name in called):
                return chosen
        return None if only and not only.match(called) else usual

    return Scheme("gptq", choose, lm_head=settings.flag("lm_head", default=False))


def _flattened(settings: Settings, key: str) -> Iterable[str]:
    value = settings.values.get(key)
    if isinstance(value, list) and any(isinstance(entry, list) for entry in value):
        parts = [entry if isinstance(entry, list) else [entry] for entry in value]
        return Settings(settings.method, {key: [name for part in parts for name in part]}).listed(key)
    return settings.listed(key)


def awq(settings: Settings) -> Scheme:
    """`bits` or `w_bit`, `group_size` or `q_group_size`, `zero_point`; `modules_to_not_convert` by component."""
    zero_point = settings.flag("zero_point", default=True)
    usual = _integer(settings, settings, zero_point=zero_point)
    kept = Patterns(settings.listed("modules_to_not_convert"))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        return None if kept.match(called) else usual

    return Scheme("awq", choose, lm_head=settings.flag("lm_head", default=False))


def auto_round(settings: Settings) -> Scheme:
    """`bits`, `group_size`, `sym`, and `extra_config` by module or expression, a module's own first; 16 bits there leave it alone."""
    kind = settings.text("data_type", default="int")
    if kind != "int":
        raise settings.refused("data_type", f"is {kind!r}, of which no layout is known here")
    zero_point = not settings.flag("sym", default=True)
    usual = _integer(settings, settings, zero_point=zero_point)
    named: dict[str, WeightFormat | None] = {}
    expressions: list[tuple[re.Pattern[str], WeightFormat | None]] = []
    for name, override in settings.entries("extra_config").items():
        left_out = override.whole("bits", default=0, least=0) >= 16
        chosen = None if left_out else _integer(override, settings, zero_point=zero_point)
        if _OF_EXPRESSIONS.isdisjoint(name):
            named[plain(name)] = chosen
        else:
            expressions.append((compiled(name), chosen))

    def choose(module: Module, called: tuple[str, ...]) -> WeightFormat | None:
        for name in called:
            for run in runs(name):
                if run in named:
                    return named[run]
        for expression, chosen in expressions:
            if any(found_in(expression, name) for name in called):
                return chosen
        return usual

    return Scheme("auto-round", choose, lm_head="lm_head" in named)
