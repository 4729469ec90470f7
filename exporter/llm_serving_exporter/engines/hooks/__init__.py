"""What a table cannot say in YAML: a module of Python each, whose `HOOKS` a table names by `hooks:`."""

from __future__ import annotations

from importlib import import_module

from llm_serving_exporter.engines.mapping import Hooks

NAMES = (
    "vllm",
    "sglang",
    "tgi",
    "trtllm",
    "trtllm-json",
    "llamacpp",
    "lmdeploy",
    "tei",
    "infinity",
    "dynamo-frontend",
    "dynamo-worker",
    "ray-vllm",
    "mistralrs",
    "lightllm",
    "ollama",
)


def load_hooks(name: str) -> Hooks:
    """The hooks of one of `NAMES`."""
    hooks: Hooks = import_module(f"llm_serving_exporter.engines.hooks.{name.replace('-', '_')}").HOOKS
    return hooks
