"""The flags of `ceiling` and the kinds of their values. Everything is text to argparse, so that every fault is reported at once."""

from __future__ import annotations

import math
import re

from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.flags import CommandParser
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import InvalidValueError, shown

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
    found = tuple(dict.fromkeys(map(int, words)))
    if len(found) > MOST_BATCHES:
        raise InvalidValueError(f"these are {len(found)} batches", f"Write at most {MOST_BATCHES}.")
    return found


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


def parser() -> CommandParser:
    """The command's parser; the texts of its flags are checked by `question`."""
    parser = CommandParser("ceiling", usage=USAGE, description=_DESCRIPTION, epilog=EPILOG)
    say = parser.add_argument_group("the model").add_argument
    say("--model", metavar="MODEL", help="name in the built-in catalogue, a config.json, or a folder that holds one")
    say(
        "--dtype",
        "--weights",
        metavar="FORMAT",
        help="weights: bf16, fp8, int8, int4, awq, nvfp4, q4_k_m … (default: as the model is published)",
    )
    say(
        "--kv-dtype",
        "--kv",
        metavar="DTYPE",
        help="KV cache: auto, bf16, fp8 … (default: as the checkpoint says, else auto)",
    )
    say(
        "--state-dtype",
        metavar="DTYPE",
        help="recurrent state of Mamba layers and the like (default: the config's, else fp32)",
    )
    say(
        "--model-catalogue",
        metavar="PATH",
        help="models of your own, before the built-in ones: a TOML file, or a folder of such files or config.json files",
    )
    say("--hf-cache", metavar="FOLDER", help="Hugging Face cache to look the name up in first (default: this user's)")

    say = parser.add_argument_group("the GPUs of one replica").add_argument
    say(
        "--gpu",
        metavar="GPU",
        help='"H100 SXM", MI300X, "TPU v6e", L40S …, one of --gpu-spec, or "this one" to ask NVML',
    )
    say(
        "--gpu-spec",
        metavar="FILE",
        help="YAML file with gpu_models:, cards of your own that --gpu may name, such as the daemon's configuration",
    )
    say("--gpu-bandwidth", metavar="RATE", help="of the memory of one GPU, as in 1.8TB/s, instead of the catalogue's")
    say("--gpu-tflops", metavar="LIST", help="dense TFLOP/s of one GPU by format, as in bf16=400,fp8=800, likewise")
    say(
        "--tp",
        metavar="N",
        help="tensor-parallel size: --tp 8 means eight GPUs (default: all GPUs of a pipeline stage)",
    )
    say("--pp", metavar="N", help="pipeline stages (default 1)")
    say("--dp", metavar="N", help="attention data-parallel ranks, of tp x pp GPUs each (default 1)")
    say(
        "--ep",
        metavar="N",
        help="GPUs that one set of routed experts is spread over, of tp x dp (default 1: each rank has all)",
    )
    say("--dcp", metavar="N", help="decode context parallelism: parts of a sequence's KV among the tp GPUs (default 1)")
    say(
        "--launch",
        metavar="COMMAND",
        help="an engine's own start command instead of these sizes, as in 'vllm serve MODEL -tp 4 -dp 2 --max-num-seqs 64'",
    )
    say("--gpus", metavar="N", help="GPUs of the replica, where --tp is left away (default: tp x pp x dp)")
    say("--memory", metavar="SIZE", help="memory of one GPU, as in 80GB (default: the catalogue's or NVML's)")
    say("--memory-utilization", metavar="SHARE", help="share of it that the engine may use (default 0.9)")
    say(
        "--overhead",
        metavar="SIZE",
        default="0",
        help="memory of each GPU for activations, graphs and buffers, as in 2GB (default 0)",
    )
    say("--price", metavar="USD", help="price of one GPU for an hour")

    say = parser.add_argument_group("the question").add_argument
    say("--context", metavar="TOKENS", help="tokens of each sequence (default 4096, or the model's longest where less)")
    say("--spec", metavar="N", help="tokens that are drafted for each sequence and step (default 0)")
    say("--acceptance", metavar="SHARE", help="probability that a draft is accepted if those before it were, as in 0.7")
    say("--prompt", metavar="TOKENS", help="prompt of the time to first token (default: --context)")
    say("--batches", metavar="LIST", help="sequences that decode together, as in 1,8,32 (default 1,2,4,…,256)")
    say("--batch-limit", metavar="N", help="most sequences that the replica runs at once (default: as many as fit)")
    say("--json", action="store_true", help="print JSON for programs")

    group = parser.add_argument_group("a load to serve", "How many replicas does it need?")
    say = group.add_argument
    say("--requests-per-second", metavar="RATE", help="at its peak")
    say("--input-tokens", metavar="TOKENS", help="mean prompt")
    say("--output-tokens", metavar="TOKENS", help="mean output; left away for an encoder")
    say(
        "--target-utilization",
        metavar="SHARE",
        default="0.7",
        help="share of a replica's throughput to plan with: 0.7 leaves 43 %% of headroom (default 0.7)",
    )
    say("--redundancy", metavar="FACTOR", default="1", help="factor on the replicas, as in 1.3 (default 1)")
    say(
        "--efficiency", metavar="SHARE", default="0.6", help="share of the ceiling that a replica reaches (default 0.6)"
    )

    group = parser.add_argument_group(
        "last week's load", "What would a fleet that Prometheus watches need? The other flags say what is to differ."
    )
    say = group.add_argument
    say("--from-prometheus", metavar="URL", help="Prometheus that has its series and the records of our rules")
    say("--role", metavar="ROLE", help="unified, prefill or decode, where --model is served as several")
    say("--over", metavar="DURATION", default="7d", help="how far back (default 7d)")
    say("--traffic", metavar="FACTOR", default="1x", help="times as many requests, as in 2x (default 1x)")
    say("--replicas", metavar="N", help="so many replicas, whatever is needed")
    say("--objective", metavar="SHARE", default="0.99", help="share of events within their thresholds (default 0.99)")
    say("--bearer-token-file", metavar="PATH", help="holds the token that Prometheus asks for")
    say("--ca-file", metavar="PATH", help="authorities to trust instead of the system's")
    return parser
