"""What the review takes from price files: pools, and where nodes stand. Prices themselves were metered by the exporters."""

from __future__ import annotations

from collections.abc import Sequence

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.model.cost import Pool, PoolBook
from llm_serving_exporter.model.target import NodePlace
from llm_serving_exporter.settings import kinds
from llm_serving_exporter.settings.document import read_document
from llm_serving_exporter.settings.facts import GPU_MODEL
from llm_serving_exporter.settings.keys import Members
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.prices import read_nodes, read_pools
from llm_serving_exporter.settings.problems import InvalidValueError, Place, shown

_ANY_GPU = kinds.text("GPU name")


def read_price_files(paths: Sequence[str]) -> PoolBook | None:
    """Pools and nodes of all files, in their order; None without a file. Raises ConfigError with everything that is wrong."""
    if not paths:
        return None
    problems: list[Problem] = []
    gpu = Kind(GPU_MODEL.expects, _parse_gpu, is_text=True)
    pools: dict[str, Pool] = {}
    nodes: dict[str, NodePlace] = {}
    for path in paths:
        place = Place(path, "", problems)
        document = read_document(path, place)
        # the exporter that meters by it refuses what is wrong elsewhere in the file
        section = Members(document if isinstance(document, dict) else {}, place)
        if document is not None and not isinstance(document, dict):
            place.refuse("this is no price file", "Name the file that cost.price_file of the exporters names.")
        for pool in read_pools(*section.find_key("pools"), gpu):
            if pools.setdefault(pool.name, pool) != pool:
                what = f"there is another pool {shown(pool.name)} in {_name_other(paths, path)}"
                place.key("pools").refuse(what, "Give each a name of its own.")
        for name, stated in read_nodes(*section.find_key("nodes")):
            if nodes.setdefault(name, stated) != stated:
                what = f"the node {shown(name)} stands elsewhere in {_name_other(paths, path)}"
                place.key("nodes").refuse(what, "Keep one of them.")
    if problems:
        raise ConfigError(*problems)
    return PoolBook(tuple(pools.values()), tuple(nodes.items()))


def _name_other(paths: Sequence[str], path: str) -> str:
    return " or ".join(other for other in paths if other != path) or path


def _parse_gpu(text: str) -> str:
    """A card's name as series have it. One that only the exporters' configuration describes stands as it is written."""
    _ANY_GPU.parse(text)
    try:
        GPU_MODEL.parse(text)
    except InvalidValueError:
        return text
    # a megabyte of tables: only where a pool names a card
    from llm_serving_exporter.facts import loader
    from llm_serving_exporter.facts.gpus import find

    return find(text, loader.gpu_catalogue()).name
