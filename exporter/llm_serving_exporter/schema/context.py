"""What reading a configuration needs to know about its surroundings, and what it notes on the way."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.problems import Place
from llm_serving_exporter.schema.reading import value
from llm_serving_exporter.schema.tree import Node


class Host(Struct, frozen=True):
    """The host of the exporter."""

    # its own name
    name: str
    # the name of its node: NODE_NAME, else the host's
    node: str
    # of the pod that it runs in beside its engines; "" where the environment does not tell
    namespace: str = ""
    pod: str = ""  # name of that pod
    pod_uid: str = ""  # UID of that pod
    container: str = ""  # of the engine in that pod


class Context(Struct, frozen=True):
    """The surroundings of a settings file, and what its readers note."""

    host: Host  # that the exporter runs on
    environ: Mapping[str, str]  # environment variables
    # the names of those that have a mapping table
    runtimes: Collection[str]
    # where relative paths start, None = the working directory
    folder: str | None = None
    # the names of GPUs that the file itself describes
    gpu_models: Collection[str] = ()
    # the environment variables that the settings name
    secret_variables: set[str] = field(default_factory=set)
    # what is legal but odd
    warnings: list[str] = field(default_factory=list)

    def resolve(self, path: str) -> str:
        """A path of the file, made relative to the file's folder."""
        return path if self.folder is None else os.path.join(self.folder, path)


def read_path(node: Node, place: Place, context: Context) -> str | None:
    """A path of the file, made relative to the file's folder; None where it is not usable, which is then reported."""
    path = value(node, place, kinds.PATH)
    return None if path is None else context.resolve(path)
