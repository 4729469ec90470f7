"""Recorded runs of real servers for tests: `page("vllm-0.32", 60)`, `recording("sglang-0.5.23")`."""

from functools import cache

from llm_serving_simulator.replay import Recording, demo_recording
from tests.support.paths import TESTS

CAPTURES = TESTS / "captures"


@cache
def recording(name: str) -> Recording:
    """The run `name`: the one that ships with the package, an archive of tests/captures, or a folder of others.tar.xz.

    Errors: KeyError where no such run exists, with the names that do.
    """
    if name == "vllm-0.32":
        return demo_recording()
    archive = CAPTURES / f"{name}.tar.xz"
    if archive.exists():
        return Recording.load(archive)
    others = Recording.load(CAPTURES / "others.tar.xz")
    if name in others.folders:
        return others.open_folder(name)
    raise KeyError(f"no recording {name!r}; there are {', '.join(names())}")


@cache
def names() -> tuple[str, ...]:
    """The name of every run that has pages."""
    archives = {path.name.removesuffix(".tar.xz") for path in CAPTURES.glob("*.tar.xz")} - {"others"}
    others = Recording.load(CAPTURES / "others.tar.xz").folders
    whole = (name for name in archives if Recording.load(CAPTURES / f"{name}.tar.xz").pages)
    return tuple(sorted({"vllm-0.32", *others, *whole}))


def page(name: str, number: int) -> bytes:
    """One page of a run. Errors: KeyError where the run or the page does not exist."""
    return recording(name).pages[number]
