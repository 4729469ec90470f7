"""A sample's line of the text format, cut into its parts."""

from typing import NamedTuple


class SampleLine(NamedTuple):
    """The parts as they are written."""

    series: str  # name and labels
    value: str
    stamp: str  # "" where there is none


def split_sample(line: str) -> SampleLine:
    """The parts of a line without an exemplar. A label's value may hold blanks, braces and escaped quotes."""
    # the last brace ends the labels: behind it are numbers
    labelled, brace, numbers = line.rpartition("}")
    series, words = (labelled + brace, numbers.split()) if brace else (line.split()[0], line.split()[1:])
    return SampleLine(series, words[0], words[1] if len(words) > 1 else "")
