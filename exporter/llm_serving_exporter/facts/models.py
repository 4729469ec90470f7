"""Catalogues of models: TOML rows -> ModelEntry, checked. No geometry is built here: that happens when a model is asked for.

A row states the fields of a config.json, or with `base` the row whose fields it has, so that a quantised checkpoint states what is its own:
its formats. The built-in catalogue is not parsed as a whole: names are picked out of its text, and the one row that is asked for is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import names
from llm_serving_exporter.facts.fields import model_unknown
from llm_serving_exporter.model.record import Struct, replace

BUILT_IN = "built-in catalogue"


class ModelEntry(Struct, frozen=True):
    """A row of a catalogue of models."""

    name: str  # on the Hugging Face hub; with the organisation where only that one's checkpoint is meant
    also: tuple[str, ...]  # other names with the same geometry and formats
    config: Mapping[str, Any]  # as the model's config.json would be, of its language part
    source: str  # where the config was published
    date: str  # when it was looked up; "": a row of a user's own that does not say it
    catalogue: str = BUILT_IN  # which one the row stands in, in words


class ListedModel(Struct, frozen=True):
    """A row of the built-in catalogue that is known by name only: its text is parsed when it is asked for."""

    name: str  # as in the row
    also: tuple[str, ...]  # as in the row
    text: str  # the row's own TOML


class ModelFiles(Struct, frozen=True):
    """The files of one model, parsed."""

    path: str  # of config.json, for messages
    config: Mapping[str, Any]  # content of config.json
    hf_quant_config: Mapping[str, Any] | None = None  # ModelOpt's file beside it; None: there is none
    # all tensors as stored, from the safetensors index or the one safetensors file; None: neither is there
    checkpoint_bytes: int | None = None


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_REQUIRED = frozenset({"name", "source"})
_OPTIONAL = frozenset({"also", "base", "config", "more", "nulls", "quantization"})
_HEAD = "[[model]]\n"
# one line each, as scripts/add_model.py writes them
_NAME_LINE = re.compile(r'^name = "([^"\\]+)"$', re.MULTILINE)
_ALSO_LINE = re.compile(r"^also = \[(.*)\]$", re.MULTILINE)
_QUOTED = re.compile(r'"([^"\\]+)"')
# a base has at most this many bases of its own
_MOST_BASES = 4


def name_of(path: str) -> str:
    """The model's name as its place says it: folder, id in a Hugging Face cache, or the file's own name."""
    *folders, file = [part for part in path.split("/") if part not in ("", ".", "..")] or [path]
    hub = [part for part in folders if part.startswith("models--")]
    if hub:
        return hub[-1].removeprefix("models--").replace("--", "/")
    return folders[-1] if file == "config.json" and folders else file.removesuffix(".json")


class Catalogue:
    """The built-in catalogue, by name. `texts`: its TOML files; `sources`: by the key that rows name; `read`: TOML -> document."""

    def __init__(
        self, texts: Sequence[str], sources: Mapping[str, Any], read: Callable[[str], Mapping[str, Any]]
    ) -> None:
        self._rows = tuple(row for text in texts for row in listed(text))
        self._sources, self._read = sources, read

    def find(self, text: str) -> names.Match[ModelEntry]:
        """The row that a name or path means. Raises FactsError (model_unknown) as `names.find` does."""
        match = names.find(text, self._rows)
        row = match.entry
        documents = [self._read(row.text)["model"][0]]
        while "base" in documents[-1] and len(documents) <= _MOST_BASES:
            base = next(row for row in self._rows if row.name == documents[-1]["base"])
            documents.append(self._read(base.text)["model"][0])
        entries = parse({"sources": self._sources, "model": documents})
        return names.Match(entries[0], match.weight_format, match.unclear)


def listed(text: str) -> Iterator[ListedModel]:
    """The rows of a file of the built-in catalogue, by name."""
    for block in text.split(_HEAD)[1:]:
        name, also = _NAME_LINE.search(block), _ALSO_LINE.search(block)
        if name is not None:
            yield ListedModel(name[1], tuple(_QUOTED.findall(also[1])) if also is not None else (), _HEAD + block)


def parse(document: Mapping[str, Any], catalogue: str = BUILT_IN) -> tuple[ModelEntry, ...]:
    """A parsed document -> its rows, in its order, each with the fields of its base.

    `sources` may be left away by a catalogue other than the built-in one: `source` is then the row's own words, or nothing.
    Raises FactsError naming the row and the key where one is not as it must be, or where two rows claim one name.
    """
    sources, rows = document.get("sources"), document.get("model")
    own = catalogue != BUILT_IN
    if not isinstance(rows, list) or not rows or not ((own and sources is None) or isinstance(sources, Mapping)):
        raise _fault("", "needs [[model]] rows" if own else "needs [sources] and [[model]] rows")
    read = [_read(index, row, sources, own) for index, row in enumerate(rows)]
    bases = {entry.name: (entry, base) for entry, base in read}
    entries = tuple(replace(_based(entry, base, bases), catalogue=catalogue) for entry, base in read)
    owners: dict[str, str] = {}
    for entry in entries:
        for name in (entry.name, *entry.also):
            claimed = names.claimed(name)
            if claimed is None:
                raise _fault(entry.name, f"{name!r} is no name that a model can be found by")
            owner = owners.setdefault(claimed, entry.name)
            if owner != entry.name:
                raise _fault(entry.name, f"{name!r} is already {owner}'s")
    return entries


def _based(entry: ModelEntry, base: str | None, rows: Mapping[str, tuple[ModelEntry, str | None]]) -> ModelEntry:
    for _ in range(_MOST_BASES):
        if base is None:
            return entry
        if base not in rows:
            raise _fault(entry.name, f"base {base!r} is no row of this catalogue")
        under, base = rows[base]
        entry = replace(entry, config={**under.config, **entry.config})
    raise _fault(entry.name, f"base leads over more than {_MOST_BASES} rows")


def _read(index: int, row: Any, sources: Mapping[str, Any] | None, own: bool) -> tuple[ModelEntry, str | None]:
    """A row, and the name of its base."""
    name = row.get("name") if isinstance(row, Mapping) else None
    if not isinstance(name, str) or not name:
        raise _fault(f"model {index + 1}", "needs a name")
    wrong = ((_REQUIRED - ({"source"} if own else frozenset())) - row.keys()) | (row.keys() - _REQUIRED - _OPTIONAL)
    base = row.get("base")
    if base is None and "config" not in row:
        wrong |= {"config"}
    if wrong:
        raise _fault(name, f"keys are missing or not known: {', '.join(sorted(wrong))}")
    if base is not None and not isinstance(base, str):
        raise _fault(name, "base is not the name of a row")
    config: dict[str, Any] = {**_table(name, row, "config"), **_table(name, row, "more")}
    config |= dict.fromkeys(_texts(name, row, "nulls"))
    if "quantization" in row:
        # {}: unlike its base it is not quantised
        config["quantization_config"] = _table(name, row, "quantization")
    title, date = _source(name, row.get("source", ""), sources)
    return ModelEntry(name, _texts(name, row, "also"), config, title, date), base


def _source(name: str, said: object, sources: Mapping[str, Any] | None) -> tuple[str, str]:
    if sources is None:
        return str(said), ""
    source = sources.get(str(said))
    title, date = (source.get("title"), source.get("date")) if isinstance(source, Mapping) else (None, None)
    if not isinstance(title, str) or not isinstance(date, str) or not _DATE.fullmatch(date):
        raise _fault(name, f"source {said!r} is not in [sources] with a title and a date as 2026-08-22")
    return title, date


def _table(name: str, row: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = row.get(key, {})
    if not isinstance(value, Mapping):
        raise _fault(name, f"{key} is not a table")
    return value


def _texts(name: str, row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        raise _fault(name, f"{key} is not a list of texts")
    return tuple(value)


def _fault(name: str, what: str) -> FactsError:
    return model_unknown(f"catalogue of models: {name + ': ' if name else ''}{what}")
