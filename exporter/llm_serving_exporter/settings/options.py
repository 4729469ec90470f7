"""Keys that more than a file sets: an option by flag and variable, a key of a target by a label. What reads sections gets a context."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.keys import Key, Keys, declares, keys_of, read_keys, value
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.problems import Node, Place

T = TypeVar("T")
ENVIRONMENT_PREFIX = "LLM_SERVING_EXPORTER_"


@dataclass(frozen=True, slots=True)
class Option(Key):
    """A key whose `name` is the flag without "--": "web.listen-address"."""

    reads: Kind[Any]
    _: KW_ONLY
    repeatable: bool = False  # the flag may be given again, the variable holds a comma-separated list, the file a list
    in_file: bool = True  # False: a flag and a variable alone; the file has a richer form of its own, or none
    # what the configuration holds instead of the kind's value, such as None for a threshold of "off"
    becomes: Callable[[Any], Any] | None = None

    @property
    def flag(self) -> str:
        """`--web.listen-address`."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """`LLM_SERVING_EXPORTER_WEB_LISTEN_ADDRESS`."""
        return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", self.name).upper()

    @property
    def keys(self) -> tuple[str, ...]:
        """The path of YAML keys: ("web", "listen_address")."""
        return tuple(part.replace("-", "_") for part in self.name.split("."))

    @property
    def attribute(self) -> str:
        """The attribute of the argparse namespace."""
        return re.sub(r"[.-]", "_", self.name)

    def parsed_default(self) -> Any:
        """The value of the default, as one that is set. Only of an option that has one."""
        content = self.reads.parse(self.default)
        return (content,) if self.repeatable else content

    def default_value(self) -> Any:
        """What the configuration holds where nobody sets the option."""
        return self.convert(self.parsed_default()) if self.default else self.unset

    def convert(self, content: Any) -> Any:
        """What the configuration holds for a value that is set."""
        return content if self.becomes is None else self.becomes(content)


declare = declares(Option)


def option(
    name: str,
    kind: Kind[Any],
    help_text: str,
    *,
    default: str = "",
    repeatable: bool = False,
    unset: Any = None,
    becomes: Callable[[Any], Any] | None = None,
) -> Any:
    """A field of a dataclass that an option sets."""
    return declare(kind, help_text, name=name, default=default, repeatable=repeatable, unset=unset, becomes=becomes)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetKey(Key):
    """A key of a target, which a label of a list of targets may set too."""

    label: str = ""  # the label of a file_sd group that may set it too; "" = none
    label_reads: Kind[Any] | None = None  # how the label's text is read, where that is not how the file's value is read
    in_defaults: bool = True  # whether `target_defaults` and the `defaults` of file_sd may set it


target_key = declares(TargetKey)


# --- what is set -------------------------------------------------------------------------------------------------------


def options_of(declaring: type) -> list[Option]:
    """Those that the fields of a dataclass declare."""
    return [declared for declared in keys_of(declaring).values() if isinstance(declared, Option)]


def plain_keys(declaring: type) -> Keys:
    """The keys of a section that no flag can hold, because they are structured."""
    return {
        attribute: declared for attribute, declared in keys_of(declaring).items() if not isinstance(declared, Option)
    }


class Setting(Struct, frozen=True):
    """What an option is set to."""

    value: Any  # of the option's kind; a tuple where it is repeatable
    place: Place
    from_file: bool = False  # False for flags, environment variables and defaults


Settings = Mapping[str, Setting]


def build_section(declaring: type[T], settings: Settings, **others: Any) -> T:
    """An instance of a class that declares options. What nobody set has its default; `others` are other fields, or win over what is set."""
    values = {
        option.field: option.convert(settings[option.name].value)
        for option in options_of(declaring)
        if option.name in settings
    }
    return declaring(**{**values, **others})


class ConfigFile(Struct, frozen=True):
    """The configuration file."""

    tree: Mapping[str, Node]  # its known top-level keys; {} where there is no file or it is not usable
    place: Place
    path: str | None  # None = there is no file

    @property
    def folder(self) -> str | None:
        """Where the file's relative paths start; None without a file."""
        return None if self.path is None else os.path.dirname(self.path)

    def find_key(self, key: str) -> tuple[Node | None, Place]:
        """The value of a top-level key, and its place."""
        return self.tree.get(key), self.place.key(key)


def read_section(
    name: str, declaring: type[T], settings: Settings, file: ConfigFile, context: Context
) -> tuple[T, Place]:
    """A section of the file with structured keys, which no flag can set, beside what is set of its options; and its place."""
    node, place = file.find_key(name)
    structured = read_keys(plain_keys(declaring), node if isinstance(node, dict) else {}, place, context)
    return build_section(declaring, settings, **structured), place


# --- the surroundings --------------------------------------------------------------------------------------------------


class Host(Struct, frozen=True):
    """The host of the exporter."""

    name: str
    node: str  # the name of its node: NODE_NAME, else the host's
    # of the pod that it runs in beside its engines; "" where the environment does not tell
    namespace: str = ""
    pod: str = ""
    pod_uid: str = ""
    container: str = ""  # of the engine in that pod


class Context(Struct, frozen=True):
    """The surroundings of a settings file, and what its readers note."""

    host: Host
    environ: Mapping[str, str]
    runtimes: Collection[str]
    folder: str | None = None  # where relative paths start, None = the working directory
    gpu_models: Collection[str] = ()  # the names of GPUs that the file itself describes
    secret_variables: set[str] = field(default_factory=set)  # the environment variables that the settings name
    warnings: list[str] = field(default_factory=list)  # what is legal but odd

    def resolve(self, path: str) -> str:
        """A path of the file, made relative to the file's folder."""
        return path if self.folder is None else os.path.join(self.folder, path)


def read_path(node: Node, place: Place, context: Context) -> str | None:
    """A path of the file, made relative to the file's folder; None where it is not usable, which is then reported."""
    path = value(node, place, kinds.PATH)
    return None if path is None else context.resolve(path)
