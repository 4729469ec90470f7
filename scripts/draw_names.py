"""Draw model names from what engines and hosts list: `python scripts/draw_names.py --vllm FILE ... --out FOLDER`.

Writes `union.txt` (every name, once, with the lists that have it) and `drawn.txt` (those drawn). What is read, at paths given as arguments:
vLLM's and TensorRT-LLM's supported-models.md, SGLang's pages of supported models, LiteLLM's price file.

Which names count is decided by the rules below alone, before anything is known of what the catalogue holds:
* of engines' tables, those of models that write text: not transcription, pooling, reward, embedding, and no drafts of another model;
* of the price file, chat and completion models of hosts that serve open weights, in the hub's form (organisation/name) or Fireworks' own
  (accounts/fireworks/models/name); not what is sold and never published (CLOSED), pictures, or a host's own speed of a model (HOSTED).
Names that differ in organisation or case alone are one.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

HOSTS = (
    "anyscale", "baseten", "crusoe", "deepinfra", "featherless_ai", "fireworks_ai", "friendliai", "groq", "hyperbolic", "nebius",
    "novita", "nscale", "scaleway", "together_ai", "wandb",
)  # fmt: skip
# what its publisher sells as a service only: no weights, so no config.json
CLOSED = re.compile(
    r"claude|gemini|(?:^|-)max(?:-|$)|-plus(?:-|$)|^seed-[12]\.|^yi-large$|^kat-coder|^qwen-mt-|^cobuddy$|^r1v4-|^glm-5v?-turbo$|^flux-|ocr-v6$"
)
# suffixes that a host gives to its own deployment of a published model
HOSTED = re.compile(r"-(?:turbo|ultra|fast|highspeed|us|spot|basic|long|h|draft.*|\d+k|\d+k-rope)$|^community$")
_TEXT_SECTIONS = re.compile(r"^#### Text Generation$(.*?)(?=^#{2,4} )", re.MULTILINE | re.DOTALL)
_NOT_TEXT = re.compile(r"(?:SequenceClassification|RewardModel|TextEmbedding|Assistant\w*)`")
_QUOTED = re.compile(r"(?:`|<code>)([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+)\s*(?:`|</code>)(?! \(GGUF\))")


def engine_names(text: str) -> Iterator[str]:
    """A page of supported models -> the hub names of its tables' rows; of a page with sections for kinds of tasks, of text generation."""
    for part in _TEXT_SECTIONS.findall(text) or [text]:
        for line in part.splitlines():
            if line.lstrip().startswith(("|", "<td")) and not _NOT_TEXT.search(line):
                yield from _QUOTED.findall(line)


def host_names(prices: dict[str, dict[str, object]]) -> Iterator[str]:
    """LiteLLM's price file -> names of models with published weights, by the rules of this module."""
    for key, row in prices.items():
        host, _, said = key.partition("/")
        if (
            row.get("litellm_provider") not in HOSTS
            or host not in HOSTS
            or row.get("mode") not in ("chat", "completion")
        ):
            continue
        said = said.removeprefix("accounts/fireworks/models/")
        name = said.rpartition("/")[2].lower()
        hub = said.count("/") == 1 or "accounts/fireworks/models/" in key
        if hub and not said.startswith("anthropic/") and not CLOSED.search(name) and not HOSTED.search(name):
            yield said


def main() -> None:
    """Read the lists, write the two files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for engine in ("vllm", "sglang", "tensorrt-llm"):
        parser.add_argument(f"--{engine}", type=Path, action="append", required=True, metavar="PAGE")
    parser.add_argument("--litellm", type=Path, required=True, metavar="PRICES.json")
    parser.add_argument("--seed", type=int, default=22)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    lists = {name: [said for page in getattr(asked, name) for said in engine_names(page.read_text("utf-8"))]
             for name in ("vllm", "sglang", "tensorrt_llm")}  # fmt: skip
    lists["litellm"] = list(host_names(json.loads(asked.litellm.read_text("utf-8"))))
    union: dict[str, tuple[str, list[str]]] = {}
    for source, names in lists.items():
        for name in names:
            _, sources = union.setdefault(name.rpartition("/")[2].lower(), (name, []))
            if source not in sources:
                sources.append(source)
    rows = [union[key] for key in sorted(union)]
    drawn = sorted(random.Random(asked.seed).sample([name for name, _ in rows], asked.count), key=str.lower)
    asked.out.mkdir(parents=True, exist_ok=True)
    (asked.out / "union.txt").write_text("".join(f"{name} {','.join(sources)}\n" for name, sources in rows), "utf-8")
    (asked.out / "drawn.txt").write_text("".join(f"{name}\n" for name in drawn), "utf-8")
    sys.stdout.write(f"{len(rows)} names, {len(drawn)} drawn with seed {asked.seed}\n")


if __name__ == "__main__":
    main()
