"""Names drawn from what engines and hosts list (tests/truth/names): how many of them the catalogue knows, and which it does not."""

from functools import cache

from llm_serving_exporter.errors import FactsError
from llm_serving_exporter.facts.architectures import geometry
from llm_serving_exporter.facts.names import find
from tests.support.models.shapes import whole_catalogue
from tests.support.paths import ROOT

NAMES = ROOT / "tests/truth/names"
LEAST_DRAWN, LEAST_SHARE = 190, 0.85
# of those drawn, and why
UNKNOWN = {
    "domyn/Domyn-Edge-Base": "no public text that states its sizes was found",
    "domyn/Domyn-Edge-SFT": "no public text that states its sizes was found",
    "featherless-ai/Qwerky-72B": "an RWKV conversion, of which no formula is here",
    "kimi-k3p1-pro": "no public text that states its sizes was found",
    "nvidia/Llama-3_1-Nemotron-51B-Instruct": "the sizes of its blocks are on the hub only",
    "nvidia/NVIDIA-Nemotron-Labs-Dory1.0-4B-BF16": "its layers are passed several times a token, of which no formula is here",
    "pfnet/plamo-3-nict-2604-31b-base": "no public text that states its sizes was found",
    "sapientinc/HRM-Text-1B": "its layers are passed several times a token, of which no formula is here",
    "sarvamai/sarvam-2": "the list's row means two models of other sizes, 30B and 105B",
    "Zyphra/Zamba2-1.2B-instruct": "shares one block among its layers, of which no formula is here",
}
# of the usual ones, and why
UNUSUAL = {
    "granite4:3b": "two models of other kinds are called that",
    "jinaai/jina-reranker-v2-base-multilingual": "no public text that states its count was found",
    "microsoft/Phi-4-mini-flash-reasoning": "SambaY, of which no formula is here",
    "mixedbread-ai/mxbai-rerank-large-v1": "DeBERTa, of which no formula is here",
    "mixedbread-ai/mxbai-rerank-xsmall-v1": "DeBERTa, of which no formula is here",
    "nomic-ai/nomic-embed-code": "no public text that states its sizes was found",
    "nomic-ai/nomic-embed-text-v2-moe": "experts in a BERT, of which no formula is here",
    "xai-org/grok-2": "no public text that states its sizes was found",
}


@cache
def _known(name: str) -> bool:
    """Whether the catalogue gives the name a geometry, from a source that it names."""
    try:
        entry = find(name, whole_catalogue()).entry
    except FactsError:
        return False
    return bool(entry.source) and geometry(entry.config).parameters_total > 0


def test_names_drawn_before_they_were_looked_up_are_known() -> None:
    drawn = (NAMES / "drawn.txt").read_text("utf-8").split()
    unknown = {name for name in drawn if not _known(name)}
    assert len(drawn) == 200
    assert unknown == UNKNOWN.keys()
    assert len(drawn) - len(unknown) >= LEAST_DRAWN


def test_most_of_all_that_could_have_been_drawn_is_known() -> None:
    union = [line.split()[0] for line in (NAMES / "union.txt").read_text("utf-8").splitlines()]
    assert sum(map(_known, union)) >= LEAST_SHARE * len(union)


def test_usual_names_of_houses_hosts_and_ollama_are_known() -> None:
    usual = (NAMES / "usual.txt").read_text("utf-8").split()
    unknown = {name for name in usual if not _known(name)}
    assert unknown == UNUSUAL.keys()
    assert len(unknown) <= 0.05 * len(usual)
