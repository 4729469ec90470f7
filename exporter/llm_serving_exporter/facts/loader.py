"""The reader of files in this package: the catalogues that are shipped, and a model's files on disk.

Every read is bounded, of a regular file, and never blocks on what is none. What is looked for below a folder must lie in it, links
resolved; a Hugging Face cache links from its snapshots to its blobs, so there the model's whole cache folder counts. Names and paths that a
server says are outside text: a name opens nothing but a folder of the cache that is made of it, a path nothing but `config.json` and its
companions in a folder that is there.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib.resources import files
from typing import Any, BinaryIO

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts import gpus, models, names, quantisation
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.fields import model_unknown
from llm_serving_exporter.facts.models import ModelEntry, ModelFiles
from llm_serving_exporter.facts.resolve import Finder, resolve
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.shape import ModelFacts
from llm_serving_exporter.model.target import ModelSettings, ServedModel

CONFIG = "config.json"
# of the built-in catalogue: where its rows were published
SOURCES = "sources.toml"
QUANTISATION = "hf_quant_config.json"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# mixed quantisations of the largest models name their modules one by one: 3 MB
LARGEST_CONFIG_BYTES = 16 << 20
# 9 MB for DeepSeek-V3; read piece by piece for one number
LARGEST_INDEX_BYTES = 64 << 20
_LONGEST_PATH = 4096
# names of files of weights
_WEIGHTS = (".gguf", ".safetensors")
_CHUNK_BYTES = 1 << 16
_TOTAL_SIZE = re.compile(rb'"total_size"\s*:\s*(\d{1,18})(?=[\s,.}])')
# as the hub allows them: one slash at most, no two dashes or dots in a row, so that the folder's name says it without doubt
_REPO_ID = re.compile(r"(?=.{1,96}$)(?!.*(?:--|\.\.))(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_REFS_BYTES = 256


@cache
def gpu_catalogue() -> tuple[GpuSpec, ...]:
    """The GPU catalogue; parsed once, when it is first asked for."""
    text = files("llm_serving_exporter.facts").joinpath("gpus.toml").read_text(encoding="utf-8")
    return gpus.parse(tomllib.loads(text))


def model_catalogue() -> models.Catalogue:
    """The built-in catalogue of models, by name. Nothing of it stays in memory: a model is asked for once."""
    folder = files("llm_serving_exporter.facts").joinpath("catalogue")
    texts = {
        place.name: place.read_text(encoding="utf-8") for place in folder.iterdir() if place.name.endswith(".toml")
    }
    sources = tomllib.loads(texts.pop(SOURCES))["sources"]
    return models.Catalogue(list(texts.values()), sources, tomllib.loads)


def hub_cache(environment: Mapping[str, str]) -> str | None:
    """Where Hugging Face's tools of this environment keep models, as they look for it; None where nothing says so."""
    for variable, below in (("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub")):
        if environment.get(variable):
            return os.path.join(environment[variable], below) if below else environment[variable]
    home = environment.get("HOME")
    return os.path.join(home, ".cache/huggingface/hub") if home else None


def given(text: str) -> ModelSettings:
    """What a person writes for a model: a path where it looks like one or something of that name is there, else a name. A file of weights
    states no sizes that are read here, while its name may be known."""
    if text.lower().endswith(_WEIGHTS):
        return ModelSettings(name=text)
    looks = text.startswith(("/", "./", "../", "~")) or text.endswith(".json")
    path = os.path.expanduser(text)
    return ModelSettings(config=path) if looks or _is(path, stat.S_ISDIR) else ModelSettings(name=text)


def model_facts(
    settings: ModelSettings, served: ServedModel | None = None, cache_folder: str | None = None, own: str | None = None
) -> ModelFacts:
    """Everything that is known about a model: its files where there are some, else the catalogues (see `facts.resolve`).

    `cache_folder`: a Hugging Face cache, None = none is looked at. `own`: file or folder of the user's own models, which go before
    the built-in ones. Raises FactsError that says what is missing and what to do.
    """
    found, notes = find_files(settings, served, cache_folder)

    def read_catalogues() -> Finder:
        return model_catalogue() if own is None else OwnCatalogue(own_models(own), model_catalogue)

    return resolve(settings, served, found, read_catalogues, notes)


def find_files(
    settings: ModelSettings, served: ServedModel | None, cache_folder: str | None
) -> tuple[ModelFiles | None, tuple[str, ...]]:
    """The first of: the configured path; the served path; what was configured, or loaded, or its served name, as an id in the cache.

    None where there is none of them. The notes say which of them were there and could not be read. Raises FactsError where that is
    the configured path.
    """
    if settings.config is not None:
        return read_config(settings.config), ()
    notes: list[str] = []
    for look in _places(settings, served, cache_folder):
        try:
            found = look()
        except FactsError as error:
            notes.append(str(error))
            continue
        if found is not None:
            return found, tuple(notes)
    return None, tuple(notes)


def _places(
    settings: ModelSettings, served: ServedModel | None, cache_folder: str | None
) -> Iterator[Callable[[], ModelFiles | None]]:
    root = served.root if served is not None else None
    if settings.name is None and root is not None:
        yield lambda: read_served(root)
    said = (settings.name,) if settings.name is not None else (root, served.name if served is not None else None)
    for name in dict.fromkeys(said):
        if cache_folder is not None and name is not None:
            yield partial(read_cached, cache_folder, name)


def read_config(path: str) -> ModelFiles:
    """The files of a model that a person points at: a config.json, a folder with one, or a model's folder in a Hugging Face cache.

    Raises FactsError (model_unknown) that names the file and what to do.
    """
    if not _is(path, stat.S_ISDIR):
        if os.path.basename(path) != CONFIG:
            # what else lies there belongs to a config.json
            return ModelFiles(path, _mapping(path, None))
        folder = os.path.dirname(path) or os.curdir
        return _files(path, folder, None, _bounds(folder))
    if _is(os.path.join(path, CONFIG), stat.S_ISREG):
        return _folder(path)
    if _is(os.path.join(path, "snapshots"), stat.S_ISDIR):
        return _folder(_snapshot(path))
    raise _fault(path, f"holds no {CONFIG}; point at the folder that a server loads the model from, or at its {CONFIG}")


def read_served(path: str) -> ModelFiles | None:
    """The files in a folder that a server says it loaded; None where there is no such folder with a config.json here.

    Raises FactsError where it is there and cannot be read.
    """
    if not os.path.isabs(path) or len(path) > _LONGEST_PATH or not _is(os.path.join(path, CONFIG), stat.S_ISREG):
        return None
    return _folder(path)


def read_cached(folder: str, repository: str, revision: str | None = None) -> ModelFiles | None:
    """A model's files in a Hugging Face cache (`.../hub`) by its id; the revision that refs/main names, else the only one.

    None where `repository` is no id or the cache has no config.json of it. Raises FactsError where it is there and cannot be read.
    """
    if not _REPO_ID.fullmatch(repository):
        return None
    place = os.path.join(folder, "models--" + repository.replace("/", "--"))
    if not _is(os.path.join(place, "snapshots"), stat.S_ISDIR):
        return None
    snapshot = _snapshot(place, revision)
    if not _is(os.path.join(snapshot, CONFIG), stat.S_ISREG):
        return None
    # of the cache, not of wherever a snapshot's folder may link to
    within = os.path.realpath(place)
    return _files(os.path.join(snapshot, CONFIG), snapshot, within, within)


def _snapshot(place: str, revision: str | None = None) -> str:
    """The folder of one revision of a model in the cache."""
    snapshots = os.path.join(place, "snapshots")
    if revision is None:
        main = os.path.join(place, "refs", "main")
        if _is(main, stat.S_ISREG):
            revision = _read(main, _REFS_BYTES, os.path.realpath(place)).decode("ascii", "replace").strip()
        else:
            try:
                there = sorted(os.listdir(snapshots))
            except OSError as error:
                raise _fault(snapshots, _why(error)) from error
            if len(there) != 1:
                raise _fault(
                    snapshots, f"holds {len(there)} revisions and no refs/main; name the folder of one of them"
                )
            revision = there[0]
    if not _REVISION.fullmatch(revision):
        raise _fault(place, "refs/main holds no revision")
    return os.path.join(snapshots, revision)


def _folder(folder: str) -> ModelFiles:
    within = _bounds(folder)
    return _files(os.path.join(folder, CONFIG), folder, within, within)


def _bounds(folder: str) -> str:
    """What a folder's files may lie in: itself; in a Hugging Face cache the model's folder, which holds the blobs."""
    real = os.path.realpath(folder)
    parent, place = os.path.split(os.path.dirname(real))
    return parent if place == "snapshots" and os.path.basename(parent).startswith("models--") else real


def _files(path: str, folder: str, within: str | None, companions_within: str) -> ModelFiles:
    """A config.json, which a person may have named through a link, and its companions."""
    beside = os.path.join(folder, QUANTISATION)
    quantisation = _mapping(beside, companions_within) if _is(beside, stat.S_ISREG) else None
    return ModelFiles(path, _mapping(path, within), quantisation, _stored_bytes(folder, companions_within))


def _stored_bytes(folder: str, within: str) -> int | None:
    index = os.path.join(folder, INDEX)
    if _is(index, stat.S_ISREG):
        return _total_size(index, within)
    single = os.path.join(folder, SINGLE)
    if _is(single, stat.S_ISREG):
        with _opened(single, within) as file:
            # eight bytes of little-endian length, a header of that length, the tensors
            header = int.from_bytes(file.read(8), "little")
            tensors = os.fstat(file.fileno()).st_size - 8 - header
        return tensors if tensors > 0 else None
    return None


def _total_size(path: str, within: str) -> int | None:
    """metadata.total_size of a safetensors index; everything else in it maps names to names, so that no other number follows the key."""
    with _opened(path, within) as file:
        if os.fstat(file.fileno()).st_size > LARGEST_INDEX_BYTES:
            raise _fault(path, f"is larger than {LARGEST_INDEX_BYTES >> 20} MiB, which no index is")
        kept = b""
        # it may grow meanwhile
        for _ in range(LARGEST_INDEX_BYTES // _CHUNK_BYTES + 1):
            kept = kept[-128:] + file.read(_CHUNK_BYTES)
            if (found := _TOTAL_SIZE.search(kept)) is not None:
                return int(found[1]) or None
    return None


def _mapping(path: str, within: str | None) -> Mapping[str, Any]:
    """A JSON object from a file. Never says what stands in it: the path may be a server's."""
    try:
        value = json.loads(_read(path, LARGEST_CONFIG_BYTES, within))
    except RecursionError as error:
        raise _fault(path, "is nested too deeply to be a model's configuration") from error
    except ValueError as error:
        raise _fault(path, "is not valid JSON; copy it again from where the model comes from") from error
    if not isinstance(value, dict):
        raise _fault(
            path, "is not a JSON object, so not a model's config.json; give the path of the one beside its weights"
        )
    return value


def _read(path: str, limit: int, within: str | None) -> bytes:
    with _opened(path, within) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise _fault(path, f"is larger than {limit >> 20} MiB, so not a model's configuration")
    return content


@contextmanager
def _opened(path: str, within: str | None) -> Iterator[BinaryIO]:
    """A regular file, links followed where `within` is None or they stay in it."""
    try:
        real = os.path.realpath(path, strict=True)
        if within is not None and os.path.commonpath((within, real)) != within:
            raise _fault(path, "is a link out of its folder; point at the folder that holds the model's files")
        # without O_NONBLOCK a named pipe would be waited for
        with open(os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _fault(path, "is not a regular file")
            yield file
    except (OSError, ValueError) as error:
        raise _fault(path, _why(error)) from error


def _is(path: str, kind: Callable[[int], bool]) -> bool:
    try:
        return kind(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _why(error: OSError | ValueError) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}; check the path and that this process may read it"
    return "cannot be read: not a path"


def _fault(path: str, what: str) -> FactsError:
    return model_unknown(f"{path[:_LONGEST_PATH]!r} {what}")


# --- a user's own models

MOST_MODELS = 1000
_LARGEST_FILE = 4 << 20
# what to do: `FactsError.fix`
SHOW_ROW = "write each model as [[model]] with name and config = { model_type = …, hidden_size = …, … }, see docs/ceiling-command.md"


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


def own_models(path: str) -> tuple[ModelEntry, ...]:
    """The models of a file or folder, each tried: its sizes make a geometry, its quantisation is known.

    Raises FactsError that names the file, the row, the key, and what to do.
    """
    found = tuple(_own_file(path) if not os.path.isdir(path) else _own_folder(path))
    if not found:
        raise _own_fault(
            path, "holds no model", "put *.toml files, config.json files, or folders that hold one into it"
        )
    if len(found) > MOST_MODELS:
        raise _own_fault(path, f"holds {len(found)} models", f"keep at most {MOST_MODELS}")
    owners: dict[str, int] = {}
    for index, entry in enumerate(found):
        for name in (entry.name, *entry.also):
            claimed = names.claimed(name)
            if claimed is None:
                raise _own_fault(path, f"{name[:64]!r} is no name that a model can be found by", "rename it")
            if owners.setdefault(claimed, index) != index:
                raise _own_fault(path, f"{name!r} stands there twice", "keep one of them")
        try:
            quantisation.assign(entry.config, None, geometry(entry.config))
        except FactsError as error:
            raise FactsError(error.reason, f"{path}: {entry.name}: {error.what}", error.fix or SHOW_ROW) from error
    return found


def _own_folder(path: str) -> Iterator[ModelEntry]:
    try:
        there = sorted(os.listdir(path))
    except OSError as error:
        raise _own_unreadable(path, error) from error
    if CONFIG in there:
        yield _own_model(path)
        return
    for name in there:
        place = os.path.join(path, name)
        cached = name.startswith("models--") and os.path.isdir(place)
        if cached or name.endswith((".toml", ".json")) or os.path.isfile(os.path.join(place, CONFIG)):
            yield from _own_file(place)


def _own_file(path: str) -> Iterator[ModelEntry]:
    if not path.endswith(".toml"):
        yield _own_model(path)
        return
    try:
        with open(path, "rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        if len(content) > _LARGEST_FILE:
            raise _own_fault(path, f"is larger than {_LARGEST_FILE >> 20} MiB", "keep the models that are served")
        document = tomllib.loads(content.decode())
    except OSError as error:
        raise _own_unreadable(path, error) from error
    except ValueError as error:
        raise _own_fault(path, f"is no TOML: {error}", SHOW_ROW) from error
    try:
        yield from models.parse(document, catalogue=path)
    except FactsError as error:
        raise FactsError(error.reason, f"{path}: {error.what.partition(': ')[2]}", SHOW_ROW) from error


def _own_model(path: str) -> ModelEntry:
    """One model's files, under the name of its folder or file; in a Hugging Face cache with its organisation and without."""
    found = read_config(path)
    name = models.name_of(os.path.abspath(found.path))
    config = dict(found.config)
    if found.hf_quant_config and quantisation.settings(config, None) is None:
        config["quantization_config"] = {"quant_method": "modelopt", **found.hf_quant_config}
    return ModelEntry(name, (name.rpartition("/")[2],) if "/" in name else (), config, found.path, "", path)


def _own_unreadable(path: str, error: OSError) -> FactsError:
    fix = "check the path and that this process may read it"
    return _own_fault(path, f"cannot be read: {error.strerror}", fix)


def _own_fault(path: str, what: str, fix: str) -> FactsError:
    return model_unknown(f"{path}: {what}", fix)
