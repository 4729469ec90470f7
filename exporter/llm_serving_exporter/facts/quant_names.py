"""Module names as quantisation configs write them: exact, by component, with wildcards, or as regular expressions.

Configs disagree about what stands before "layers.": `model.`, `backbone.`, and for multimodal checkpoints `model.language_model.` or
`language_model.model.`. Names and patterns are compared without it; regular expressions are tried on each form.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.model.geometry import Module, Part
from llm_serving_exporter.model.snapshot import Absence

_LEADING = frozenset({"model", "language_model", "backbone", "text_model", "transformer"})
_REGEX_LEADS = ("model.", "", "model.language_model.", "language_model.model.", "language_model.", "backbone.")
# other names of a matrix: what checkpoints or vLLM fuse it into; Mixtral's and MiniMax's numbers, which newer tools write out
_ALSO = {
    "q_proj": ("qkv_proj",), "k_proj": ("qkv_proj",), "v_proj": ("qkv_proj",),
    "gate_proj": ("gate_up_proj", "w1"), "up_proj": ("gate_up_proj", "w3"), "down_proj": ("w2",),
    "w1": ("gate_proj", "gate_up_proj"), "w3": ("up_proj", "gate_up_proj"), "w2": ("down_proj",),
}  # fmt: skip
_BLOCKS = (".mlp.", ".block_sparse_moe.")
_ESCAPED, _CLASS = re.compile(r"\\.", re.DOTALL), re.compile(r"\[\^?\]?[^\]]*\]")
_REPEATED_GROUP, _REPEAT = re.compile(r"\)(?:[*+]|\{)"), re.compile(r"[*+]|\{\d*,\d*\}")
# each open-ended repeat multiplies the ways to try by the length of a name
_MOST_REPEATS = 6


def plain(name: str) -> str:
    """The name without what stands before the layers."""
    parts = name.strip(".").split(".")
    while len(parts) > 1 and parts[0] in _LEADING:
        parts = parts[1:]
    return ".".join(parts)


def names(module: Module, layer: int | None) -> tuple[str, ...]:
    """What configs may call a module at one layer, without lead; expert 0 stands for all of its layer."""
    path = module.path if layer is None else module.path.replace("{}", str(layer))
    name = plain(path.replace("*", "0"))
    stem, _, leaf = name.rpartition(".")
    found = [name, *(f"{stem}.{other}" for other in _ALSO.get(leaf, ()))]
    if module.part is Part.EXPERT:
        found += [
            other.replace(old, new)
            for other in found
            for old in _BLOCKS
            if old in other
            for new in _BLOCKS
            if new != old
        ]
    return tuple(found)


def runs(name: str) -> Iterator[str]:
    """Every run of neighbouring components of a name, the longest first: "layers.0.mlp" -> itself, "layers.0", "0.mlp", ..."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        for start in range(len(parts) - length + 1):
            yield ".".join(parts[start : start + length])


class Patterns:
    """A list of names and patterns.

    "lm_head", "self_attn" or "model.layers.3.mlp.gate" mean every module that has these components next to one another; a `*` at the end
    means the tree of modules below (as ModelOpt writes it, and vLLM reads it); other wildcards are the shell's; "re:..." is a regular
    expression that matches from the start of the name. Raises FactsError where an expression is none.
    """

    def __init__(self, listed: Iterable[str]) -> None:
        self._exact: set[str] = set()
        self._expressions: list[re.Pattern[str]] = []
        shell: list[str] = []
        for pattern in listed:
            if pattern.startswith("re:"):
                self._expressions.append(compiled(pattern[3:]))
                continue
            tree = plain(pattern.removesuffix("*"))
            if tree and not re.search(r"[*?\[]", tree):
                self._exact.add(tree)
            elif pattern:
                shell += [fnmatch.translate(plain(pattern)), fnmatch.translate(plain(pattern) + ".*")]
        self._shell = re.compile("|".join(shell)) if shell else None

    def __bool__(self) -> bool:
        return bool(self._exact or self._expressions or self._shell)

    def match(self, called: tuple[str, ...]) -> bool:
        """Whether any of a module's names is meant."""
        return any(self._match(name) for name in called)

    def _match(self, name: str) -> bool:
        if self._exact and not self._exact.isdisjoint(runs(name)):
            return True
        if self._shell is not None and self._shell.match(name):
            return True
        return matches(self._expressions, name)


def compiled(expression: str) -> re.Pattern[str]:
    """A config's regular expression. Raises FactsError where it is none, or one that may never come to an end.

    Python's engine tries every way to divide a name between repeats that lie in one another, without letting any other thread run
    meanwhile: "(a+)+!" on forty letters stops the process. No config needs a repeated group, nor many open-ended repeats.
    """
    bare = _CLASS.sub("x", _ESCAPED.sub("x", expression))
    if _REPEATED_GROUP.search(bare) or len(_REPEAT.findall(bare)) > _MOST_REPEATS:
        raise FactsError(
            Absence.MODEL_UNKNOWN.value,
            f"quantization_config: {expression[:64]!r} repeats too much to be tried",
            "set targets[].model.weight_format to the format that is served",
        )
    try:
        return re.compile(expression)
    except re.error as error:
        raise FactsError(
            Absence.MODEL_UNKNOWN.value, f"quantization_config: {expression[:64]!r} is no regular expression: {error}"
        ) from error


def matches(expressions: Iterable[re.Pattern[str]], name: str) -> bool:
    """Whether an expression matches a name with any lead, from its start."""
    return any(expression.match(lead + name) for expression in expressions for lead in _REGEX_LEADS)


def found_in(expression: re.Pattern[str], name: str) -> bool:
    """Whether an expression matches anywhere in a name with any lead."""
    return any(expression.search(lead + name) for lead in _REGEX_LEADS)
