"""When a page says that its counters began: the `_created` series of Prometheus' and OpenMetrics' client libraries."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from llm_serving_exporter.engines.index import spellings
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.selector import selector

_OF_A_COUNTER = re.compile(r"_(?:total|count|sum|bucket)$")


def find_created(body: bytes, runtime: Runtime, sources: Mapping[str, int], fields: Iterable[str]) -> dict[str, float]:
    """Field -> when the youngest of its series was made, in Unix seconds by the server's clock; a field without such a series is left out.

    `sources`: the snapshot's, field -> number of its row in the runtime's table. Reads the body a second time: only the
    rare page that shows a counter for the first time pays for it.
    """
    found = {}
    for field in sources.keys() & set(fields):
        names = {
            _OF_A_COUNTER.sub("", spelling) + "_created"
            for text in runtime.rows[sources[field]].samples
            for spelling in spellings(selector(text).name, runtime.respelt)
        }
        line = rb"^(?:%s)(?:\{.*\})?[ \t]+([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)[ \t]*\r?$" % b"|".join(
            re.escape(name.encode()) for name in sorted(names)
        )
        times = [float(match) for match in re.findall(line, body, re.MULTILINE)]
        if times:
            found[field] = max(times)
    return found
