"""Which labels an expression reads from scraped series by a name that a scrape may have given to a label of its own."""

import re
from collections.abc import Iterable

# a scraped series of ours; recorded ones have a level before it
_SCRAPED = re.compile(r"(?<![:\w])llm_serving_\w+")
_PLAIN = re.compile(r"\b(?:sum|max|min|count|avg)\(")
_GROUPING = re.compile(r"\b(by|on|group_left|without) \(([^)]*)\) ?(\(?)")


def find_renamed(expression: str, labels: Iterable[str]) -> list[str]:
    """Those of `labels` by which the expression groups, matches or joins scraped series, although a scrape may have renamed ours."""
    return [label for label in labels if _reads(_drop_right_ones(expression, label), label)]


def _reads(expression: str, label: str) -> bool:
    for matchers in re.findall(rf"{_SCRAPED.pattern}\{{([^}}]*)\}}", expression):
        if re.search(rf'(?<!\w){label}(=~|!~|!=|=)"?', matchers):
            return True
    # what is only asked whether it is there gives nothing
    series = rf"{_SCRAPED.pattern}(?:\{{[^}}]*\}})?"
    asked = rf"\b(?:and|unless) on \((?P<names>[^)]*)\) {series}"
    rest, before = expression, ""
    while rest != before:
        before = rest
        rest = re.sub(asked, lambda found: found[0] if label in found["names"].split(", ") else "", rest)
        rest = re.sub(rf"((?:and|unless) on \([^)]*\) )\(({series}) ?\)", r"\1\2", rest)
    # one that drops every label of what it reads as it is
    for one in reversed([*_PLAIN.finditer(rest)]):
        end = _closing(rest, one.end() - 1)
        if not _GROUPING.search(rest[one.end() : end]):
            rest = f"{rest[: one.start()]}aggregated{rest[end + 1 :]}"
    # from the innermost aggregation on: one that drops the label leaves nothing of it to read
    while found := list(re.finditer(r"\bby \(([^)]*)\) \(", rest)):
        last = found[-1]
        end = _closing(rest, last.end() - 1)
        kept = label in last[1].split(", ")
        if kept and _SCRAPED.search(rest[last.end() : end]):
            return True
        rest = f"{rest[: last.start()]}aggregated{rest[end + 1 :]}"
    while plain := _PLAIN.search(rest):
        rest = f"{rest[: plain.start()]}aggregated{rest[_closing(rest, plain.end() - 1) + 1 :]}"
    joined = [names.split(", ") for _, names, _ in _GROUPING.findall(rest)]
    return any(label in names for names in joined) and bool(_SCRAPED.search(rest))


def _drop_right_ones(expression: str, label: str) -> str:
    return _without_owned(_without_exported(expression, label), label)


def _without_exported(expression: str, label: str) -> str:
    """The expression without the series whose label is read from `exported_…` where that is there."""
    rest, start = expression, 0
    while (at := rest.find("label_replace(", start)) >= 0:
        end = _closing(rest, at + len("label_replace"))
        if f'"{label}", "$1", "exported_{label}", "(.+)"' in rest[at:end]:
            rest = f"{rest[:at]}taken{rest[end + 1 :]}"
        start = at + 1
    return rest


def _without_owned(expression: str, label: str) -> str:
    """The expression without the series that are given the label by their targets."""
    rest = expression
    for match in re.finditer(r" group_left \(([^)]*)\) target:llm_serving_owner:info\)", expression):
        if label in match[1].split(", "):
            rest = rest.replace(expression[_opening(expression, match.end() - 1) : match.end()], "owned")
    return rest


def _opening(text: str, closing: int) -> int:
    """Where the parenthesis that is closed there opens."""
    open_, quoted = list[int](), False
    for index, character in enumerate(text[: closing + 1]):
        if character == '"':
            quoted = not quoted
        elif not quoted and character == "(":
            open_.append(index)
        elif not quoted and character == ")":
            opening = open_.pop()
            if index == closing:
                return opening
    raise ValueError(f"nothing opens {text[: closing + 1]}")


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis that opens there is closed."""
    depth, quoted = 0, False
    for index in range(opening, len(text)):
        if text[index] == '"':
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(text[index], 0)
            if depth == 0:
                return index
    raise ValueError(f"nothing closes {text[opening:]}")
