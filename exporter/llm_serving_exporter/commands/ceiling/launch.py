"""The layout that an engine's own start command means: each engine calls the same things by other names, or other things by the same.

vLLM's tensor-parallel size is of one data-parallel rank, and its ranks share the experts of a mixture-of-experts model
(https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html). SGLang's and TensorRT-LLM's is of the whole group, which
data-parallel attention divides into ranks (sglang/srt/runtime_context.py; tensorrt_llm/mapping.py: attention's own tensor-parallel
size is 1 under enable_attention_dp).
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence

from llm_serving_exporter.model.frozen import dataclass
from llm_serving_exporter.model.hardware import Parallel

_OFF = ("false", "0", "no", "off")
# of a format: none is stated
_USUAL = ("auto", "none")
# what flags say that stand alone
_WITHOUT_VALUE = ("attention_dp", "expert_parallel")
# what they say that is a word, and what not of the layout: another engine may have the same flag
_WORDS = {"model": "name", "dtype": "dtype", "quantization": "format", "kv_cache_dtype": "dtype"}
_SHARE = "memory_share"
_NO_LAYOUT = {*_WORDS, _SHARE}


@dataclass(frozen=True, slots=True)
class Launch:
    """What a start command says."""

    # name of the engine
    engine: str
    # how one replica is spread; experts of a model that has some
    layout: Parallel
    # that is served; None: the command does not say
    model: str | None
    # of weights that are not quantised; None: the command does not say
    dtype: str | None = None
    # engine's word for the weights' format; None: the command does not say
    quantization: str | None = None
    # of the KV cache; None: the command does not say
    kv_cache_dtype: str | None = None
    # share of a GPU's memory for weights and KV; None: the command does not say
    memory_share: float | None = None


# by what a flag says: tensor, pipeline, data, expert, context, attention_dp, expert_parallel -> its number; 1 for a flag without one
Sizes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Dialect:
    # of the engine
    name: str
    # words one of which its command holds
    words: tuple[str, ...]
    # flag, with `-` for `_` -> what it says
    flags: Mapping[str, str]
    # word behind which the model stands without a flag; "": it always has one
    serve: str
    # what the flags say -> the layout; ValueError where the engine would refuse them
    spread: Callable[[Sizes], Parallel]


def _spread_vllm(said: Sizes) -> Parallel:
    tensor, data = said.get("tensor", 1), said.get("data", 1)
    experts = tensor * data if data > 1 or "expert_parallel" in said else 1
    return Parallel(tensor, said.get("pipeline", 1), data, experts, said.get("context", 1))


def _spread_group(said: Sizes) -> Parallel:
    """SGLang: plain data parallelism is whole copies."""
    tensor, data = said.get("tensor", 1), said.get("data", 1)
    if "attention_dp" not in said:
        return Parallel(tensor, said.get("pipeline", 1), data, said.get("expert", 1))
    if tensor % data:
        raise ValueError(f"data-parallel attention of {data} does not divide the tensor-parallel size of {tensor}")
    return Parallel(tensor // data, said.get("pipeline", 1), data, tensor)


def _spread_trtllm(said: Sizes) -> Parallel:
    """Each GPU is a rank of attention under enable_attention_dp."""
    tensor = said.get("tensor", 1)
    if "attention_dp" in said:
        return Parallel(1, said.get("pipeline", 1), tensor, tensor)
    return Parallel(tensor, said.get("pipeline", 1), 1, said.get("expert", 1))


_DIALECTS = (
    _Dialect(
        "vLLM", ("vllm",),
        {
            "--tensor-parallel-size": "tensor", "-tp": "tensor", "--pipeline-parallel-size": "pipeline", "-pp": "pipeline",
            "--data-parallel-size": "data", "-dp": "data", "--enable-expert-parallel": "expert_parallel", "-ep": "expert_parallel",
            "--decode-context-parallel-size": "context", "-dcp": "context", "--model": "model", "--dtype": "dtype",
            "--quantization": "quantization", "-q": "quantization", "--kv-cache-dtype": "kv_cache_dtype",
            "--gpu-memory-utilization": _SHARE,
        },
        "serve", _spread_vllm,
    ),
    _Dialect(
        "SGLang", ("sglang",),
        {
            "--tp": "tensor", "--tp-size": "tensor", "--tensor-parallel-size": "tensor", "--pp-size": "pipeline", "--pp": "pipeline",
            "--pipeline-parallel-size": "pipeline", "--dp": "data", "--dp-size": "data", "--data-parallel-size": "data",
            "--ep": "expert", "--ep-size": "expert", "--expert-parallel-size": "expert", "--enable-dp-attention": "attention_dp",
            "--model-path": "model", "--model": "model", "--dtype": "dtype", "--quantization": "quantization",
            "--kv-cache-dtype": "kv_cache_dtype", "--mem-fraction-static": _SHARE,
        },
        "", _spread_group,
    ),
    _Dialect(
        "TensorRT-LLM", ("trtllm", "tensorrt"),
        {
            "--tp-size": "tensor", "--tensor-parallel-size": "tensor", "--pp-size": "pipeline", "--pipeline-parallel-size": "pipeline",
            "--ep-size": "expert", "--moe-expert-parallel-size": "expert", "--expert-parallel-size": "expert",
            "--enable-attention-dp": "attention_dp", "--model": "model", "--kv-cache-dtype": "kv_cache_dtype",
        },
        "trtllm-serve", _spread_trtllm,
    ),
)  # fmt: skip
ENGINES = tuple(dialect.name for dialect in _DIALECTS)


def read_launch(command: str) -> Launch:
    """Flags that say nothing of layout, model, formats or share of the memory are passed over. Raises ValueError that says what cannot be
    read. "auto" is what a command without the flag says."""
    words = shlex.split(command)
    dialect = next(
        (one for one in _DIALECTS if any(name in word.lower() for word in words for name in one.words)), None
    )
    if dialect is None:
        raise ValueError(f"no word of it names an engine that is known here: {', '.join(ENGINES)}")
    said, named, share = _read_flags(words, dialect)
    formats = {what: word for what, word in named.items() if what != "model" and word.lower() not in _USUAL}
    return Launch(dialect.name, dialect.spread(said), named.get("model"), memory_share=share, **formats)


def _read_flags(words: Sequence[str], dialect: _Dialect) -> tuple[dict[str, int], dict[str, str], float | None]:
    """Sizes, words and the share of the memory that the flags say."""
    sizes: dict[str, int] = {}
    named: dict[str, str] = {}
    share: float | None = None
    for place, word in enumerate(words):
        flag, given, value = word.partition("=")
        follower = words[place + 1] if place + 1 < len(words) else ""
        if dialect.serve and word.rpartition("/")[2] == dialect.serve and follower and not follower.startswith("-"):
            # `trtllm-serve serve MODEL` has a word of its own between
            named.setdefault("model", follower if follower != "serve" else next(iter(words[place + 2 :]), follower))
        # configuration files' own spelling (enable_attention_dp: true) is read too
        name = flag.replace("_", "-")
        meaning = dialect.flags.get(name) or dialect.flags.get("--" + name.rstrip(":"))
        if meaning is None:
            _refuse_anothers(flag, name, dialect)
            continue
        text = value if given else ("" if follower.startswith("-") else follower)
        if not text and meaning not in _WITHOUT_VALUE:
            raise ValueError(f"{flag} has no {_WORDS.get(meaning, 'share' if meaning == _SHARE else 'size')} behind it")
        if meaning in _WORDS:
            named[meaning] = text
        elif meaning == _SHARE:
            share = _read_share(flag, text)
        elif meaning in _WITHOUT_VALUE:
            if text.lower() not in _OFF:
                sizes[meaning] = 1
        elif text.isascii() and text.isdigit() and 0 < int(text) < 1_000_000:
            sizes[meaning] = int(text)
        else:
            raise ValueError(f"{flag} has {text!r}, which is no size")
    return sizes, named, share


def _read_share(flag: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"{flag} has {text!r}, which is no share above 0 and up to 1")
    return share


def _refuse_anothers(flag: str, name: str, dialect: _Dialect) -> None:
    """Raises ValueError for a flag by which another engine says its layout: this one would not start, or would start with its default."""
    for other in _DIALECTS:
        meaning = other.flags.get(name) if flag.startswith("-") else None
        if meaning is not None and meaning not in _NO_LAYOUT:
            own = [one for one, its in dialect.flags.items() if its == meaning]
            instead = f"; {dialect.name} has {' or '.join(own)}" if own else ""
            raise ValueError(f"{flag} is a flag of {other.name}{instead}")
