"""What argparse says of a command line that it cannot use -> what is wrong, at which flag, and what to write."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from llm_serving_exporter.schema.problems import did_you_mean, listed, shown

_Explain = Callable[[re.Match[str], str], str]


def explain_usage_error(message: str, program: str) -> str:
    """A sentence on the fault and one on what to do. `program`: the words before the flags, whose --help says more."""
    for pattern, explain in _EXPLANATIONS:
        found = pattern.fullmatch(message)
        if found is not None:
            return explain(found, program)
    return message


def _lacks_value(found: re.Match[str], program: str) -> str:
    flag = _longest(found[1])
    return f"flag {flag}: its value is missing. Write {flag} VALUE, or {flag}=VALUE where it begins with a dash."


def _takes_none(found: re.Match[str], program: str) -> str:
    return f"flag {_longest(found[1])}: it takes no value. Write {_longest(found[1])} alone."


def _is_no_choice(found: re.Match[str], program: str) -> str:
    # quoted up to Python 3.11, and not later
    choices = [choice.strip().strip("'\"") for choice in found[3].split(",")]
    return f"flag {_longest(found[1])}: {shown(_unquote(found[2]))} is none of its values. {did_you_mean(_unquote(found[2]), choices)}"


def _is_no_value(found: re.Match[str], program: str) -> str:
    kind = "a whole number" if found[2] == "int" else "a value of it"
    return f"flag {_longest(found[1])}: {shown(_unquote(found[3]))} is not {kind}. See {program} --help."


def _excludes(found: re.Match[str], program: str) -> str:
    return f"flag {_longest(found[1])}: it does not go with {_longest(found[2])}. Leave one of them away."


def _are_missing(found: re.Match[str], program: str) -> str:
    names = [_longest(name) for name in found[1].split(", ")]
    return f"{'flag' if len(names) == 1 else 'flags'} {listed(names, 'and')}: missing. See {program} --help for an example."


def _are_unknown(found: re.Match[str], program: str) -> str:
    return (
        f"{shown(found[1])} is no flag, and this command takes no more words. Leave it away, or see {program} --help."
    )


def _is_refused(found: re.Match[str], program: str) -> str:
    return f"flag {_longest(found[1])}: {_ended(found[2])}"


def _longest(names: str) -> str:
    """Of "-o/--output" the second."""
    return max(names.split("/"), key=len)


def _unquote(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith(".") else f"{sentence}."


# the first that fits; argparse has no other way to tell one fault from another
_EXPLANATIONS: Sequence[tuple[re.Pattern[str], _Explain]] = (
    (re.compile(r"argument (\S+): expected one argument"), _lacks_value),
    (re.compile(r"argument (\S+): invalid choice: (.*) \(choose from (.*)\)", re.DOTALL), _is_no_choice),
    (re.compile(r"argument (\S+): invalid (\S+) value: (.*)", re.DOTALL), _is_no_value),
    (re.compile(r"argument (\S+): ignored explicit argument (.*)", re.DOTALL), _takes_none),
    (re.compile(r"argument (\S+): not allowed with argument (\S+)"), _excludes),
    (re.compile(r"the following arguments are required: (.*)"), _are_missing),
    (re.compile(r"unrecognized arguments: (.*)", re.DOTALL), _are_unknown),
    (re.compile(r"argument (\S+): (.*)", re.DOTALL), _is_refused),
)
