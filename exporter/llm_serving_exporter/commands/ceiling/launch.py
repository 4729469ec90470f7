"""A start command of an engine -> layout, model, formats, drafts and share of the memory that it means; `launch_flags` has the words."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field

from llm_serving_exporter.commands.ceiling.launch_flags import (
    DIALECTS,
    DRAFTS,
    ENGINES,
    NO_LAYOUT,
    SHARE,
    WITHOUT_VALUE,
    WORDS,
    Dialect,
)
from llm_serving_exporter.model.frozen import dataclass
from llm_serving_exporter.model.hardware import Parallel

_OFF = ("false", "0", "no", "off")
# of a format or an algorithm: none is stated
_USUAL = ("auto", "none")
_FORMATS = ("dtype", "quantization", "kv_cache_dtype")


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
    # tokens that are drafted for each sequence and step; 0: none; None: some, and the command does not say how many
    drafts: int | None = 0
    # families of models of whose KV cache "fp8" is a layout of their own
    own_layouts: frozenset[str] = frozenset()
    # what it says beyond that, so that the answer is not quite of this command: sentences
    caveats: tuple[str, ...] = ()


@dataclass(slots=True)
class _Said:
    """What the flags read so far say."""

    # by meaning
    sizes: dict[str, int] = field(default_factory=dict)
    # by meaning
    words: dict[str, str] = field(default_factory=dict)
    # of the memory; None: not said
    share: float | None = None
    # sentences
    caveats: list[str] = field(default_factory=list)


def read_launch(command: str) -> Launch:
    """Flags that change nothing of what is worked out are passed over. Raises ValueError that says what cannot be read, and in a second
    argument what to do where that is not to quote the command. "auto" is what a command without the flag says."""
    words = shlex.split(command)
    dialect = next((one for one in DIALECTS if any(name in word.lower() for word in words for name in one.words)), None)
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
        own_layouts=dialect.own_layouts,
        caveats=tuple(said.caveats),
        **formats,
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
        text = value if given else ("" if follower.startswith("-") else follower)
        _refuse_unknown(flag, name, text, dialect)
        if name in dialect.caveats and text.lower() not in ("", "0", "none", "{}"):
            said.caveats.append(f"{flag} of the start command {dialect.caveats[name]}")
        meaning = dialect.flags.get(name) or dialect.flags.get("--" + name.rstrip(":"))
        if meaning is None:
            _refuse_anothers(flag, name, dialect)
            meaning = _complete_flag(flag, name, dialect)
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


def _refuse_unknown(flag: str, name: str, text: str, dialect: Dialect) -> None:
    """Raises ValueError for a flag that spreads the work as nothing here knows; with 1 it spreads nothing."""
    if name in dialect.unknown and text != "1":
        what = f"how {flag} {text} spreads memory and work is not known here"
        raise ValueError(what, "Leave it away for an answer without it.")


def _refuse_anothers(flag: str, name: str, dialect: Dialect) -> None:
    """Raises ValueError for a flag by which another engine says its layout: this one would not start, or would start with its default."""
    for other in DIALECTS:
        meaning = other.flags.get(name) if flag.startswith("-") else None
        if meaning is not None and meaning not in NO_LAYOUT:
            own = [one for one, its in dialect.flags.items() if its == meaning]
            instead = f"; {dialect.name} has {' or '.join(own)}" if own else ""
            raise ValueError(f"{flag} is a flag of {other.name}{instead}")
