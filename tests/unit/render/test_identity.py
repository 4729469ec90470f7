"""Who a target is, in words: on the landing page, in `once` and /debug/targets."""

from __future__ import annotations

import json

from llm_serving_exporter.commands.once import as_document_of, as_table
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import Identity, Target
from llm_serving_exporter.render.sentences import describe_identity
from llm_serving_exporter.web.pages.debug import answer_debug_targets
from tests.support.builders import views
from tests.support.builders.landingpage import page_of
from tests.support.rows import check_rows

WHOLE = Identity("prod", "chat-0", "uid-1", "vllm", "chat", "Deployment", labels=(("team", "search"), ("tier", "gold")))
WORDS = "pod prod/chat-0 (vllm); Deployment chat; node n1; team=search, tier=gold"


@check_rows(
    ("identity", "nodes", "words"),
    [
        (WHOLE, ("n1",), WORDS),
        (Identity(), (), ""),
        (Identity(), ("n1", "n2"), "nodes n1, n2"),
        (Identity(namespace="prod"), (), "namespace prod"),
        (Identity(workload="chat", container="vllm"), (), "chat"),
    ],
)
def test_what_is_known_is_said_and_nothing_else(identity: Identity, nodes: tuple[str, ...], words: str) -> None:
    assert describe_identity(Target("t", "http://t:1", identity=identity, nodes=nodes)) == words


def test_it_stands_on_every_page_for_people() -> None:
    reading = views.reading("prod/chat-0:8000", [])
    reading = replace(reading, target=replace(reading.target, identity=WHOLE, nodes=("n1",)))
    assert WORDS in page_of(views.view(reading)).card("prod/chat-0:8000")
    assert f"  {WORDS}" in as_table(reading).splitlines()
    shown = json.loads(answer_debug_targets(views.view(reading), {}).body)["targets"][0]
    for document in (shown, json.loads(json.dumps(as_document_of(reading)))):
        assert document["nodes"] == ["n1"]
        assert {"namespace": "prod", "pod": "chat-0", "labels": {"team": "search", "tier": "gold"}}.items() <= document[
            "identity"
        ].items()
