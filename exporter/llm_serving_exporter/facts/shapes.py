"""Model families as rows, and the evaluator that makes a Geometry of rows and a config.json.

A line of `Family.rows` has columns with two or more spaces between them:

    name              part       rows x columns       layers  options
    self_attn.q_proj  attention  heads*head x hidden  every   bias attention_bias

Names with commas between them share a line; a line that begins with `...` goes on with the one before. One with layers stands below
`Family.layer`, unless braces in it say where. A single size is a vector's (`norm`). Options: `bias FLAG`, as long as the rows; `if FLAG`;
`plain`, a matrix that no quantiser takes. Of an `expert` there are `experts`, of which a token passes `per_token`. Other lines:

    reads     LAYERS  SPAN[:tokens]  differences    attention: `kv` heads are kept, `heads` compute, K and V of size `head`; `kv NAME`,
                                                    `heads NAME`, `size NAME` and `value NAME` (of V) say otherwise
    state     LAYERS  elements  convolution         recurrent state of a sequence; `float32` behind it: kept so whatever the model's dtype
    refuse    FLAG  key  what                       a config that no rows cover; braces hold sizes
    needs     name                                  a rule that refuses configs, whether or not a line uses its value
    left_out  words  if FLAG                        what of the checkpoint is not counted
    *block    parameter=value ...                   the lines of a block (`families.blocks`), its parameters in angle brackets; what it
                                                    does not have is handed to the block in it that has it

LAYERS is a name for layers: `every`, or one of `sizes`; `each:NAME` repeats lines for groups of layers, each with values of its own.
A size is arithmetic over the usual names (`_USUAL`), those of `Family.sizes`, and keys of the config. `a | b | 4`: the first key that is
there, else the number, which may be 0, as `zero(key)` may. `part.key` is a key in a part of the config. In a FLAG a key is a boolean,
false where it is missing; `flag(key, True)` says otherwise, and `has(key)` whether it is there.

A text for two names in `sizes` is a FLAG over `layer`: the first name's layers are those of which it holds, the second's the others.
`layer in key`: the key lists their indices; `key[layer]`: it has an entry for each.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from llm_serving_exporter.facts.families.blocks import lines
from llm_serving_exporter.facts.fields import Fields
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.model.shape import AttentionLayers, Geometry, Indexer, Module, Part, RecurrentLayers, Span

Layers = tuple[int, ...]
# a size, or a rule that gives as many values as its key has names: sizes, or tuples of layers
Rule = Callable[["Look"], Any]
Sizes = Mapping[str, str | Rule]
# by model_type: the rows, or what chooses them by a config
Families = Mapping[str, "Family | Callable[[Fields], Family]"]

# keys that add parameters somewhere: a config that sets one which the family's rows do not read is refused
_SHAPING_DENSE = (
    "add_bias_linear", "add_cross_attention", "add_qkv_bias", "attention_bias", "attention_out_bias", "bias", "block_configs",
    "cross_attention_layers", "kv_lora_rank", "lm_head_bias", "mlp_bias", "n_routed_experts", "num_experts", "num_kv_shared_layers",
    "num_local_experts", "q_lora_rank", "qk_layernorm", "qk_norm", "qkv_bias", "use_bias", "use_cla", "use_qk_norm", "use_qkv_bias",
)  # fmt: skip
_SHAPING_EXPERTS = (
    "attention_bias", "first_k_dense_replace", "index_topk", "kv_lora_rank", "lm_head_bias", "mlp_bias", "moe_layer_num_skipped",
    "moe_num_shared_experts", "n_shared_experts", "num_kv_shared_layers", "num_shared_expert", "num_shared_experts", "qkv_bias",
    "shared_expert_intermediate_size", "shared_intermediate_size", "use_bias", "use_cla", "use_qk_norm",
)  # fmt: skip
_SHAPING = {"dense": _SHAPING_DENSE, "experts": _SHAPING_EXPERTS, "": ()}
_OF_EXPERTS = ("num_experts_per_tok", "moe_intermediate_size")
# a dense model may say that it has one "expert"
_ONE_EXPERT = frozenset({"n_routed_experts", "num_experts", "num_local_experts"})
# sizes that a config of its own states; one nested in a larger config leaves out what equals its class default
_STATED = frozenset({"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size"})
# what names mean where a family's sizes do not say otherwise
_USUAL = {
    "hidden": "hidden_size", "vocabulary": "vocab_size", "tied": "flag(tie_word_embeddings)", "heads": "num_attention_heads",
    "kv": "num_key_value_heads", "head": "head_dim", "intermediate": "intermediate_size", "size": "moe_intermediate_size",
    "dense_size": "intermediate_size",
}  # fmt: skip
_WORD = re.compile(r"[a-z_][a-z_0-9]*")
_PARTS = {part.value: part for part in Part} | {"side": Part.ENCODER_ONLY}
_NAMES = re.compile(r",\s*")
_OPTIONS = ("bias", "if", "plain")


class Family(Struct, frozen=True, kw_only=True):
    """The rows of a model family, and how its configs are read."""

    rows: str  # the lines above
    # names that rows use, beside the usual ones, `layers` and `every`; a key of several names takes a rule with as many values, or a
    # text for two kinds of layers; of two keys with a name the later holds
    sizes: Sizes = field(default_factory=dict)
    # of the config class, for keys that are absent (transformers 5.23.0)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    terse: bool = False  # whether published configs leave out sizes that the class has defaults for
    shaping: str = ""  # which keys may not be set unread: "dense", "experts"; "": any may
    known: tuple[str, ...] = ()  # of these keys those that rules read, or that say what every model of the family has
    root: str = "model."  # stands before embed_tokens, layers and norm
    head: str = "lm_head"  # the LM head
    nested: tuple[str, str] | None = None  # root and head in a checkpoint with other parts; None: the same
    layer: str = "{root}layers.{}."  # what the modules of a layer start with
    name: str | None = None  # the geometry's name; None: as the config has it
    mla: bool = False  # whether attention keeps a latent vector for all heads
    encoder: bool = False  # whether it only embeds
    # what is not counted; None: the parts that are not language
    left_out: Callable[[Fields], tuple[str, ...]] | None = None


class Look:
    """The values of a family's names in one config."""

    def __init__(self, fields: Fields, family: Family) -> None:
        self.fields, self.family = fields, family
        sizes = (*_USUAL.items(), *family.sizes.items())
        self._rules = {name: (key.split(), rule) for key, rule in sizes for name in key.split()}
        self._values: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._values:
            if name not in self._rules:
                self._values[name] = self._usual(name)
            else:
                names, rule = self._rules[name]
                read = self.number if len(names) == 1 else self.split
                value = read(rule) if isinstance(rule, str) else rule(self)
                self._values |= {name: value} if len(names) == 1 else dict(zip(names, value, strict=True))
        return self._values[name]

    def _usual(self, name: str) -> Any:
        if name == "layers":
            return self.fields.layers()
        return tuple(range(self["layers"])) if name == "every" else self.fields.whole(name)

    def with_values(self, values: Mapping[str, Any]) -> Look:
        """The same, with other values for some names."""
        inner = Look(self.fields, self.family)
        inner._values = {**self._values, **values}
        return inner

    def number(self, text: str) -> Any:
        """The value of an expression."""
        return self._number(_parsed(text))

    def flag(self, text: str) -> bool:
        """Whether an expression holds."""
        return self._flag(_parsed(text))

    def split(self, condition: str) -> tuple[Layers, Layers]:
        """The layers of which a condition holds, and the others."""
        kinds: tuple[list[int], list[int]] = [], []
        of_layer = self.with_values({})
        for layer in self["every"]:
            of_layer._values["layer"] = layer
            kinds[not of_layer.flag(condition)].append(layer)
        return tuple(kinds[0]), tuple(kinds[1])

    def _number(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self[name]
            case ast.Attribute() | ast.BinOp(op=ast.BitOr()):
                return self._first(node, least=1)
            case ast.BinOp(left, op, right):
                return _ARITHMETIC[type(op)](self._number(left), self._number(right))
            case ast.IfExp(test, body, orelse):
                return self._number(body if self._flag(test) else orelse)
            case ast.Call(ast.Name("flag" | "has")) | ast.UnaryOp() | ast.BoolOp() | ast.Compare():
                return self._flag(node)
            case ast.Call(ast.Name("zero"), [key]):
                return self._first(key, least=0)
            case ast.Subscript(ast.Name(key), place):
                return self.fields.marked(key, self["layers"])[self._number(place)]
            case ast.Call(ast.Name(name), arguments):
                return _FUNCTIONS[name](*map(self._number, arguments))
        raise TypeError(ast.dump(node))

    def _flag(self, node: ast.expr) -> bool:
        match node:
            case ast.Name(name) if name not in self._values and name not in self._rules:
                return self.fields.flag(name, default=False)
            case ast.Call(ast.Name("flag"), [key, *default]):
                fields, name = self._key(key)
                return fields.flag(name, default=bool(default and self._number(default[0])))
            case ast.Call(ast.Name("has"), [ast.Name(name)]):
                return self.fields.has(name)
            case ast.UnaryOp(ast.Not(), operand):
                return not self._flag(operand)
            case ast.BoolOp(op, operands):
                return (all if isinstance(op, ast.And) else any)(map(self._flag, operands))
            case ast.Compare(left, [ast.In() | ast.NotIn() as op], [ast.Name(key)]):
                return (self._number(left) in self.fields.indices(key, self["layers"])) is isinstance(op, ast.In)
            case ast.Compare(left, [op], [right]):
                return _COMPARISONS[type(op)](self._number(left), self._number(right))
        return bool(self._number(node))

    def _key(self, node: ast.expr) -> tuple[Fields, str]:
        """A key, and the part of the config that has it."""
        match node:
            case ast.Attribute(ast.Name(part), key):
                return self.fields.inner(part), key
            case ast.Name(key):
                return self.fields, key
        raise TypeError(ast.dump(node))

    def _first(self, node: ast.expr, *, least: int) -> Any:
        """The first key of those between bars; what the config states goes before a class default of the one before it."""
        keys: list[str] = []
        fields, choices = self.fields, _choices(node)
        for choice in choices:
            match choice:
                case ast.Attribute(ast.Name(part)) if choice is not choices[-1] and not self.fields.has(part):
                    continue
                case ast.Attribute():
                    fields, key = self._key(choice)
                    keys.append(key)
                case ast.Name(name) if name not in self._rules and name not in self._values:
                    keys.append(name)
                case _:
                    zero = isinstance(choice, ast.Constant) and choice.value == 0
                    stated = any(fields.has(key) for key in keys)
                    default = 0 if stated else self._number(choice)
                    return fields.first(*keys, default=default, least=0 if zero else least) if keys else default
        return fields.first(*keys, least=least)


_ARITHMETIC: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b, ast.Pow: lambda a, b: a**b,
}  # fmt: skip
_COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b, ast.Gt: lambda a, b: a > b, ast.Lt: lambda a, b: a < b,
    ast.GtE: lambda a, b: a >= b, ast.LtE: lambda a, b: a <= b,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., int]] = {"max": max, "len": len}


@lru_cache(maxsize=1024)
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _choices(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return [*_choices(node.left), node.right]
    return [node]


def class_sizes(
    hidden: int | None = None, intermediate: int | None = None, layers: int | None = None, heads: int | None = None,
    vocabulary: int | None = None, *, kv: int | None = None, head: int | None = None, **others: Any,
) -> Mapping[str, Any]:  # fmt: skip
    """A config class's defaults: the sizes that every decoder has, KV heads, size of a head; and keys of its own. Of a key that counts
    experts: how many there are, how many a token passes, and their width."""
    usual = {
        "hidden_size": hidden, "intermediate_size": intermediate, "num_hidden_layers": layers, "num_attention_heads": heads,
        "vocab_size": vocabulary, "num_key_value_heads": kv, "head_dim": head,
    }  # fmt: skip
    sizes: dict[str, Any] = {key: size for key, size in usual.items() if size is not None}
    for key, size in others.items():
        sizes |= zip((key, *_OF_EXPERTS), size, strict=False) if isinstance(size, tuple) else {key: size}
    return sizes


def by_type(families: Families) -> Families:
    """Families by model_type, of keys that hold several of them."""
    return {name: family for names, family in families.items() for name in names.split()}


def evaluate(fields: Fields, family: Family) -> Geometry:
    """The geometry of a config by its family's rows. Raises FactsError that names the key."""
    skipped = frozenset() if fields.nested or family.terse else _STATED
    fields = fields.with_defaults({key: value for key, value in family.defaults.items() if key not in skipped})
    rows = lines(family.rows)
    _refuse_unread(fields, family, rows)
    look = Look(fields, family)
    # what a config that states nothing is told first
    _ = look["hidden"], look["layers"]
    modules: list[Module] = []
    attention: list[AttentionLayers] = []
    states: list[RecurrentLayers] = []
    left_out = list(fields.left_out if family.left_out is None else family.left_out(fields))
    for each, group in groupby(rows, _each):
        listed = list(group)
        for scope in [look.with_values(values) for values in look[each]] if each else [look]:
            for columns in listed:
                match columns:
                    case ("reads", *rest):
                        attention += _reads(scope, rest)
                    case ("state", layers, ssm, convolution, *rest):
                        if count := len(scope[layers]):
                            sizes = (scope.number(ssm), scope.number(convolution))
                            states.append(RecurrentLayers(count, *sizes, float32_by_default="float32" in rest))
                    case ("refuse", condition, key, what):
                        if scope.flag(condition):
                            raise fields.refused(key, _filled(scope, what))
                    case ("needs", name):
                        _ = scope[name]
                    case ("left_out", words, condition):
                        left_out += (words,) if scope.flag(condition.removeprefix("if ")) else ()
                    case _:
                        modules += _modules(scope, columns)
    return Geometry(
        family.name or fields.model_type, tuple(modules), tuple(attention), look["hidden"], look["layers"],
        look["vocabulary"], tuple(states), encoder=family.encoder, mla=family.mla,
        left_out=tuple(dict.fromkeys(left_out)), bidirectional=family.encoder,
    )  # fmt: skip


def _each(columns: Sequence[str]) -> str:
    """The groups of layers that a line is there for; the layers of a group are `here`."""
    return next((column.removeprefix("each:") for column in columns if column.startswith("each:")), "")


def _refuse_unread(fields: Fields, family: Family, rows: Sequence[Sequence[str]]) -> None:
    keys = _SHAPING[family.shaping]
    if not any(fields.found(key) for key in keys):
        return
    texts = [
        *(_option(text)[1] for columns in rows for text in columns[1:]),
        *(text for text in family.sizes.values() if isinstance(text, str)),
    ]
    known = {word for text in texts for word in _WORD.findall(text)} | set(family.known)
    for key in keys:
        value = fields.found(key)
        if value and key not in known and not (family.shaping == "dense" and key in _ONE_EXPERT and value == 1):
            raise fields.refused(key, f"is {value!r}, for which there is no formula here")


def _filled(look: Look, text: str) -> str:
    return re.sub(r"\{(.+?)\}", lambda size: str(look.number(size[1])), text)


def _layers(look: Look, column: str) -> Layers:
    layers: Layers = look["here" if column.startswith("each:") else column]
    return layers


def _modules(look: Look, columns: Sequence[str]) -> Iterator[Module]:
    """The modules of one line."""
    names, part, shape, *rest = columns
    options = dict(_option(column) for column in rest)
    if "if" in options and not look.flag(options["if"]):
        return
    layers = _layers(look, options["layers"]) if "layers" in options else ()
    if "layers" in options and not layers:
        return
    rows, *width = (look.number(size) for size in shape.split(" x "))
    wide, kind = width[0] if width else 0, _PARTS[part]
    bias = rows if not width else rows if "bias" in options and look.flag(options["bias"]) else 0
    if not (rows * wide or bias):
        return
    expert = (look["experts"], look["per_token"]) if kind is Part.EXPERT else (1, 1)
    linear = bool(width) and "plain" not in options and kind is not Part.EMBEDDING
    nested = look.family.nested if look.fields.nested else None
    root, head = nested or (look.family.root, look.family.head)
    for name in _NAMES.split(names):
        path = look.family.layer + name if "layers" in options and "{" not in name else name
        path = path.replace("{root}", root).replace("{head}", head)
        yield Module(path, kind, rows * wide, bias, rows if width else 0, wide, layers, linear, *expert)


def _option(column: str) -> tuple[str, str]:
    word, _, value = column.partition(" ")
    return (word, value) if word in _OPTIONS else ("layers", column)


def _reads(look: Look, columns: Sequence[str]) -> Iterator[AttentionLayers]:
    """What attention layers keep, read and compute: K and V of every KV head are stored; QK^T and AV cost 2 FLOPs each per query head and
    element (facts B.10), unless columns say otherwise."""
    column, span, *rest = columns
    differing = {word: value for word, _, value in (text.partition(" ") for text in rest)}
    layers = _layers(look, column)
    if ("if" in differing and not look.flag(differing["if"])) or not layers:
        return
    kind, _, tokens = span.partition(":")
    window = look.number(tokens) if tokens else None
    kv, heads, size = (
        differing.get(word, usual) for word, usual in (("kv", "kv"), ("heads", "heads"), ("size", "head"))
    )
    both = f"({size} + {differing.get('value', size)})"
    flops = differing.get("flops", f"2*({heads})*{both}")
    indexer = None
    if "indexer" in differing:
        own, key_bytes, each = differing["indexer"].split(", ")
        indexer = Indexer(len(look[own]), look.number(key_bytes), look.number(each))
    yield AttentionLayers(
        len(layers), look.number(differing.get("elements", f"({kv})*{both}")), look.number(kv),
        look.number(differing.get("decode", flops)), look.number(differing.get("prefill", flops)),
        Span.FULL if kind == "sliding" and window is None else Span(kind),
        window, look.number(heads), look.number(differing.get("ratio", "1")),
        look.number(differing["top"]) if "top" in differing else None, indexer, kept="shared" not in differing,
    )  # fmt: skip
