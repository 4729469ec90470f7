"""A model's name as servers, hubs, file systems and people write it -> a row of the catalogue, and the weight format that it says.

A name means a row when nothing but closed lists stands between them: organisation or path, case, separators, a house before it (`Qwen_`),
suffixes of role (-Instruct), date (-2507, -08-2024) and weight format (-FP8, -FP4-v2). A row's own names are read for a format too: one
that ends in another format than its row says that format. Anything else makes it another model ("-Nemotron-Tulu", "-sql-lora"): its
sizes may be the same, but nobody said so. Parameter counts never come from a name. A row whose name has an organisation is meant by that
organisation's name alone: checkpoints of one name differ ("nvidia/X-FP8" keeps its KV cache in FP8, another's X-FP8 does not).
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Generic, Protocol, TypeVar

from llm_serving_exporter.facts import formats
from llm_serving_exporter.facts.fields import model_unknown
from llm_serving_exporter.model.numbers import add_up
from llm_serving_exporter.model.record import Struct

LONGEST = 4096  # as a path; a name alone is far shorter
_LONGEST_NAME = 256
_NAME = re.compile(r"[a-z0-9._:\- ]+")
_ALPHANUMERIC = re.compile(r"[A-Za-z0-9]")
# as `key` writes it: "-7b", "-1-5b"
_SIZE = r"-\d+(?:-\d+)?[bm]"
# of a file that is split: llama.cpp's llama-gguf-split, which servers are given the first part of
_PART = re.compile(r"-\d{5}-of-\d{5}(?=\.gguf$|$)")
_HUB_FOLDER = re.compile(r"models--(?:[^/]+--)?([^/]+)")

_ROLES = (
    "instruct", "inst", "chat", "it", "base", "cloud", "hf", "pt", "preview", "latest", "thinking", "think", "reasoning", "sft", "dpo",
    "rl", "mtp", "text", "original", "paddle", "seq-cls",    r"\d{4}", r"\d{6}", r"\d{8}", r"\d{2}-20\d{2}", r"20\d{2}-\d{2}-\d{2}",
)  # fmt: skip
# organisations as those who convert checkpoints write them before a name: "Qwen_Qwen3-8B-GGUF"
_HOUSES = (
    "ai21labs", "alibaba-nlp", "allenai", "arcee-ai", "baai", "baidu", "bigcode", "bytedance-seed", "cohereforai", "coherelabs",
    "deepseek-ai", "eleutherai", "google", "huggingfacetb", "ibm-granite", "inclusionai", "intfloat", "internlm", "jinaai",
    "lgai-exaone", "liquidai", "meta-llama", "meta", "microsoft", "minimaxai", "mistralai", "mixedbread-ai", "moonshotai",
    "nousresearch", "nvidia", "openai", "openbmb", "openchat", "opengvlab", "poolside", "qwen", "servicenow-ai", "snowflake",
    "stepfun-ai", "swiss-ai", "tencent", "thudm", "tiiuae", "upstage", "xai-org", "xiaomimimo", "zai-org", "01-ai",
)  # fmt: skip
# words of a weight format -> how _FORMATS spells them
_WORDS: Mapping[str, str] = {
    "fp8": "fp8", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16", "f16": "fp16", "fp32": "fp32", "f32": "fp32",
    "awq": "awq", "gptq": "gptq", "int8": "int8", "int4": "int4", "w8a8": "w8a8", "w4a16": "w4a16", "w8a16": "w8a16",
    "nvfp4": "nvfp4", "fp4": "nvfp4", "nvfp4a16": "nvfp4a16", "mxfp4": "mxfp4", "mxfp8": "mxfp8",
    "bnb": "bnb", "4bit": "4bit", "4-bit": "4bit", "8bit": "8bit", "8-bit": "8bit",
    "128g": "g128", "g128": "g128", "gs128": "g128", "marlin": "marlin",
    "dynamic": "dynamic", "static": "static", "block": "block", "pertensor": "pertensor", "per-tensor": "pertensor", "kv": "kv",
    "quantized": "quantized", "gguf": "gguf", "qat": "qat", "ct": "ct",
    "qad": "ct", "asq": "ct", "inc": "ct", "gptqmodel": "gptq", "unsloth": "unsloth", "autoround": "autoround",
    "auto-round": "autoround", "e4m3": "e4m3", "unquantized": "unquantized",
}  # fmt: skip
# words that do say a format, of which the bits cannot be told from the name alone
_UNCLEAR = (
    "exl2", "exl3", "hqq", "aqlm", "eetq", "mlx", "dwq", "compressed-tensors", "mixed",
    "awq-lite", "nvfp4-fast", "spinquant-int4-eo8", "qlora-int4-eo8", "w4a8c8", "sparse", "2of4", "pruned", "w4afp8", "w4a8", "int3",
    r"[23456]bit", r"(?:ud-)?i?q\d(?:-[a-z0-9]{1,3}){0,2}", r"\d{2,3}g",
)  # fmt: skip
_CONTAINERS = frozenset({"quantized", "gguf", "qat", "ct", "unsloth"})
# groups of 128 are what 4 bits have where nothing says them, and e4m3 is what FP8 is
_USUAL = frozenset({"g128", "marlin", "e4m3"})
_FORMATS: Mapping[frozenset[str], str] = {
    frozenset(words.split()): meant
    for meant, variants in {
        "fp8": ("fp8", "fp8 dynamic", "fp8 static", "fp8 pertensor", "fp8 static pertensor", "fp8 kv", "fp8 w8a8"),
        "fp8_block": ("fp8 block",),
        "bf16": ("bf16",), "fp16": ("fp16",), "fp32": ("fp32",),
        "awq": ("awq", "awq int4", "awq 4bit", "awq w4a16"),
        "gptq": ("gptq", "gptq int4", "gptq 4bit", "gptq w4a16"),
        "gptq_int8": ("gptq int8", "gptq 8bit"),
        "int8": ("int8", "w8a8", "w8a8 int8"), "int8_w8a16": ("w8a16", "int8 w8a16"),
        "int4": ("int4", "w4a16", "int4 w4a16", "autoround int4", "autoround int4 gptq", "autoround w4a16", "autoround 4bit"),
        "nvfp4": ("nvfp4",), "nvfp4_w4a16": ("nvfp4a16",), "mxfp4": ("mxfp4",), "mxfp8": ("mxfp8",),
        "bitsandbytes": ("bnb 4bit",), "bitsandbytes_int8": ("bnb 8bit",),
    }.items()
    for words in variants
}  # fmt: skip

_PLAIN = ("bf16", "fp16", "fp32")


class Named(Protocol):
    """What can be found by name."""

    @property
    def name(self) -> str:
        """Its first name."""

    @property
    def also(self) -> tuple[str, ...]:
        """Its other names."""


Row = TypeVar("Row", bound=Named)


class Match(Struct, Generic[Row], frozen=True):
    """A row of the catalogue, and what the asked name says of the weights."""

    entry: Row
    weight_format: str | None = None  # the format that the name states, for `formats.named`; None: it states none
    unclear: str | None = None  # a word of the name that states a quantisation but not its bits


def key(text: str) -> str | None:
    """What names are compared by: lower case, separators only between digits ("Llama-3.1-8B", "llama3.1:8b" -> "llama3-1-8b").

    None where the text holds what no such name holds.
    """
    lowered = text.strip().lower()
    if not lowered.isascii() or len(lowered) > _LONGEST_NAME or not _NAME.fullmatch(lowered.replace("_", "-")):
        return None
    dashed = re.sub(r"[^a-z0-9]+", "-", lowered).strip("-")
    return re.sub(r"(?<!\d)-|-(?!\d)", "", dashed) or None


# the rows' names are read again for each question; bounded, since names from outside are read too
_remember = lru_cache(maxsize=8192)


@_remember
def claimed(name: str) -> str | None:
    """What a row's name is found by: `key`, with the organisation's before it where the name has one. None: it is no name."""
    organisation, slash, model = name.rpartition("/")
    keys = (key(organisation), key(model)) if slash else (key(model),)
    return "/".join(found for found in keys if found) if all(keys) else None


def find(text: str, catalogue: Sequence[Row]) -> Match[Row]:
    """The row that a name or path means; of a path its last part, with the organisation before it where a row is of that one alone.

    Raises FactsError (model_unknown) that names rows near it, where there are some.
    """
    whole, forms = _whole(text), list(_forms(text))
    # suffixes fall off a name, so that its first letter stays: spelling the names of other letters would be most of the work
    initials = {_initial(one) for one in (whole, *forms)}
    known = {
        spelled: (entry, name)
        for entry in catalogue
        for name in (entry.name, *entry.also)
        if _initial(name) in initials and (spelled := claimed(name))
    }
    by_whole = known.get(whole)
    found = (
        Match(by_whole[0]) if by_whole is not None else next(filter(None, (_find(form, known) for form in forms)), None)
    )
    if found is not None:
        return found
    near = nearest(text.strip()[:LONGEST].rstrip("/").rpartition("/")[2][:_LONGEST_NAME].lower(), catalogue)
    known_as = f" (nearest: {', '.join(near)})" if near else ""
    raise model_unknown(f"model {text[-128:]!r} is not in the built-in catalogue{known_as}")


@_remember
def _initial(name: str) -> str:
    """The first letter or digit of a name without its organisation, in lower case; "" where it has none."""
    first = _ALPHANUMERIC.search(name, name.rfind("/") + 1)
    return first[0].lower() if first is not None else ""


def _find(name: str, known: Mapping[str, tuple[Row, str]]) -> Match[Row] | None:
    """The row with the longest name of which the words that are left make a format; of none do they, the longest: "X-FP8-dynamic" is X in
    FP8 also where X-FP8 is a row of its own."""
    longest: Match[Row] | None = None
    for rest, words, newest in _stripped(name):
        entry, own = known.get(key(rest) or "", (None, ""))
        if entry is not None:
            if newest and _has_other_sizes(entry, key(rest) or "", known):
                return None
            match = _match(entry, words) if words else Match(entry, _said_by_row(entry, own))
            if match.unclear is None:
                return match
            longest = longest or match
    return longest


def _stripped(name: str) -> Iterator[tuple[str, list[str], bool]]:
    """A name without one suffix of the closed lists after the other; the words of a format among them so far, the last one of the name
    first; whether "latest" was one."""
    # a second edition of a checkpoint: "-FP4-v2"
    rest = _edition().sub(r"\1", name)
    words, newest = list[str](), False
    while rest:
        yield rest, words, newest
        suffix = _suffix().fullmatch(rest)
        if suffix is None:
            return
        rest = suffix["rest"]
        newest = newest or suffix["word"] == "latest"
        if not re.fullmatch("|".join(_ROLES), suffix["word"]):
            words = [*words, suffix["word"]]


def _said_by_row(entry: Named, name: str) -> str | None:
    """The format that one of a row's own names ends in; None where the row's first name ends in it too: the row says it exactly then."""
    said, first = (
        _said(max((words for _, words, _ in _stripped(_last(each))), key=len, default=()))
        for each in (name, entry.name)
    )
    return said if said in _PLAIN or said != first else None


def _has_other_sizes(entry: Row, name: str, known: Mapping[str, tuple[Row, str]]) -> bool:
    """Whether a name with a size behind it is another row: "deepseek-r1:latest" is Ollama's usual size of it, not DeepSeek-R1's own."""
    sized = re.compile(re.escape(name) + _SIZE)
    return any(other is not entry and sized.fullmatch(spelled) is not None for spelled, (other, _) in known.items())


def _forms(text: str) -> Iterator[str]:
    """The name, and as a host that allows no dots in names means it: "qwen2p5" is Qwen2.5, "llama-v3p1" Llama-3.1."""
    last = _last(text)
    yield last
    dotted = re.sub(r"(?<=\d)p(?=\d)", "-", last)
    if dotted != last:
        yield dotted
    plain = re.sub(r"-v(?=\d)", "-", dotted)
    if plain != dotted:
        yield plain
    house = next((one for one in _HOUSES if last.startswith(f"{one}-")), None)
    if house is not None:
        yield last.removeprefix(f"{house}-")


def _whole(text: str) -> str:
    """The key of organisation and model, as a hub id, a cache's folder or the last two parts of a path say them; "" for neither."""
    text = text.strip()[:LONGEST]
    hub = re.findall(r"models--([^/]+?)--([^/]+)", text)
    organisation, model = (
        hub[-1] if hub else text.rstrip("/").rsplit("/", 2)[-2:] if "/" in text.strip("/") else ("", "")
    )
    keys = key(organisation), key(model)
    return "/".join(found for found in keys if found) if all(keys) else ""


def _last(text: str) -> str:
    """The part of a path or id that names the model, separators as dashes; "" where there is none."""
    text = text.strip()[:LONGEST]
    hub = _HUB_FOLDER.findall(text)
    name = _PART.sub("", (hub[-1] if hub else text.rstrip("/").rpartition("/")[2]).lower())
    if key(name) is None:
        return ""
    name = re.sub(r"[^a-z0-9]+", "-", name).strip("-")
    if name.startswith("meta-llama-llama"):
        return name.removeprefix("meta-llama-")
    return name.removeprefix("meta-") if name.startswith("meta-llama") else name


@cache
def _suffix() -> re.Pattern[str]:
    """The longest word of the closed lists at a name's end."""
    gguf = (re.escape(name.replace("_", "-")) for name in {*formats.GGUF_FILE_BITS, *formats.GGUF_BLOCK_BITS})
    words = "|".join((*_ROLES, *map(re.escape, _WORDS), *gguf, *_UNCLEAR))
    return re.compile(rf"(?P<rest>.+?)-(?P<word>{words})")


@cache
def _edition() -> re.Pattern[str]:
    """The number of an edition behind a word of a format."""
    return re.compile(rf"(-(?:{'|'.join(map(re.escape, _WORDS))}))-v\d{{1,2}}$")


def _match(entry: Row, words: Sequence[str]) -> Match[Row]:
    said = _said(words)
    return Match(entry, said) if said is not None else Match(entry, unclear="-".join(reversed(words)))


def _said(words: Sequence[str]) -> str | None:
    """The format that words of a name mean together; None: none, or not which."""
    said = frozenset(_WORDS.get(word, word) for word in words) - _CONTAINERS
    if "unquantized" in said:
        # trained for a format that it is not kept in
        return "bf16"
    said = said - _USUAL or said
    if len(said) == 1:
        (word,) = said
        gguf = word.replace("-", "_")
        if gguf in formats.GGUF_FILE_BITS or gguf in formats.GGUF_BLOCK_BITS:
            return gguf
    return _FORMATS.get(said)


# --- names near to one that no row has: of the same family and of about the same size. Letters alone mislead: "GLM-4.6" and "GPT-J-6B"
# share most of theirs

_MOST_NEAR = 3
# sizes this far apart are of one class ("8B" and "9B"), others are not
_SIZE_RATIO = 1.25
# names without a size must be this alike, as difflib counts it
_ALIKE, _ALIKE_OF_A_SIZE = 0.8, 0.5
# of another family, by a slip of the pen: "lama-3.1-8b"
_ALIKE_WITH_A_SLIP = 0.9
_FIRST_LETTERS = re.compile(r"[a-z]+")
# "70b", "1.5b", "8x7b", "125m"; what is active in "30b-a3b" is no size of its own
_STATED_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,2})?)([bmt])(?![a-z0-9])")
_UNITS = {"m": 1e6, "b": 1e9, "t": 1e12}


def nearest(said: str, catalogue: Sequence[Named]) -> list[str]:
    """Names of rows of the family that a name begins with, of its size where it says one, the most alike first; none where none is near.

    `said`: in lower case, without an organisation.
    """
    family, size = _family(said), _size(said)
    if not family:
        return []
    letters = Counter(said)
    scored: list[tuple[float, str]] = []
    for row in catalogue:
        name = row.name.rpartition("/")[2].lower()
        own = _size(name)
        same = size is not None and own is not None and max(size, own) <= _SIZE_RATIO * min(size, own)
        if not same and size is not None and own is not None:
            continue
        least = _ALIKE_OF_A_SIZE if same else _ALIKE
        if _family(name) != family:
            least = max(least, _ALIKE_WITH_A_SLIP)
        # of most names the letters alone tell: comparing their order is most of the work
        if _share_of_letters(letters, len(said), name) >= least:
            alike = difflib.SequenceMatcher(None, said, name).ratio()
            if alike >= least:
                scored.append((alike, row.name))
    return [name for _, name in sorted(scored, key=lambda one: (-one[0], one[1]))[:_MOST_NEAR]]


def _share_of_letters(letters: Counter[str], length: int, name: str) -> float:
    """The ratio as difflib counts it if the common letters stood in the same order: never below it."""
    return 2.0 * add_up(min(count, name.count(letter)) for letter, count in letters.items()) / (length + len(name))


def _family(name: str) -> str:
    """Letters that the name begins with; more words where the first is one of many ("gpt-oss", "gpt-j")."""
    words = re.split(r"[^a-z0-9]+", name)
    first = _FIRST_LETTERS.match(words[0])
    if first is None:
        return ""
    shared = first[0] in ("gpt", "open", "deepseek", "nvidia") and len(words) > 1
    second = _FIRST_LETTERS.match(words[1]) if shared else None
    return f"{first[0]}-{second[0]}" if second is not None else first[0]


def _size(name: str) -> float | None:
    """The size that a name says, in parameters; None where it says none. "8x7b" counts as 56 B."""
    found = _STATED_SIZE.search(name)
    if found is None:
        return None
    return int(found[1] or 1) * float(found[2]) * _UNITS[found[3]]
