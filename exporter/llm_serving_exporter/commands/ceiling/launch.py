"""A start command of an engine -> layout, model, formats, drafts and share of the memory that it means; `launch_flags` has the words."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence

from llm_serving_exporter.commands.ceiling.launch_flags import (
    CONTEXT_LIMIT,
    DIALECTS,
    DRAFTS,
    ENGINES,
    LIMITS,
    NO_LAYOUT,
    SEQUENCES,
    SHARE,
    STEP_TOKENS,
    UNREAD,
    WITHOUT_VALUE,
    WORDS,
    Dialect,
    is_size_of_layout,
)
from llm_serving_exporter.commands.ceiling.limits import Limit, Limits
from llm_serving_exporter.model.hardware import Parallel
from llm_serving_exporter.model.record import Struct, field

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
    """What the flags read so far say."""

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
    dialect = next((one for word in words for one in DIALECTS if any(name in word.lower() for name in one.words)), None)
    if dialect is None:
        raise ValueError(f"no word of it names an engine that is known here: {', '.join(ENGINES)}")
    said = _read_flags(words, dialect)
    formats = {what: word for what, word in said.words.items() if what in _FORMATS and word.lower() not in _USUAL}
    return Launch(
        dialect.name,
        dialect.spread(said.sizes),
        said.words.get("model"),
        memory_share=said.share,
        drafts=_count_drafts(said),
        state_dtype=said.words.get("state_dtype", dialect.state_dtype),
        pooling="pooling" in said.sizes or said.words.get("task", "").lower() in _POOLING,
        limits=_limit(said, dialect),
        own_layouts=dialect.own_layouts,
        caveats=tuple(said.caveats),
        **formats,
    )


def _limit(said: _Said, dialect: Dialect) -> Limits:
    """What ends the batch of a whole replica. Raises ValueError for a number that leaves a rank nothing."""
    stated, step = said.limits.get(SEQUENCES), said.limits.get(STEP_TOKENS)
    lowest = min((one for one in (stated, step) if one is not None), key=lambda one: one.number, default=None)
    sequences = None if lowest is None else Limit(dialect.running(said.sizes, lowest.number), lowest.words)
    if sequences is not None and sequences.number < 1:
        raise ValueError(f"{sequences.words} is not one for each rank of data-parallel attention")
    own = [flag for flag, meaning in dialect.flags.items() if meaning == SEQUENCES]
    longest = [flag for flag, meaning in dialect.flags.items() if meaning == CONTEXT_LIMIT]
    return Limits(
        engine=dialect.name,
        sequences=sequences,
        flag=own[0] if own else "",
        least_default=None if dialect.least_default is None else dialect.running(said.sizes, dialect.least_default),
        context=said.limits.get(CONTEXT_LIMIT),
        context_flag=longest[0] if longest else "",
        states=dialect.states,
        holds_longest=dialect.holds_longest,
        crossed=(stated, step) if stated is not None and step is not None and step.number < stated.number else None,
    )


def _read_flags(words: Sequence[str], dialect: Dialect) -> _Said:
    said = _Said()
    for place, word in enumerate(words):
        flag, given, value = word.partition("=")
        follower = words[place + 1] if place + 1 < len(words) else ""
        if dialect.serve and word.rpartition("/")[2] == dialect.serve and follower and not follower.startswith("-"):
            # `trtllm-serve serve MODEL` has a word of its own between
            said.words.setdefault(
                "model", follower if follower != "serve" else next(iter(words[place + 2 :]), follower)
            )
        # configuration files' own spelling (enable_attention_dp: true) is read too
        name = flag.replace("_", "-")
        if dialect.environment and given and flag.isupper():
            name = f"--{name.lower()}"
        text = value if given else ("" if _FLAG.match(follower) else follower)
        if name in dialect.switches and text.lower() not in _OFF:
            said.caveats.append(f"{flag} of the start command {dialect.switches[name]}")
        if name in dialect.caveats and text.lower() not in ("", "0", "none", "{}"):
            said.caveats.append(f"{flag} of the start command {dialect.caveats[name]}")
        meaning = dialect.flags.get(name) or dialect.flags.get("--" + name.rstrip(":"))
        if meaning is None:
            _refuse_anothers(flag, name, dialect)
            meaning = _complete_flag(flag, name, dialect)
            if meaning is None and is_size_of_layout(name) and text.isdigit():
                meaning = UNREAD
        if meaning is not None:
            _keep_flag(said, meaning, flag, text)
    return said


def _keep_flag(said: _Said, meaning: str, flag: str, text: str) -> None:
    """Keeps what one flag says."""
    if not text and meaning not in WITHOUT_VALUE:
        raise ValueError(f"{flag} has no {WORDS.get(meaning, 'share' if meaning == SHARE else 'size')} behind it")
    if meaning == "drafting":
        _read_drafting(said, flag, text)
    elif meaning == "file":
        what = (
            f"{text}, which {flag} names, is not read: what it says of layout, formats and drafts does not count here"
        )
        said.caveats.append(what)
    elif meaning in WORDS:
        said.words[meaning] = text
    elif meaning == SHARE:
        said.share = _read_share(flag, text)
    elif meaning == UNREAD:
        if text != "1":
            what = f"how {flag} {text} spreads memory and work is not known here"
            raise ValueError(what, "Leave it away for an answer without it.")
    elif meaning in LIMITS:
        if text.lower() not in _CHOSEN:
            limit = Limit(_read_count(flag, text), f"{flag} {text}")
            said.limits[meaning] = min(limit, said.limits.get(meaning, limit), key=lambda one: one.number)
    elif meaning in WITHOUT_VALUE:
        if text.lower() not in _OFF:
            said.sizes[meaning] = 1
    elif text.isascii() and text.isdigit() and (int(text) > 0 or meaning in DRAFTS) and int(text) < 1_000_000:
        said.sizes[meaning] = int(text)
    else:
        raise ValueError(f"{flag} has {text!r}, which is no size")


def _read_drafting(said: _Said, flag: str, text: str) -> None:
    """vLLM's settings of speculation, which are JSON."""
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, Mapping):
        raise ValueError(f"{flag} has {text[:64]!r}, which is no JSON of settings: quote it")
    said.words["algorithm"] = str(settings.get("method") or settings.get("model") or "draft")
    drafts = settings.get("num_speculative_tokens")
    if isinstance(drafts, int) and not isinstance(drafts, bool) and drafts >= 0:
        said.sizes["drafts"] = drafts


def _count_drafts(said: _Said) -> int | None:
    """Drafted tokens of a step; those of a tree are all of its tokens, though no step accepts all of them."""
    drafts, checked = said.sizes.get("drafts"), said.sizes.get("checked")
    if drafts is None and checked is not None:
        drafts = max(0, checked - 1)
    if drafts is None and said.sizes.get("draft_width", 1) == 1:
        drafts = said.sizes.get("draft_steps")
    algorithm = said.words.get("algorithm", "none").lower()
    # without an algorithm SGLang drafts nothing, whatever its sizes; vLLM's sizes imply one
    if algorithm in _USUAL:
        return said.sizes.get("drafts", 0)
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
