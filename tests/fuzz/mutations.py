"""Pages that no server ever sent, made of pages that servers did send: each mutation keeps most of the structure, so that it comes far."""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from tests.support.builders.recordings import names, recording

VALUES = (
    b"NaN", b"+Inf", b"-Inf", b"-nan", b"0", b"-0", b"-1", b"1e308", b"-1e308", b"1e-320", b"1e400", b"9007199254740993", b"1e15", b".5",
    b"5.", b"+1", b"0x10",
    b"1_0", b"1e", b"", b"1 1795147700000", b"1 -1", b"1 99999999999999999999", b"\xd9\xa1",
)  # fmt: skip
LABEL_VALUES = (
    "", " ", "\\n", r"\"", "\\\\", "\\", "\u202e", "\x00", "\x1b[31m",
    "é", "＝1", "{}", '"', ",", "=", "#", "<b>", "../..", "+Inf", "NaN", "0",
    "x" * 300, "\ud7ff", "\U0010ffff",
)  # fmt: skip
_SAMPLE = re.compile(rb"^([^#\s{]+)(\{.*\})?([ \t]+)(\S+)(.*)$")
_LABEL = re.compile(rb'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')

Lines = list[bytes]
Mutation = Callable[[Random, Lines], None]


def seeds(per_run: int = 2) -> list[bytes]:
    """Pages of every recorded run, from its middle and its end."""
    found = []
    for name in names():
        pages = list(recording(name).pages.values())
        found += [pages[(len(pages) - 1) * (number + 1) // per_run] for number in range(per_run)]
    return found


def mutate(random: Random, page: bytes, other: bytes, most: int = 8) -> bytes:
    """A page after one to `most` mutations; some take lines of `other`, a page of another server perhaps."""
    lines = page.split(b"\n")
    for _ in range(random.randint(1, most)):
        if random.random() < 0.1:
            splice(random, lines, other.split(b"\n"))
        else:
            random.choice(MUTATIONS)(random, lines)
    body = b"\n".join(lines)
    if random.random() < 0.1:
        body = damage(random, body)
    return body


def revalue(random: Random, page: bytes) -> bytes:
    """A page after one to four mutations of its values alone."""
    lines = page.split(b"\n")
    for _ in range(random.randint(1, 4)):
        random.choice((_values, _arithmetic))(random, lines)
    return b"\n".join(lines)


def splice(random: Random, lines: Lines, others: Lines) -> None:
    """Puts some lines of another page in."""
    at, begin = random.randrange(len(lines) + 1), random.randrange(len(others))
    lines[at:at] = others[begin : begin + random.randint(1, 40)]


def damage(random: Random, body: bytes) -> bytes:
    """Single bytes, as a broken transport has it."""
    found = bytearray(body)
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(found) + 1)
        match random.randrange(4):
            case 0:
                found[at : at + 1] = bytes([random.randrange(256)])
            case 1:
                del found[at : at + random.randint(1, 30)]
            case 2:
                found[at:at] = bytes(random.randrange(256) for _ in range(random.randint(1, 8)))
            case _:
                del found[at:]
    return bytes(found)


def _samples(lines: Lines) -> list[int]:
    return [at for at, line in enumerate(lines) if line and line[:1] != b"#"]


def _some(random: Random, lines: Lines) -> list[int]:
    """Lines of samples: one, those of one name, or any."""
    found = _samples(lines)
    if not found:
        return []
    one = random.choice(found)
    match random.randrange(4):
        case 0:
            name = re.split(rb"[{ ]", lines[one])[0]
            return [at for at in found if lines[at].startswith(name)]
        case 1:
            return sorted(random.sample(found, min(len(found), random.randint(1, 20))))
        case _:
            return [one]


def _values(random: Random, lines: Lines) -> None:
    value = random.choice(VALUES)
    for at in _some(random, lines):
        if match := _SAMPLE.match(lines[at]):
            lines[at] = match[1] + (match[2] or b"") + match[3] + value + match[5]


def _arithmetic(random: Random, lines: Lines) -> None:
    factor, plus = random.choice([0.0, -1.0, 0.5, 2.0, 1e6, 1e-9, 1e300]), random.choice([0.0, 1.0, -5.0])
    for at in _some(random, lines):
        if match := _SAMPLE.match(lines[at]):
            try:
                value = float(match[4]) * factor + plus
            except (ValueError, OverflowError):
                continue
            lines[at] = match[1] + (match[2] or b"") + match[3] + repr(value).encode() + match[5]


def _label_value(random: Random, lines: Lines) -> None:
    value = random.choice(LABEL_VALUES).encode("utf-8", "surrogatepass")
    for at in _some(random, lines):
        pairs = list(_LABEL.finditer(lines[at]))
        if pairs:
            pair = random.choice(pairs)
            lines[at] = lines[at][: pair.start(2)] + value + lines[at][pair.end(2) :]


def _label_name(random: Random, lines: Lines) -> None:
    name = random.choice(
        [b"le", b"model_name", b"engine", b"target", b"__name__", b"quantile", b"x", b"0x", b"a-b", b'"q"', b""]
    )
    for at in _some(random, lines):
        pairs = list(_LABEL.finditer(lines[at]))
        if pairs:
            pair = random.choice(pairs)
            lines[at] = lines[at][: pair.start(1)] + name + lines[at][pair.end(1) :]


def _label_gone(random: Random, lines: Lines) -> None:
    for at in _some(random, lines):
        pairs = list(_LABEL.finditer(lines[at]))
        if pairs:
            pair = random.choice(pairs)
            lines[at] = lines[at][: pair.start()] + lines[at][pair.end() :].removeprefix(b",")


def _label_more(random: Random, lines: Lines) -> None:
    more = random.choice(
        [b'engine="1",', b'le="0.5",', b'model_name="b",', b'dp_rank="2",', b'x="y",' * 40, b" ", b","]
    )
    for at in _some(random, lines):
        lines[at] = lines[at].replace(b"{", b"{" + more, 1)


def _gone(random: Random, lines: Lines) -> None:
    for at in reversed(_some(random, lines)):
        del lines[at]


def _twice(random: Random, lines: Lines) -> None:
    for at in reversed(_some(random, lines)):
        lines[at:at] = [lines[at]] * random.randint(1, 3)


def _order(random: Random, lines: Lines) -> None:
    at = random.randrange(len(lines) + 1)
    part = lines[at : at + 60]
    random.shuffle(part)
    lines[at : at + 60] = part


def _name(random: Random, lines: Lines) -> None:
    old, new = random.choice(
        [
            (b"_total", b""), (b"_bucket", b""), (b"_count", b"_sum"), (b"_sum", b""), (b":", b"_"),
            (b"vllm", b"sglang"), (b"{", b"_total{"), (b"_", b"-"),
        ]
    )  # fmt: skip
    for at in _some(random, lines):
        lines[at] = lines[at].replace(old, new, 1)


def _type(random: Random, lines: Lines) -> None:
    found = [at for at, line in enumerate(lines) if line.startswith(b"# TYPE")]
    if found:
        at = random.choice(found)
        kind = random.choice([b"counter", b"gauge", b"histogram", b"summary", b"untyped", b"info", b"x", b""])
        lines[at] = lines[at].rpartition(b" ")[0] + b" " + kind


def _comment(random: Random, lines: Lines) -> None:
    more = [b"# EOF", b"#", b"# HELP", b"# TYPE a", b"# HELP x \\", b"#HELP", b"\t", b" ", b"\r", b"# UNIT x seconds"]
    lines.insert(random.randrange(len(lines) + 1), random.choice(more))


MUTATIONS: tuple[Mutation, ...] = (
    _values, _values, _arithmetic, _arithmetic, _label_value, _label_name, _label_gone, _label_more, _gone, _twice, _order, _name,
    _type, _comment,
)  # fmt: skip
