"""A user's own models: TOML files of rows as the built-in catalogue's, config.json files, and folders of either.

In a folder, each `*.toml` is such a file; each other `*.json`, and each folder that holds a config.json, is a model of that name, a
folder of the Hugging Face cache (models--ORGANISATION--NAME) too. They are read whenever a model is looked up, so that a change holds from
the next look-up on.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator, Sequence

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import models, names, quantisation
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.model_files import ModelEntry, ModelFiles
from llm_serving_exporter.model.snapshot import Absence

MOST_MODELS = 1000
_LARGEST_FILE = 4 << 20
_MODELS = "models--"
# what to do: `FactsError.fix`
SHOW_ROW = "write each model as [[model]] with name and config = { model_type = …, hidden_size = …, … }, see docs/ceiling-command.md"


# the files of the model at a path; raises FactsError
ReadConfig = Callable[[str], ModelFiles]


class OwnCatalogue:
    """A user's own models before the built-in ones, which are read where none of the user's is meant."""

    def __init__(self, own: Sequence[ModelEntry], built_in: Callable[[], models.Catalogue]) -> None:
        self._own, self._built_in = own, built_in

    def find(self, text: str) -> names.Match[ModelEntry]:
        """The row that a name or path means. Raises FactsError (model_unknown)."""
        try:
            return names.find(text, self._own)
        except FactsError:
            return self._built_in().find(text)


def read_own(path: str, read_config: ReadConfig) -> tuple[ModelEntry, ...]:
    """The models of a file or folder, each tried: its sizes make a geometry, its quantisation is known.

    Raises FactsError that names the file, the row, the key, and what to do.
    """
    found = tuple(_file(path, read_config) if not os.path.isdir(path) else _folder(path, read_config))
    if not found:
        raise _fault(path, "holds no model", "put *.toml files, config.json files, or folders that hold one into it")
    if len(found) > MOST_MODELS:
        raise _fault(path, f"holds {len(found)} models", f"keep at most {MOST_MODELS}")
    owners: dict[str, int] = {}
    for index, entry in enumerate(found):
        for name in (entry.name, *entry.also):
            claimed = names.claimed(name)
            if claimed is None:
                raise _fault(path, f"{name[:64]!r} is no name that a model can be found by", "rename it")
            if owners.setdefault(claimed, index) != index:
                raise _fault(path, f"{name!r} stands there twice", "keep one of them")
        _try(entry, path)
    return found


def _try(entry: ModelEntry, path: str) -> None:
    try:
        quantisation.assign(entry.config, None, geometry(entry.config))
    except FactsError as error:
        raise FactsError(error.reason, f"{path}: {entry.name}: {error.what}", error.fix or SHOW_ROW) from error


def _folder(path: str, read_config: ReadConfig) -> Iterator[ModelEntry]:
    try:
        there = sorted(os.listdir(path))
    except OSError as error:
        raise _fault(
            path, f"cannot be read: {error.strerror}", "check the path and that this process may read it"
        ) from error
    if "config.json" in there:
        yield _model(path, read_config)
        return
    for name in there:
        place = os.path.join(path, name)
        is_model = os.path.isfile(os.path.join(place, "config.json")) or (
            name.startswith(_MODELS) and os.path.isdir(place)
        )
        if is_model or name.endswith((".toml", ".json")):
            yield from _file(place, read_config)


def _file(path: str, read_config: ReadConfig) -> Iterator[ModelEntry]:
    if not path.endswith(".toml"):
        yield _model(path, read_config)
        return
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise _fault(path, f"is larger than {_LARGEST_FILE >> 20} MiB", "keep the models that are served")
        document = tomllib.loads(content.decode())
    except OSError as error:
        raise _fault(
            path, f"cannot be read: {error.strerror}", "check the path and that this process may read it"
        ) from error
    except ValueError as error:
        raise _fault(path, f"is no TOML: {error}", SHOW_ROW) from error
    try:
        yield from models.parse(document, catalogue=path)
    except FactsError as error:
        raise FactsError(error.reason, f"{path}: {error.what.partition(': ')[2]}", SHOW_ROW) from error


def _model(path: str, read_config: ReadConfig) -> ModelEntry:
    """One model's files, under the name of its folder or file."""
    found = read_config(path)
    *folders, file = [part for part in os.path.abspath(found.path).split("/") if part]
    hub = [part for part in folders if part.startswith(_MODELS)]
    stem = folders[-1] if file == "config.json" and folders else file.removesuffix(".json")
    organisation, dashes, model = hub[-1].removeprefix(_MODELS).rpartition("--") if hub else ("", "", stem)
    config = dict(found.config)
    if found.hf_quant_config and quantisation.settings(config, None) is None:
        config["quantization_config"] = {"quant_method": "modelopt", **found.hf_quant_config}
    name, also = (f"{organisation}/{model}", (model,)) if dashes else (model, ())
    return ModelEntry(name, also, config, found.path, "", path)


def _fault(path: str, what: str, fix: str) -> FactsError:
    return FactsError(Absence.MODEL_UNKNOWN.value, f"{path}: {what}", fix)
