"""Arguments of `ceiling` -> Question; every refusal names its flag, what is wrong and what to write."""

from __future__ import annotations

import argparse
import logging
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llm_serving_exporter.commands.ceiling.answer import DEFAULT_BATCHES, Limit, Limits, Load, Question
from llm_serving_exporter.commands.ceiling.launch import Launch, read_launch
from llm_serving_exporter.derive.planning import Speculation
from llm_serving_exporter.errors import ConfigError, FactsError
from llm_serving_exporter.facts import loader, resolve
from llm_serving_exporter.facts.gpus import find
from llm_serving_exporter.facts.peaks import peaks_of_identity, peaks_of_many, peaks_of_spec
from llm_serving_exporter.facts.quantisation import as_embedder
from llm_serving_exporter.model.hardware import GpuPeaks, GpuSpec, Parallel
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.sample import FailureReason
from llm_serving_exporter.model.shape import ModelFacts, Precision
from llm_serving_exporter.model.target import ServedModel
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import read_bounded, read_document
from llm_serving_exporter.settings.facts import (
    BANDWIDTH,
    CARD_NAME,
    GPU_MODELS,
    KV_CACHE_DTYPE,
    STATE_DTYPE,
    TFLOPS,
    WEIGHT_FORMAT,
    GpuModelSettings,
    read_description,
    read_gpu_models,
)
from llm_serving_exporter.settings.flags import CommandParser, FlagReader, add_rows
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, Place, shown

# --- The flags of `ceiling` and the kinds of their values. Everything is text to argparse, so that every fault is reported at once.


USAGE = "llm-serving-exporter ceiling --model MODEL --gpu GPU [OPTIONS]"

_DESCRIPTION = "What a model on given GPUs could do: fit, tokens/s by batch, price, replicas. Asks no server."

EPILOG = """examples:
  llm-serving-exporter ceiling --model Llama-3.1-70B --gpu "H100 SXM" --tp 4 --dtype fp8 --price 2.99
  llm-serving-exporter ceiling --model ./config.json --gpu "this one" --context 8192 --batches 1,16,64 --json
  llm-serving-exporter ceiling --gpu H200 --launch "sglang --model-path deepseek-ai/DeepSeek-R1 --tp 8 --dp 8 --enable-dp-attention"
  llm-serving-exporter ceiling --model Qwen3-30B-A3B --gpu L40S --tp 2 --requests-per-second 10 --input-tokens 500 --output-tokens 200
  llm-serving-exporter ceiling --from-prometheus http://prometheus:9090 --model Llama-3.1-8B-Instruct --traffic 2x --gpu H200

tokens/s is the ceiling that is expected: real engines reach 45-70 % of it at batch 1, less at a high batch. Nothing real is above
"at best". What each line means, and what it rests on: docs/ceiling-command.md."""

MOST_GPUS = 4096
MOST_BATCHES = 1000
MOST_DRAFTS = 64
_LARGEST_BATCH = 10_000_000
_LARGEST_TOKENS = 1_000_000_000
_UNITS = {"B": 1, "MB": 10**6, "GB": 10**9, "TB": 10**12, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_LARGEST_BYTES = 10**15


def _number(
    lowest: float, highest: float, words: str, example: str, *, above: bool = False, unit: str = ""
) -> Kind[float]:
    """A number from `lowest` to `highest`, with `words` and an example for a person; `above`: the lowest itself is not one of them. `unit`
    may stand behind it."""

    def parse(text: str) -> float:
        try:
            value = float(text.removesuffix(unit))
        except ValueError:
            value = math.nan
        if not (lowest < value <= highest if above else lowest <= value <= highest):
            raise InvalidValueError(f"{shown(text)} is not {words}", f"Write one such as {example}.")
        return value

    return Kind(words, parse)


def _memory(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?([a-zA-Z]*)", text.strip(), re.ASCII)
    unit = _UNITS.get(match[2].upper()) if match is not None else None
    if match is not None and not match[2] and float(match[1]) == 0:
        unit = 1
    if match is None or unit is None:
        raise InvalidValueError(
            f"{shown(text)} is not a size of memory", "Write one as in 80GB (10^9) or 80GiB (2^30)."
        )
    value = float(match[1]) * unit
    if value > _LARGEST_BYTES:
        raise InvalidValueError(f"{shown(text)} is more than a GPU has", "Write the memory of one GPU, as in 80GB.")
    return value


def _batches(text: str) -> tuple[int, ...]:
    """ "1,8,32" -> (1, 8, 32), each once."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if not re.fullmatch(r"[0-9]{1,12}", word, re.ASCII) or not 1 <= int(word) <= _LARGEST_BATCH:
            raise InvalidValueError(
                f"{shown(word)} is not a batch from 1 to {_LARGEST_BATCH}", "Write whole numbers, as in 1,8,32."
            )
    batches = tuple(dict.fromkeys(map(int, words)))
    if len(batches) > MOST_BATCHES:
        raise InvalidValueError(f"these are {len(batches)} batches", f"Write at most {MOST_BATCHES}.")
    return batches


MEMORY = Kind("a size of memory such as 80GB", _memory)
BATCHES = Kind("a list of batches such as 1,8,32", _batches)
COUNT = kinds.integer(1, MOST_GPUS)
SEQUENCES = kinds.integer(1, _LARGEST_BATCH)
DRAFTS = kinds.integer(0, MOST_DRAFTS)
TOKENS = kinds.integer(1, _LARGEST_TOKENS)
USD = _number(0, 1e9, "a price of 0 or more", "2.99")
RATE = _number(0, 1e9, "a rate of 0 or more", "12.5")
INPUT_TOKENS = _number(1, _LARGEST_TOKENS, "a number of at least 1", "500")
OUTPUT_TOKENS = _number(0, _LARGEST_TOKENS, "a number of 0 or more", "200")
PROBABILITY = _number(0, 1, "a probability from 0 to 1", "0.7")
TRAFFIC = _number(0, 1000, "a factor up to 1000", "2x", above=True, unit="x")
SHARE = _number(0, 1, "a share above 0 and up to 1", "0.9", above=True)
FACTOR = _number(1, 1000, "a factor from 1 to 1000", "1.3")


# flags in the order of --help: name, word for the value, help, what else argparse is told
_MODEL = (
    ("--model", "MODEL", "name in the built-in catalogue, a config.json, or a folder that holds one"),
    ("--dtype --weights", "FORMAT", "weights: bf16, fp8, int8, int4, awq, nvfp4, q4_k_m … (default: as the model is published)"),
    ("--kv-dtype --kv", "DTYPE", "KV cache: auto, bf16, fp8 … (default: as the checkpoint says, else auto)"),
    ("--state-dtype", "DTYPE", "recurrent state of Mamba layers and the like (default: the config's, else fp32)"),
    ("--model-catalogue", "PATH",
     "models of your own, before the built-in ones: a TOML file, or a folder of such files or config.json files"),
    ("--hf-cache", "FOLDER", "Hugging Face cache to look the name up in first (default: this user's)"),
)  # fmt: skip
_GPUS = (
    ("--gpu", "GPU", '"H100 SXM", MI300X, "TPU v6e", L40S …, one of --gpu-spec, or "this one" to ask NVML'),
    ("--gpu-spec", "FILE", "YAML file with gpu_models:, cards of your own that --gpu may name, such as the daemon's configuration"),
    ("--gpu-bandwidth", "RATE", "of the memory of one GPU, as in 1.8TB/s, instead of the catalogue's"),
    ("--gpu-tflops", "LIST", "dense TFLOP/s of one GPU by format, as in bf16=400,fp8=800, likewise"),
    ("--tp", "N", "tensor-parallel size: --tp 8 means eight GPUs (default: all GPUs of a pipeline stage)"),
    ("--pp", "N", "pipeline stages (default 1)"),
    ("--dp", "N", "attention data-parallel ranks, of tp x pp GPUs each (default 1)"),
    ("--ep", "N", "GPUs that one set of routed experts is spread over, of tp x dp (default 1: each rank has all)"),
    ("--dcp", "N", "decode context parallelism: parts of a sequence's KV among the tp GPUs (default 1)"),
    ("--launch", "COMMAND", "an engine's own start command instead of these sizes, as in 'vllm serve MODEL -tp 4 -dp 2 --max-num-seqs 64'"),
    ("--gpus", "N", "GPUs of the replica, where --tp is left away (default: tp x pp x dp)"),
    ("--memory", "SIZE", "memory of one GPU, as in 80GB (default: the catalogue's or NVML's)"),
    ("--memory-utilization", "SHARE", "share of it that the engine may use (default 0.9)"),
    ("--overhead", "SIZE", "memory of each GPU for activations, graphs and buffers, as in 2GB (default 0)", {"default": "0"}),
    ("--price", "USD", "price of one GPU for an hour"),
)  # fmt: skip
_QUESTION = (
    ("--context", "TOKENS", "tokens of each sequence (default 4096, or the model's longest where less)"),
    ("--spec", "N", "tokens that are drafted for each sequence and step (default 0)"),
    ("--acceptance", "SHARE", "probability that a draft is accepted if those before it were, as in 0.7"),
    ("--prompt", "TOKENS", "prompt of the time to first token (default: --context)"),
    ("--batches", "LIST", "sequences that decode together, as in 1,8,32 (default 1,2,4,…,256)"),
    ("--batch-limit", "N", "most sequences that the replica runs at once (default: as many as fit)"),
    ("--json", None, "print JSON for programs", {"action": "store_true"}),
)  # fmt: skip
_LOAD = (
    ("--requests-per-second", "RATE", "at its peak"),
    ("--input-tokens", "TOKENS", "mean prompt"),
    ("--output-tokens", "TOKENS", "mean output; left away for an encoder"),
    ("--target-utilization", "SHARE",
     "share of a replica's throughput to plan with: 0.7 leaves 43 %% of headroom (default 0.7)", {"default": "0.7"}),
    ("--redundancy", "FACTOR", "factor on the replicas, as in 1.3 (default 1)", {"default": "1"}),
    ("--efficiency", "SHARE", "share of the ceiling that a replica reaches (default 0.6)", {"default": "0.6"}),
)  # fmt: skip
_LAST_WEEK = (
    ("--from-prometheus", "URL", "Prometheus that has its series and the records of our rules"),
    ("--role", "ROLE", "unified, prefill or decode, where --model is served as several"),
    ("--over", "DURATION", "how far back (default 7d)", {"default": "7d"}),
    ("--traffic", "FACTOR", "times as many requests, as in 2x (default 1x)", {"default": "1x"}),
    ("--replicas", "N", "so many replicas, whatever is needed"),
    ("--objective", "SHARE", "share of events within their thresholds (default 0.99)", {"default": "0.99"}),
    ("--bearer-token-file", "PATH", "holds the token that Prometheus asks for"),
    ("--ca-file", "PATH", "authorities to trust instead of the system's"),
)  # fmt: skip

# what both questions take: a replica's ceiling, and last week's load
_OF_BOTH = frozenset({
    "--model", "--dtype", "--kv-dtype", "--model-catalogue", "--hf-cache", "--gpu", "--tp", "--price", "--batch-limit", "--json",
    "--input-tokens", "--output-tokens",
})  # fmt: skip


def parser() -> CommandParser:
    """The command's parser; the texts of its flags are checked by `question`."""
    parser = CommandParser("ceiling", usage=USAGE, description=_DESCRIPTION, epilog=EPILOG)
    add_rows(parser.add_argument_group("the model"), _MODEL)
    add_rows(parser.add_argument_group("the GPUs of one replica"), _GPUS)
    add_rows(parser.add_argument_group("the question"), _QUESTION)
    add_rows(parser.add_argument_group("a load to serve", "How many replicas does it need?"), _LOAD)
    needed = "What would a fleet that Prometheus watches need? The other flags say what is to differ."
    add_rows(parser.add_argument_group("last week's load", needed), _LAST_WEEK)
    return parser


def refuse_flags_of_the_other_question(flags: FlagReader) -> None:
    """Reports each flag that would change nothing: one of last week's load without --from-prometheus, one of a replica with it."""
    rows: Iterable[tuple[Any, ...]] = _LAST_WEEK
    what, fix = "it is of last week's load", "Give --from-prometheus too, or leave it away."
    if flags.text("--from-prometheus") is not None:
        rows = (*_MODEL, *_GPUS, *_QUESTION, *_LOAD)
        what, fix = (
            "it has no part in the question about last week's load",
            "Leave it away, or leave --from-prometheus away.",
        )
    for names, _metavar, _help, *more in rows:
        flag = names.split()[0]
        if flag not in _OF_BOTH and flags.text(flag) != (more[0].get("default") if more else None):
            flags.refuse(flag, what, fix)


# --- `--gpu` and what describes it -> the peaks of one GPU.


THIS_GPU = frozenset({"this one", "this", "local"})
_NAME_A_GPU = 'Name one, as in --gpu "H100 SXM".'
_UNSEEN = {
    FailureReason.NO_LIBRARY: "NVIDIA's library libnvidia-ml.so.1 is not on this machine, so that no GPU of it can be seen",
    FailureReason.NO_DRIVER: "the NVIDIA driver is not loaded on this machine, so that no GPU of it can be seen",
}


def _rates(text: str) -> Mapping[Precision, float]:
    """ "bf16=400,fp8=800" -> FLOP/s by precision."""
    rates = {}
    for part in text.split(","):
        name, equals, rate = (word.strip() for word in part.partition("="))
        if not equals or name.lower() not in set(Precision):
            raise InvalidValueError(
                f"{shown(part)} is not a rate of {', '.join(Precision)}", "Write them as in bf16=400,fp8=800."
            )
        rates[Precision(name.lower())] = TFLOPS.parse(rate)
    return rates


RATES = Kind("dense TFLOP/s by format such as bf16=400,fp8=800", _rates)


def find_peaks(flags: FlagReader) -> GpuPeaks | None:
    """What --gpu means; None where nothing usable says it, which is then reported."""
    file = flags.text("--gpu-spec")
    before = len(flags.problems)
    cards = _read_file(file, Place(file, "", flags.problems)) if file is not None else ()
    if file is not None and not cards and len(flags.problems) == before:
        flags.refuse(
            "--gpu-spec", f"{shown(file)} describes no GPU", "Write gpu_models: as in docs/ceiling-command.md."
        )
    broken = len(flags.problems) > before
    bandwidth, rates = flags.value("--gpu-bandwidth", BANDWIDTH), flags.value("--gpu-tflops", RATES)
    described = any(flags.text(flag) is not None for flag in ("--gpu-bandwidth", "--gpu-tflops"))
    asked = flags.text("--gpu")
    if not asked or not asked.strip():
        if len(cards) == 1 and not described:
            return peaks_of_spec(cards[0])
        flags.refuse("--gpu", "it is missing", 'Write a name such as "H100 SXM", or "this one" to ask NVML.')
        return None
    if " ".join(asked.lower().split()) in THIS_GPU:
        if described:
            flags.refuse(
                "--gpu", "NVML says what this one is", "Leave --gpu-bandwidth and --gpu-tflops away, or name it."
            )
            return None
        return _find_this_gpu(flags, cards)
    if described:
        return _describe(flags, asked.strip(), bandwidth, rates, cards)
    try:
        return peaks_of_spec(find(asked, (*cards, *loader.gpu_catalogue())))
    except FactsError as error:
        if not broken:  # it may be the one that could not be read
            flags.refuse("--gpu", error.what.rstrip("."), error.fix)
        return None


def _read_file(path: str, place: Place) -> tuple[GpuSpec, ...]:
    """The cards of a file that has `gpu_models:` among whatever else it has, such as the daemon's own; or that is a list, or one."""
    node = read_document(path, place, read_bounded)
    if node is None:
        return ()
    if isinstance(node, dict) and GPU_MODELS in node:
        return read_gpu_models(node[GPU_MODELS], place.key(GPU_MODELS))
    if isinstance(node, list):
        return read_gpu_models(node, place)
    card = read_description(node, place)
    return () if card is None else (card,)


def _describe(
    flags: FlagReader,
    asked: str,
    bandwidth: float | None,
    rates: Mapping[Precision, float] | None,
    cards: Sequence[GpuSpec],
) -> GpuPeaks | None:
    """A card that the flags describe: what they leave open is the catalogue's, where that knows the name."""
    try:
        spec = find(asked, (*cards, *loader.gpu_catalogue()))
    except FactsError:
        spec = None
    memory = flags.value("--memory", MEMORY)
    if spec is not None:
        spec = replace(spec, own=True)
        if bandwidth is not None:
            spec = replace(spec, bandwidth_bytes_per_second=bandwidth)
            spec = replace(spec, bandwidth_lowest_bytes_per_second=None, bandwidth_highest_bytes_per_second=None)
        if rates is not None:
            spec = replace(spec, flops=rates, flops_lowest={}, flops_highest={})
        return peaks_of_spec(spec)
    name = flags.value("--gpu", CARD_NAME)
    missing = [flag for flag in ("--gpu-bandwidth", "--memory") if flags.text(flag) is None]
    for flag in missing:
        what = f"it is missing, and the catalogue does not know {shown(asked)}"
        flags.refuse(flag, what, f"Write one as in {'1.8TB/s' if flag == '--gpu-bandwidth' else '96GB'}.")
    if name is None or bandwidth is None or not memory or missing:
        return None
    return peaks_of_spec(GpuModelSettings(name, memory, bandwidth, rates).spec)


def _find_this_gpu(flags: FlagReader, cards: Sequence[GpuSpec]) -> GpuPeaks | None:
    """What NVML says of the GPUs of this machine, MIG instances instead of the GPUs they are of."""
    from llm_serving_exporter.gpus.nvml import NvmlSource

    # what it would log is said here as a refusal
    source = NvmlSource(gpm=False, xid_events=False, log=logging.Logger("ceiling", logging.CRITICAL + 1))
    try:
        readings = source.read()
    finally:
        source.close()
    if readings.attempt.reason is not None:
        why = _UNSEEN.get(readings.attempt.reason, f"no GPU of this machine can be seen: {readings.attempt.detail}")
        flags.refuse("--gpu", why, _NAME_A_GPU)
        return None
    seen = [gpu.identity for gpu in readings.gpus if not gpu.lost]
    parents = {identity.mig.parent_uuid for identity in seen if identity.mig is not None}
    usable = [identity for identity in seen if identity.uuid not in parents]
    if not usable:
        flags.refuse("--gpu", "NVML shows no GPU on this machine", _NAME_A_GPU)
        return None
    rows = (*cards, *loader.gpu_catalogue())
    return peaks_of_many([peaks_of_identity(identity, rows) for identity in usable])


# --- Flags of `ceiling` that say how one replica is spread over GPUs, and how it speculates.


_SIZES = ("--gpus", "--tp", "--pp", "--dp", "--ep", "--dcp")


def read_start_command(flags: FlagReader) -> Launch | None:
    """What --launch says; None without it, and after a refusal."""
    command = flags.text("--launch")
    if command is None:
        return None
    both = [name for name in _SIZES if flags.text(name) is not None]
    if both:
        flags.refuse("--launch", f"it says the layout, and so does {both[0]}", f"Leave {' and '.join(both)} away.")
        return None
    try:
        return read_launch(command)
    except ValueError as error:
        what, *fixes = map(str, error.args)
        flags.refuse("--launch", what, *fixes or ["Quote the whole command, as in --launch 'vllm serve MODEL -tp 4'."])
        return None


def read_layout(flags: FlagReader, model: ModelFacts | None, launch: Launch | None = None) -> Parallel | None:
    """--tp 8 alone implies eight GPUs, --gpus 8 alone tensor parallelism over all of them. None after a refusal.

    `launch`: what an engine's start command says instead.
    """
    before = len(flags.problems)
    if launch is not None:
        # engines take the flags of expert parallelism for a dense model too, and do nothing
        experts = launch.layout.expert if model is None or model.geometry.experts else 1
        layout = replace(launch.layout, expert=experts)
        _check(flags, layout, model)
        return layout if len(flags.problems) == before else None
    gpus, tensor, pipeline, data, expert, context = (flags.value(name, COUNT) for name in _SIZES)
    if len(flags.problems) > before:
        return None
    ranks = data or 1
    stages = pipeline or 1
    whole = f"tensor {tensor or 1} x pipeline {stages}" + (f" x data {ranks}" if ranks > 1 else "")
    if gpus is not None and gpus % (stages * ranks * (tensor or 1)):
        what = f"{count_nouns(gpus, 'GPU is', 'GPUs are')} no whole number of replicas of {whole}"
        flags.refuse("--gpus", what, "Leave --gpus away: one replica is worked out, of tp x pp x dp GPUs.")
        return None
    tensor = tensor or (gpus // (stages * ranks) if gpus is not None else 1)
    layout = Parallel(tensor, stages, ranks, expert or 1, context or 1)
    if gpus is not None and layout.gpus != gpus:
        what = f"{whole} is one replica of {count_nouns(layout.gpus, 'GPU')}, not {gpus}"
        fix = f"Leave --gpus away: {gpus // layout.gpus} replicas do that many times what one does."
        flags.refuse("--gpus", what, fix)
    _check(flags, layout, model)
    return layout if len(flags.problems) == before else None


def _check(flags: FlagReader, layout: Parallel, model: ModelFacts | None) -> None:
    if layout.gpus > MOST_GPUS:
        flags.refuse("--dp", f"that makes {layout.gpus} GPUs", f"A replica has at most {MOST_GPUS} here.")
    sharing = layout.tensor * layout.data
    if sharing % layout.expert:
        what = f"{layout.expert} does not divide tensor {layout.tensor} x data {layout.data}"
        flags.refuse("--ep", what, f"Write a divisor of {sharing}: experts are spread over whole GPUs of a stage.")
    if layout.tensor % layout.context:
        what = f"{layout.context} does not divide tensor {layout.tensor}"
        flags.refuse("--dcp", what, "It cuts KV among the GPUs of --tp and adds none: write a divisor of --tp.")
    if model is None:
        return
    if layout.pipeline > model.geometry.layers:
        flags.refuse("--pp", f"{model.name} has {model.geometry.layers} layers", "Write no more stages than that.")
    if layout.expert > 1 and not model.geometry.experts:
        flags.refuse("--ep", f"{model.name} has no routed experts", "Leave it away.")
    if layout.context > 1 and not model.kv_bytes_per_token:
        flags.refuse("--dcp", f"{model.name} keeps no KV", "Leave it away.")


def read_speculation(flags: FlagReader, launch: Launch | None = None) -> Speculation:
    """None of its flags: no speculation, unless `launch`, an engine's start command, has some."""
    drafts = flags.value("--spec", DRAFTS) or 0
    if launch is not None and flags.text("--spec") is None:
        if launch.drafts is None:
            flags.refuse("--launch", "it does not say how many tokens a step drafts", "Say it with --spec.")
        elif launch.drafts > MOST_DRAFTS:
            most = f"A step has at most {MOST_DRAFTS} drafts here."
            flags.refuse("--launch", f"it drafts {launch.drafts} tokens a step", most)
        drafts = launch.drafts or 0
    acceptance = flags.value("--acceptance", PROBABILITY)
    if (
        acceptance is not None
        and not drafts
        and flags.text("--spec") is None
        and (launch is None or launch.drafts == 0)
    ):
        flags.refuse("--acceptance", "there are no drafts to accept", "Write --spec with the tokens drafted a step.")
    return Speculation(drafts, acceptance)


# --- The question


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
    refuse_flags_of_the_other_question(flags)
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
    stated = flags.value("--batch-limit", SEQUENCES)
    return (
        limits if stated is None else replace(limits, sequences=Limit(stated, f"--batch-limit {stated}"), crossed=None)
    )


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
    catalogue = flags.text("--model-catalogue")
    if catalogue is not None and not _are_models(flags, catalogue):
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
        facts = loader.model_facts(settings, _started(launch), folder or loader.hub_cache(environ), catalogue)
        return as_embedder(facts) if launch is not None and launch.pooling else facts
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
    needed = {"--requests-per-second": RATE, "--input-tokens": INPUT_TOKENS, "--output-tokens": OUTPUT_TOKENS}
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
