"""The sample of docs/report.md, the review of a simulated fortnight: `--write` or `--check`; `--picture` draws docs/img/review.png.

    .venv/bin/python -m scripts.sample_review --write
    .venv/bin/python -m scripts.sample_review --picture

The page is made anew by `make generate`, and `make check` compares it. The picture is the browser's: it is not compared.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from llm_serving_exporter import __version__
from llm_serving_exporter.docgen.generated_files import write_or_check
from llm_serving_review.pages.page import render_page
from tests.support.builders.samplereview import make_sample
from tests.support.chromium import browse

PAGE, PICTURE = Path("docs/sample/cost-2026-W46.html"), Path("docs/img/review.png")
# page one on a screen of 1,080 pixels
_WIDTH, _HEIGHT = 1240, 860


def render_sample() -> str:
    """The page; without a version, so that it is the same after a release."""
    return render_page(make_sample()).replace(f"llm-serving-exporter {__version__}.", "llm-serving-exporter.")


def draw_picture() -> None:
    """Page one as Chromium shows it."""
    with tempfile.TemporaryDirectory() as folder:
        browse(
            Path(folder), f"--window-size={_WIDTH},{_HEIGHT}", f"--screenshot={PICTURE.absolute()}", PAGE.absolute().as_uri()
        )  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1:] == ["--picture"]:
        draw_picture()
    else:
        sys.exit(write_or_check("python -m scripts.sample_review", __doc__, {PAGE: render_sample()}, (), None))
