"""A start command of an engine -> layout, model, formats, drafts and share of the memory that it means."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence

from llm_serving_exporter.commands.ceiling.answer import Limit, Limits, States
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import Struct, field

# --- What the flags of each engine's start command say, as far as it concerns a ceiling, and the layout that they mean together.
#
# Engines call the same things by other names, or other things by the same. vLLM's tensor-parallel size is of one data-parallel rank, and
# its ranks share the experts of a mixture-of-experts model (https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html).
# SGLang's and TensorRT-LLM's is of the whole group, which data-parallel attention divides into ranks (sglang/srt/runtime_context.py;
# tensorrt_llm/mapping.py: attention's own tensor-parallel size is 1 under enable_attention_dp).


# what flags say that stand alone
WITHOUT_VALUE = ("attention_dp", "expert_parallel", "pooling")
# what they say that is a word, and what not of the layout: another engine may have the same flag
WORDS = {
    "model": "name", "dtype": "dtype", "quantization": "format", "kv_cache_dtype": "dtype", "algorithm": "name",
    "drafting": "settings", "file": "name", "state_dtype": "dtype", "task": "name",
}  # fmt: skip
SHARE = "memory_share"
# sequences that run at once, of one scheduler; tokens that a step of it may compute; tokens of one sequence, prompt and answer together
SEQUENCES, STEP_TOKENS, CONTEXT_LIMIT = "sequences", "step_tokens", "context_limit"
LIMITS = (SEQUENCES, STEP_TOKENS, CONTEXT_LIMIT)
# of drafts: tokens drafted a step; tokens checked a step, of which one is no draft; steps of a drafter that may draft several tokens each
DRAFTS = ("drafts", "checked", "draft_steps", "draft_width")
# over how many GPUs the work is spread in a way that is not known here, unless it says 1
UNREAD = "unread"
NO_LAYOUT = {"pooling", *WORDS, *DRAFTS, SHARE, STEP_TOKENS, CONTEXT_LIMIT, UNREAD}
# how engines write a size by which the work is spread: "--prefill-context-parallel-size", "--attn-cp-size", "--tp", "-pcp"
_SPREADS = re.compile(
    r"--?(?:[a-z0-9]+-)*(?:(?:dw|[a-z])?(?:tp|pp|dp|ep|cp|sp)|parallel|parallelism|cluster)-size"
    r"|--?(?:[a-z]+-)*parallel(?:ism)?|--?[a-z]?(?:tp|pp|dp|ep|cp|sp)"
)

# by what a flag says: tensor, pipeline, data, expert, context, attention_dp, expert_parallel -> its number; 1 for a flag without one
Sizes = Mapping[str, int]

_OFFLOADED = "keeps weights in the host's memory: more fits than said here, and each step takes longer"
_KV_SIZE = "says how much memory the KV cache has, and is not read: how many sequences fit may differ"
_COPIES = "keeps experts more than once: less fits than said here"
_OWN_LAYOUTS = frozenset({"deepseek_v4"})
_OVERRIDES = "changes the model's config.json, and is not read"
_WHOLE_CONTEXT = "has layers with a window keep the whole context: fewer sequences fit than said here"
_DENSE_COPIES = "has each GPU keep dense layers that others share: less fits than said here"
_STATE_POOL = "says how much memory recurrent state has, and is not read: how many sequences run at once may differ"
_OTHER_SPLIT = "splits the model over GPUs in parts that are not read: this is the answer for one GPU"
_OWN_SIZES = "--dp --ep --cp"
_FORMAT = "changes how weights are kept, and is not read: say it with --dtype"
_KV_FORMAT = "changes how the KV cache is kept, and is not read: say it with --kv-dtype"


def is_size_of_layout(name: str) -> bool:
    """Whether a flag, with `-` for `_`, says by its name over how many GPUs the work is spread."""
    return _SPREADS.fullmatch(name) is not None


def _flags(runtime: str, *, unread: str = "", **by_meaning: str) -> dict[str, str]:
    """Flag -> what it says, of the flags that say each thing, and of those in the runtime's table by which it is told how many requests run
    at once."""
    table = RUNTIMES[runtime].flags
    limits = () if table is None else (*table.batch_limit, *table.bounds)
    return {**_turn(by_meaning), **dict.fromkeys(limits, SEQUENCES), **_turn({UNREAD: unread})}


def _turn(flags_by_words: Mapping[str, str]) -> dict[str, str]:
    return {flag: words for words, flags in flags_by_words.items() for flag in flags.split()}


class Dialect(Struct, frozen=True):
    """How one engine is started."""

    name: str
    words: tuple[str, ...]  # words one of which its command holds
    flags: Mapping[str, str]  # flag, with `-` for `_` -> what it says
    serve: str  # word behind which the model stands without a flag; "": it always has one
    # what the flags say -> the layout; ValueError where the engine would refuse them
    spread: Callable[[Sizes], Parallel]
    # flags that make what is worked out wrong -> how, unless they say 0 or nothing
    caveats: Mapping[str, str] = field(default_factory=dict)
    switches: Mapping[str, str] = field(default_factory=dict)  # the same of flags that need nothing behind them
    # what the flags say, and the sequences that one scheduler is told to run at once -> those of the whole replica
    running: Callable[[Sizes, int], int] = lambda said, sequences: sequences
    # the fewest sequences of a scheduler that any version takes where nothing says them; None: not known, or as the memory allows
    least_default: int | None = None
    states: States = States.AS_THEY_COME  # when memory for the recurrent state of its sequences is taken
    holds_longest: bool = False  # whether it starts only where one sequence of the longest context fits
    state_dtype: str | None = None  # dtype of recurrent state where no flag says it; None: not known
    # families of models that it keeps the KV cache of in a layout of their own, which its flag calls "fp8" (`Runtime.kv_as_calibrated`)
    own_layouts: frozenset[str] = frozenset()
    abbreviates: bool = True  # whether a flag may be cut short, as argparse lets it
    # whether a variable of the environment says the same as the flag of its name: MAX_BATCH_SIZE=8
    environment: bool = False


def _spread_vllm(sizes: Sizes) -> Parallel:
    tensor, data = sizes.get("tensor", 1), sizes.get("data", 1)
    experts = tensor * data if data > 1 or "expert_parallel" in sizes else 1
    return Parallel(tensor, sizes.get("pipeline", 1), data, experts, sizes.get("context", 1))


def _spread_group(sizes: Sizes) -> Parallel:
    """SGLang: plain data parallelism is whole copies."""
    tensor, data, context = sizes.get("tensor", 1), sizes.get("data", 1), sizes.get("context", 1)
    if "attention_dp" not in sizes:
        return Parallel(tensor, sizes.get("pipeline", 1), data, sizes.get("expert", 1), context)
    if tensor % data:
        raise ValueError(f"data-parallel attention of {data} does not divide the tensor-parallel size of {tensor}")
    return Parallel(tensor // data, sizes.get("pipeline", 1), data, tensor, context)


def _run_sglang(sizes: Sizes, sequences: int) -> int:
    """Ranks of data-parallel attention divide the number (tp_worker.py: max_running_requests // dp_size), whole copies take it each."""
    data = sizes.get("data", 1)
    return sequences // data * data if "attention_dp" in sizes else sequences * data


def _run_trtllm(sizes: Sizes, sequences: int) -> int:
    """Each rank of attention (py_executor.py: tp_size * max_num_active_requests) and each stage (max_batch_size * pp_size) has its own."""
    return sequences * sizes.get("pipeline", 1) * (sizes.get("tensor", 1) if "attention_dp" in sizes else 1)


def _spread_plain(sizes: Sizes) -> Parallel:
    return Parallel(sizes.get("tensor", 1))


def _spread_trtllm(sizes: Sizes) -> Parallel:
    """Each GPU is a rank of attention under enable_attention_dp."""
    tensor = sizes.get("tensor", 1)
    if "attention_dp" in sizes:
        return Parallel(1, sizes.get("pipeline", 1), tensor, tensor)
    return Parallel(tensor, sizes.get("pipeline", 1), 1, sizes.get("expert", 1))


# of vLLM 0.32 (engine/arg_utils.py), SGLang 0.5.23 (srt/arg_groups/fields), trtllm-serve 1.2 (commands/serve.py), and what they were before
DIALECTS = (
    Dialect(
        "vLLM", ("vllm", "aphrodite"),
        _flags(
            "vllm",
            tensor="--tensor-parallel-size -tp", pipeline="--pipeline-parallel-size -pp", data="--data-parallel-size -dp",
            expert_parallel="--enable-expert-parallel -ep", context="--decode-context-parallel-size -dcp",
            model="--model", dtype="--dtype", quantization="--quantization -q", kv_cache_dtype="--kv-cache-dtype",
            memory_share="--gpu-memory-utilization", drafting="--speculative-config -sc",
            algorithm="--spec-method --spec-model --speculative-model --speculative-config.method --speculative-config.model",
            drafts="--spec-tokens --num-speculative-tokens --speculative-config.num-speculative-tokens",
            file="--config", task="--runner --task --convert", step_tokens="--max-num-batched-tokens", context_limit="--max-model-len",
            state_dtype="--mamba-ssm-cache-dtype --mamba-cache-dtype",
            # each adds GPUs that keep the same weights (config/parallel.py: world_size)
            unread="--prefill-context-parallel-size -pcp",
        ),
        "serve", _spread_vllm,
        own_layouts=_OWN_LAYOUTS,
        # each data-parallel rank has a scheduler; 256, or 1024 on GPUs of 70 GiB and more (engine/arg_utils.py, get_batch_defaults)
        running=lambda said, sequences: sequences * said.get("data", 1),
        least_default=256,
        states=States.POOLED,
        # v1/core/kv_cache_utils.py, check_enough_kv_cache_memory
        holds_longest=True,
        state_dtype="auto",
        switches={"--disable-hybrid-kv-cache-manager": _WHOLE_CONTEXT, "--disable-sliding-window": _OVERRIDES},
        caveats=_turn({
            _OFFLOADED: "--cpu-offload-gb --offload-group-size --moe-cpu-budget-gb",
            _KV_SIZE: "--kv-cache-memory-bytes --num-gpu-blocks-override", _OVERRIDES: "--hf-overrides",
            _COPIES: "--num-redundant-experts --eplb-config.num-redundant-experts",
        }),
    ),
    Dialect(
        "SGLang", ("sglang",),
        _flags(
            "sglang",
            tensor="--tp --tp-size --tensor-parallel-size", pipeline="--pp-size --pp --pipeline-parallel-size",
            data="--dp --dp-size --data-parallel-size", expert="--ep --ep-size --expert-parallel-size",
            attention_dp="--enable-dp-attention", context="--dcp-size --decode-context-parallel-size",
            model="--model-path --model", dtype="--dtype", quantization="--quantization", kv_cache_dtype="--kv-cache-dtype",
            memory_share="--mem-fraction-static",
            algorithm="--speculative-algorithm", draft_steps="--speculative-num-steps", draft_width="--speculative-eagle-topk",
            checked="--speculative-num-draft-tokens --speculative-dflash-block-size", drafts="--speculative-dspark-block-size",
            file="--config", context_limit="--context-length", state_dtype="--mamba-ssm-dtype", pooling="--is-embedding",
            # parts of the tensor-parallel group that keep the same attention or the same experts
            unread="--attn-cp-size --attention-context-parallel-size --moe-dp-size --moe-data-parallel-size --dwdp-size",
        ),
        "", _spread_group,
        own_layouts=_OWN_LAYOUTS,
        running=_run_sglang,
        switches={"--disable-hybrid-swa-memory": _WHOLE_CONTEXT},
        caveats=_turn({
            _DENSE_COPIES: "--moe-dense-tp-size", _STATE_POOL: "--max-mamba-cache-size --mamba-full-memory-ratio",
            _OFFLOADED: "--cpu-offload-gb --offload-group-size --kt-num-gpu-experts --kt-weight-path", _KV_SIZE: "--max-total-tokens",
            _OVERRIDES: "--json-model-override-args", _COPIES: "--ep-num-redundant-experts",
        }),
    ),
    Dialect(
        "TensorRT-LLM", ("trtllm", "tensorrt"),
        _flags(
            "trtllm",
            tensor="--tp-size --tensor-parallel-size", pipeline="--pp-size --pipeline-parallel-size",
            expert="--ep-size --moe-expert-parallel-size --expert-parallel-size", attention_dp="--enable-attention-dp", model="--model",
            kv_cache_dtype="--kv-cache-dtype", file="--config --extra-llm-api-options", step_tokens="--max-num-tokens",
            context_limit="--max-seq-len", state_dtype="--mamba-ssm-cache-dtype", unread="--cp-size --context-parallel-size",
        ),
        "trtllm-serve", _spread_trtllm,
        running=_run_trtllm,
        # llmapi/llm_args.py, max_batch_size; the state of as many is taken at the start (pyexecutor/mamba_cache_manager.py)
        least_default=2048,
        states=States.AT_THE_START,
        # a share of what the weights leave, not of the whole memory
        caveats=_turn({_KV_SIZE: "--kv-cache-free-gpu-memory-fraction --free-gpu-memory-fraction"}),
        abbreviates=False,
    ),
    # launcher/src/main.rs at 3.3
    Dialect(
        "Hugging Face TGI", ("text-generation",),
        _flags(
            "tgi", model="--model-id", tensor="--num-shard", dtype="--dtype", kv_cache_dtype="--kv-cache-dtype",
            memory_share="--cuda-memory-fraction", drafts="--speculate", context_limit="--max-total-tokens",
        ),
        "", _spread_plain,
        # of --max-concurrent-requests
        least_default=128,
        caveats={"--quantize": _FORMAT, "--max-batch-total-tokens": _KV_SIZE},
        abbreviates=False,
        environment=True,
    ),
    # tools/server/README.md at b11434; -np of newer builds is chosen by it where nothing says it
    Dialect(
        "llama.cpp", ("llama-server", "llama.cpp", "llama-cpp"),
        _flags(
            "llamacpp", model="--model -m --hf-repo -hf -hfr", algorithm="--model-draft -md", drafts="--draft-max --draft --draft-n",
            pooling="--embedding --embeddings --rerank --reranking",
        ),
        "", _spread_plain,
        states=States.AT_THE_START,
        caveats=_turn({
            _KV_SIZE: "--ctx-size -c", _KV_FORMAT: "--cache-type-k -ctk --cache-type-v -ctv",
            _OTHER_SPLIT: "--tensor-split -ts --split-mode -sm", _OFFLOADED: "--n-cpu-moe -ncmoe --override-tensor -ot",
        }),
        switches=_turn({_OFFLOADED: "--cpu-moe -cmoe"}),
        abbreviates=False,
    ),
    # lmdeploy/cli/utils.py at 0.18
    Dialect(
        "LMDeploy", ("lmdeploy",),
        _flags("lmdeploy", tensor="--tp", dtype="--dtype", context_limit="--session-len", unread=_OWN_SIZES),
        "api_server", _spread_plain,
        states=States.AT_THE_START,
        caveats={"--cache-max-entry-count": _KV_SIZE, "--quant-policy": _KV_FORMAT, "--model-format": _FORMAT},
    ),
    # lightllm/server/api_cli.py
    Dialect(
        "LightLLM", ("lightllm",),
        _flags(
            "lightllm", model="--model-dir", tensor="--tp", dtype="--data-type", memory_share="--mem-fraction", drafts="--mtp-step",
            context_limit="--max-req-total-len", unread=_OWN_SIZES,
        ),
        "", _spread_plain,
        states=States.AT_THE_START,
        caveats={"--max-total-token-num": _KV_SIZE, "--quant-type": _FORMAT, "--llm-kv-type": _KV_FORMAT},
    ),
    # mistralrs-cli and mistralrs-server
    Dialect(
        "mistral.rs", ("mistralrs", "mistral.rs"),
        _flags("mistralrs", model="--model-id -m", dtype="--dtype -d", memory_share="--pa-gpu-mem-usage"),
        "", _spread_plain,
        caveats=_turn({
            _FORMAT: "--isq", _KV_SIZE: "--pa-gpu-mem --pa-ctxt-len", _KV_FORMAT: "--pa-cache-type", _OTHER_SPLIT: "--num-device-layers -n",
        }),
        abbreviates=False,
    ),
    # router/src/main.rs of text-embeddings-inference
    Dialect(
        "Hugging Face Text Embeddings Inference", ("text-embeddings",), _flags("tei", model="--model-id", dtype="--dtype"),
        "", _spread_plain,
        abbreviates=False,
        environment=True,
    ),
)  # fmt: skip
ENGINES = tuple(dialect.name for dialect in DIALECTS)


# --- Reading a command


_OFF = ("false", "0", "no", "off")
# of a format or an algorithm: none is stated
_USUAL = ("auto", "none")
_FORMATS = ("dtype", "quantization", "kv_cache_dtype")
# not the value of one: "-np -1"
_FLAG = re.compile(r"-(?!\d)")
# what vLLM calls a server that does not decode (config/model.py, RunnerType and ConvertType; tasks before 0.11)
_POOLING = ("pooling", "embed", "embedding", "classify", "score", "reward", "token_embed", "token_classify")
# of a limit: the engine chooses
_CHOSEN = ("auto", "none", "0", "-1")
# vLLM's human_readable_int: "32k" is 32,000, "32K" 32,768
_COUNT = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,6}))?([kmgKMG]?)", re.ASCII)
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_LARGEST = 10**12


class Launch(Struct, frozen=True):
    """What a start command says."""

    engine: str
    layout: Parallel  # how one replica is spread; experts of a model that has some
    model: str | None  # that is served; None: the command does not say
    dtype: str | None = None  # of weights that are not quantised; None: the command does not say
    quantization: str | None = None  # engine's word for the weights' format; None: the command does not say
    kv_cache_dtype: str | None = None  # of the KV cache; None: the command does not say
    memory_share: float | None = None  # share of a GPU's memory for weights and KV; None: the command does not say
    # tokens that are drafted for each sequence and step; 0: none; None: some, and the command does not say how many
    drafts: int | None = 0
    state_dtype: str | None = None  # dtype of recurrent state; None: neither the command nor the engine says it
    pooling: bool = False  # whether it embeds, ranks or classifies and does not decode
    limits: Limits = field(default_factory=Limits)  # how much of it runs at once
    own_layouts: frozenset[str] = frozenset()  # families of models of whose KV cache "fp8" is a layout of their own
    # what it says beyond that, so that the answer is not quite of this command: sentences
    caveats: tuple[str, ...] = ()


class _Said(Struct):
    sizes: dict[str, int] = field(default_factory=dict)  # by meaning
    words: dict[str, str] = field(default_factory=dict)  # by meaning
    share: float | None = None  # of the memory; None: not said
    limits: dict[str, Limit] = field(default_factory=dict)  # by meaning, the lowest of each
    caveats: list[str] = field(default_factory=list)  # sentences


def read_launch(command: str) -> Launch:
    """Flags that change nothing of what is worked out are passed over. Raises ValueError that says what cannot be read, and in a second
    argument what to do where that is not to quote the command. "auto" is what a command without the flag says."""
    words = shlex.split(command)
    # the first word that names one: a later one may be of a model's name
    dialect = next(
        (each for word in words for each in DIALECTS if any(name in word.lower() for name in each.words)), None
    )
    if dialect is None:
        raise ValueError(f"no word of it names an engine that is known here: {', '.join(ENGINES)}")
    meanings = _read_flags(words, dialect)
    formats = {what: word for what, word in meanings.words.items() if what in _FORMATS and word.lower() not in _USUAL}
    return Launch(
        dialect.name,
        dialect.spread(meanings.sizes),
        meanings.words.get("model"),
        memory_share=meanings.share,
        drafts=_count_drafts(meanings),
        state_dtype=meanings.words.get("state_dtype", dialect.state_dtype),
        pooling="pooling" in meanings.sizes or meanings.words.get("task", "").lower() in _POOLING,
        limits=_limit(meanings, dialect),
        own_layouts=dialect.own_layouts,
        caveats=tuple(meanings.caveats),
        **formats,
    )


def _limit(meanings: _Said, dialect: Dialect) -> Limits:
    """What ends the batch of a whole replica. Raises ValueError for a number that leaves a rank nothing."""
    stated, step = meanings.limits.get(SEQUENCES), meanings.limits.get(STEP_TOKENS)
    lowest = min((limit for limit in (stated, step) if limit is not None), key=lambda limit: limit.number, default=None)
    sequences = None if lowest is None else Limit(dialect.running(meanings.sizes, lowest.number), lowest.words)
    if sequences is not None and sequences.number < 1:
        raise ValueError(f"{sequences.words} is not one for each rank of data-parallel attention")
    own_flag = [flag for flag, meaning in dialect.flags.items() if meaning == SEQUENCES]
    longest = [flag for flag, meaning in dialect.flags.items() if meaning == CONTEXT_LIMIT]
    return Limits(
        engine=dialect.name,
        sequences=sequences,
        flag=own_flag[0] if own_flag else "",
        least_default=None if dialect.least_default is None else dialect.running(meanings.sizes, dialect.least_default),
        context=meanings.limits.get(CONTEXT_LIMIT),
        context_flag=longest[0] if longest else "",
        states=dialect.states,
        holds_longest=dialect.holds_longest,
        crossed=(stated, step) if stated is not None and step is not None and step.number < stated.number else None,
    )


def _read_flags(words: Sequence[str], dialect: Dialect) -> _Said:
    meanings = _Said()
    for place, word in enumerate(words):
        flag, given, value = word.partition("=")
        follower = words[place + 1] if place + 1 < len(words) else ""
        if dialect.serve and word.rpartition("/")[2] == dialect.serve and follower and not follower.startswith("-"):
            # `trtllm-serve serve MODEL` has a word of its own between
            meanings.words.setdefault(
                "model", follower if follower != "serve" else next(iter(words[place + 2 :]), follower)
            )
        # configuration files' own spelling (enable_attention_dp: true) is read too
        name = flag.replace("_", "-")
        if dialect.environment and given and flag.isupper():
            name = f"--{name.lower()}"
        text = value if given else ("" if _FLAG.match(follower) else follower)
        if name in dialect.switches and text.lower() not in _OFF:
            meanings.caveats.append(f"{flag} of the start command {dialect.switches[name]}")
        if name in dialect.caveats and text.lower() not in ("", "0", "none", "{}"):
            meanings.caveats.append(f"{flag} of the start command {dialect.caveats[name]}")
        meaning = dialect.flags.get(name) or dialect.flags.get("--" + name.rstrip(":"))
        if meaning is None:
            _refuse_anothers(flag, name, dialect)
            meaning = _complete_flag(flag, name, dialect)
            if meaning is None and is_size_of_layout(name) and text.isdigit():
                meaning = UNREAD
        if meaning is not None:
            _keep_flag(meanings, meaning, flag, text)
    return meanings


def _keep_flag(meanings: _Said, meaning: str, flag: str, text: str) -> None:
    if not text and meaning not in WITHOUT_VALUE:
        raise ValueError(f"{flag} has no {WORDS.get(meaning, 'share' if meaning == SHARE else 'size')} behind it")
    if meaning == "drafting":
        _read_drafting(meanings, flag, text)
    elif meaning == "file":
        what = (
            f"{text}, which {flag} names, is not read: what it says of layout, formats and drafts does not count here"
        )
        meanings.caveats.append(what)
    elif meaning in WORDS:
        meanings.words[meaning] = text
    elif meaning == SHARE:
        meanings.share = _read_share(flag, text)
    elif meaning == UNREAD:
        if text != "1":
            what = f"how {flag} {text} spreads memory and work is not known here"
            raise ValueError(what, "Leave it away for an answer without it.")
    elif meaning in LIMITS:
        if text.lower() not in _CHOSEN:
            limit = Limit(_read_count(flag, text), f"{flag} {text}")
            meanings.limits[meaning] = min(limit, meanings.limits.get(meaning, limit), key=lambda each: each.number)
    elif meaning in WITHOUT_VALUE:
        if text.lower() not in _OFF:
            meanings.sizes[meaning] = 1
    elif text.isascii() and text.isdigit() and (int(text) > 0 or meaning in DRAFTS) and int(text) < 1_000_000:
        meanings.sizes[meaning] = int(text)
    else:
        raise ValueError(f"{flag} has {text!r}, which is no size")


def _read_drafting(meanings: _Said, flag: str, text: str) -> None:
    """vLLM's settings of speculation, which are JSON."""
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, Mapping):
        raise ValueError(f"{flag} has {text[:64]!r}, which is no JSON of settings: quote it")
    meanings.words["algorithm"] = str(settings.get("method") or settings.get("model") or "draft")
    drafts = settings.get("num_speculative_tokens")
    if isinstance(drafts, int) and not isinstance(drafts, bool) and drafts >= 0:
        meanings.sizes["drafts"] = drafts


def _count_drafts(meanings: _Said) -> int | None:
    """Drafted tokens of a step; those of a tree are all of its tokens, though no step accepts all of them."""
    drafts, checked = meanings.sizes.get("drafts"), meanings.sizes.get("checked")
    if drafts is None and checked is not None:
        drafts = max(0, checked - 1)
    if drafts is None and meanings.sizes.get("draft_width", 1) == 1:
        drafts = meanings.sizes.get("draft_steps")
    algorithm = meanings.words.get("algorithm", "none").lower()
    # without an algorithm SGLang drafts nothing, whatever its sizes; vLLM's sizes imply one
    if algorithm in _USUAL:
        return meanings.sizes.get("drafts", 0)
    return drafts


def _complete_flag(flag: str, name: str, dialect: Dialect) -> str | None:
    """What a flag says that is cut short, where the engine takes it; None where it is the beginning of none that is known here."""
    if not dialect.abbreviates or not name.startswith("--") or len(name) < len("--x"):
        return None
    whole = {full: meaning for full, meaning in dialect.flags.items() if full.startswith(name) and "." not in full}
    if len(set(whole.values())) > 1:
        raise ValueError(f"{flag} may be {' or '.join(whole)}: write it in full")
    return next(iter(whole.values()), None)


def _read_share(flag: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise ValueError(f"{flag} has {text!r}, which is no share above 0 and up to 1")
    return share


def _read_count(flag: str, text: str) -> int:
    match = _COUNT.fullmatch(text)
    whole = round(float(f"{match[1]}.{match[2] or 0}") * _UNITS[match[3]]) if match is not None else 0
    if not 0 < whole <= _LARGEST:
        raise ValueError(f"{flag} has {text!r}, which is no number of its kind")
    return whole


def _refuse_anothers(flag: str, name: str, dialect: Dialect) -> None:
    """Raises ValueError for a flag by which another engine says its layout: this one would not start, or would start with its default."""
    for other in DIALECTS:
        meaning = other.flags.get(name) if flag.startswith("-") else None
        if meaning is not None and meaning not in NO_LAYOUT:
            own = [one for one, its in dialect.flags.items() if its == meaning]
            instead = f"; {dialect.name} has {' or '.join(own)}" if own else ""
            raise ValueError(f"{flag} is a flag of {other.name}{instead}")
