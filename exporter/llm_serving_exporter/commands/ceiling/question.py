"""Arguments of `ceiling` -> Question; every refusal names its flag, what is wrong and what to write."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from llm_serving_exporter.commands.ceiling.answer import DEFAULT_BATCHES, Load, Question
from llm_serving_exporter.commands.ceiling.arguments import (
    BATCHES,
    FACTOR,
    INPUT_TOKENS,
    MEMORY,
    OUTPUT_TOKENS,
    RATE,
    SEQUENCES,
    SHARE,
    TOKENS,
    USD,
)
from llm_serving_exporter.commands.ceiling.gpus import find_peaks
from llm_serving_exporter.commands.ceiling.launch import Launch
from llm_serving_exporter.commands.ceiling.layout import read_layout, read_speculation, read_start_command
from llm_serving_exporter.commands.ceiling.limits import Limit, Limits
from llm_serving_exporter.errors import ConfigError, FactsError
from llm_serving_exporter.facts import loader, resolve
from llm_serving_exporter.facts.quantisation import as_embedder
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.target import ServedModel
from llm_serving_exporter.settings.facts import KV_CACHE_DTYPE, STATE_DTYPE, WEIGHT_FORMAT
from llm_serving_exporter.settings.flags import FlagReader
from llm_serving_exporter.settings.problems import shown

DEFAULT_CONTEXT_TOKENS = 4096
# of the memory, vLLM's
DEFAULT_SHARE = 0.9
# what the daemon's configuration would be told -> what to write here
_FIXES = {
    resolve.SET_MODEL: "Give --model the path of its config.json, or the catalogue's name of a model of the same sizes.",
    resolve.SET_FORMAT: "Say the format with --dtype, or give --model the path of its config.json.",
    resolve.SET_KV_DTYPE: "Say it with --kv-dtype.",
}


def question(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Question:
    """What was asked. `environ` says where this user's Hugging Face cache is. Raises ConfigError with every refusal."""
    flags = FlagReader(arguments)
    launch = read_start_command(flags)
    model = _model(flags, environ, launch)
    peaks = find_peaks(flags)
    parallel = read_layout(flags, model, launch)
    speculation = read_speculation(flags, launch)
    memory = flags.value("--memory", MEMORY)
    if memory is not None and memory <= 0:
        flags.refuse("--memory", "a GPU without memory holds no model", "Write one as in 80GB.")
    if memory is None and flags.text("--memory") is None and peaks is not None:
        if peaks.memory_bytes is None:
            flags.refuse(
                "--memory", f"it is missing, and the memory of {peaks.name} is not known", "Write one as in 80GB."
            )
        memory = peaks.memory_bytes
    share = flags.value("--memory-utilization", SHARE)
    if share is None and flags.text("--memory-utilization") is None:
        share = (launch.memory_share if launch is not None else None) or DEFAULT_SHARE
    overhead = flags.value("--overhead", MEMORY)
    if memory and share is not None and overhead is not None and overhead >= memory * share:
        flags.refuse("--overhead", "it takes all memory that the engine may use", "Write less.")
    limits = _limits(flags, launch)
    context = flags.value("--context", TOKENS) or _usual_context(model, limits)
    prompt = flags.value("--prompt", TOKENS) or context
    batches = flags.value("--batches", BATCHES) or DEFAULT_BATCHES
    price = flags.value("--price", USD)
    load = _load(flags, model)
    if flags.problems:
        raise ConfigError(*flags.problems)
    assert model is not None
    assert peaks is not None
    assert parallel is not None
    assert memory is not None
    assert share is not None
    assert overhead is not None
    caveats = launch.caveats if launch is not None else ()
    return Question(
        model,
        peaks,
        parallel,
        int(memory),
        context,
        prompt,
        batches,
        price,
        share,
        overhead,
        load,
        speculation,
        caveats,
        limits,
    )


def _limits(flags: FlagReader, launch: Launch | None) -> Limits:
    """What ends the batch; --batch-limit goes before what a start command says."""
    limits = launch.limits if launch is not None else Limits()
    own = flags.value("--batch-limit", SEQUENCES)
    return limits if own is None else replace(limits, sequences=Limit(own, f"--batch-limit {own}"), crossed=None)


def _usual_context(model: ModelFacts | None, limits: Limits) -> int:
    """Tokens of each sequence where nobody says them: no more than model and engine take."""
    most = (model.context_limit_tokens if model is not None else None, limits.context and limits.context.number)
    return min((DEFAULT_CONTEXT_TOKENS, *(tokens for tokens in most if tokens)))


def _model(flags: FlagReader, environ: Mapping[str, str], launch: Launch | None) -> ModelFacts | None:
    """`launch`: what a start command says of the model and its formats, where these flags do not."""
    weight_format = flags.value("--dtype", WEIGHT_FORMAT)
    kv, state = flags.value("--kv-dtype", KV_CACHE_DTYPE), flags.value("--state-dtype", STATE_DTYPE)
    folder = flags.text("--hf-cache")
    if folder is not None and not os.path.isdir(folder):
        flags.refuse("--hf-cache", f"{shown(folder)} is not a folder", "Give the one that holds models--… folders.")
    own = flags.text("--model-catalogue")
    if own is not None and not _are_models(flags, own):
        return None
    asked = flags.text("--model") or (launch.model if launch is not None else None)
    if asked is None and launch is None and flags.text("--launch") is not None:
        # refused already, and it may name the model
        return None
    if not asked or not asked.strip():
        flags.refuse("--model", "it is missing", "Write a name such as Llama-3.1-8B, or the path of a config.json.")
        return None
    settings = replace(loader.given(asked.strip()), weight_format=weight_format, kv_cache_dtype=kv, state_dtype=state)
    try:
        found = loader.model_facts(settings, _started(launch), folder or loader.hub_cache(environ), own)
        return as_embedder(found) if launch is not None and launch.pooling else found
    except FactsError as error:
        flags.refuse("--model", error.what.rstrip("."), _FIXES.get(error.fix, error.fix))
        return None


def _started(launch: Launch | None) -> ServedModel | None:
    """What a start command says of formats, as a server that was started so would; None where it says nothing."""
    if launch is None or not (launch.dtype or launch.quantization or launch.kv_cache_dtype or launch.state_dtype):
        return None
    return ServedModel(
        "",
        dtype=launch.dtype,
        quantization=launch.quantization,
        kv_cache_dtype=launch.kv_cache_dtype,
        state_dtype=launch.state_dtype,
        said_by="the start command",
        kv_as_calibrated=launch.own_layouts,
    )


def _are_models(flags: FlagReader, path: str) -> bool:
    """Whether a user's own models can be read; else the flag is refused."""
    try:
        loader.own_models(path)
    except FactsError as error:
        flags.refuse("--model-catalogue", error.what.rstrip("."), f"{error.fix[:1].upper()}{error.fix[1:]}")
        return False
    return True


def _load(flags: FlagReader, model: ModelFacts | None) -> Load | None:
    encoder = model is not None and model.geometry.encoder
    needed = {
        "--requests-per-second": RATE,
        "--input-tokens": INPUT_TOKENS,
        "--output-tokens": OUTPUT_TOKENS,
    }
    plan = [flags.value(flag, kind) for flag, kind in (
        ("--target-utilization", SHARE), ("--redundancy", FACTOR), ("--efficiency", SHARE)
    )]  # fmt: skip
    given = {flag: flags.value(flag, kind) for flag, kind in needed.items()}
    if all(flags.text(flag) is None for flag in needed):
        return None
    if encoder:
        if given["--output-tokens"]:
            flags.refuse("--output-tokens", "an encoder puts out none", "Leave it away.")
        given["--output-tokens"] = given["--output-tokens"] or 0.0
    for flag in needed:
        if flags.text(flag) is None and given[flag] is None:
            flags.refuse(flag, "it is missing", "Give it: a load needs its rate, its input and its output tokens.")
    rate, read, written = given.values()
    target, redundancy, efficiency = plan
    if rate is None or read is None or written is None or target is None or redundancy is None or efficiency is None:
        return None
    return Load(rate, read, written, target, redundancy, efficiency)
