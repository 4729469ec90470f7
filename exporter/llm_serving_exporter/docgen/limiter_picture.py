"""docs/img/limiter.svg: the questions that the limiter asks, in the order of its table and with its thresholds."""

from __future__ import annotations

import re
from html import escape

from llm_serving_exporter.catalogue.standstill import SPAN_SECONDS as STALLED_AFTER_SECONDS
from llm_serving_exporter.derive.limiter import (
    BANDWIDTH_FROM,
    BANDWIDTH_OF_ATTENTION_BELOW,
    COMPUTE_FROM,
    DECODE_SLOWDOWN_FROM,
    DRAM_BELOW,
    STARVED_BELOW,
    __doc__,
)
from llm_serving_exporter.model.derived import Limiter

_ROW, _TOP, _WIDTH = 34, 34, 760
# left edge of the questions' boxes and of the states' boxes, and how wide each is
_QUESTION, _STATE = (8, 520), (590, 162)
_BOX = 26
_STYLE = (
    ".chart { font: 12px sans-serif } .ask { fill: #eef1f4; stroke: #aab2ba } .arrow { stroke: #808891; fill: none } "
    ".word { fill: #808891 } .text { fill: #1f2933 } .state { fill: #ffffff; font-weight: bold }"
)
# of the states' boxes: work goes well, something can be set, something is wrong or not known
_WELL, _SET, _WRONG, _QUIET = "#2f8f4e", "#b36b00", "#b3261e", "#66707a"
_COLOURS = {
    Limiter.STALLED: _WRONG,
    Limiter.PREFILL_INTERFERENCE: _SET,
    Limiter.POWER: _SET,
    Limiter.COMPUTE: _WELL,
    Limiter.KV_CAPACITY: _SET,
    Limiter.BATCH_LIMIT: _SET,
    Limiter.TRANSFER: _SET,
    Limiter.BLOCKED: _SET,
    Limiter.ATTENTION: _SET,
    Limiter.BANDWIDTH: _WELL,
    Limiter.OVERHEAD: _SET,
}


def list_questions() -> dict[Limiter, str]:
    """What is asked for each state, in no order; the last, `unknown`, is where nothing else holds."""
    slower = f"{DECODE_SLOWDOWN_FROM:g} times slower than alone"
    return {
        Limiter.STALLED: f"Requests are there and nothing moves for {STALLED_AFTER_SECONDS:g} s?",
        Limiter.STARVED: f"Busy below {_percent(STARVED_BELOW)} of the time, and nobody waits?",
        Limiter.PREFILL_INTERFERENCE: f"Much compute, mostly of prompts, and decode {slower}?",
        Limiter.POWER: f"A cap holds the clock down, and memory is below {_percent(DRAM_BELOW)} of its peak?",
        Limiter.COMPUTE: f"Compute at {_percent(COMPUTE_FROM)} of its peak or more, and scarcer than memory?",
        Limiter.KV_CAPACITY: "Requests wait, and the KV cache has no room for them?",
        Limiter.BATCH_LIMIT: "Requests wait, and the batch is full?",
        Limiter.TRANSFER: "Requests are held back until their KV has come?",
        Limiter.BLOCKED: "Requests are held back for another reason?",
        Limiter.ATTENTION: f"Sequences share a prefix, and memory is below {_percent(BANDWIDTH_OF_ATTENTION_BELOW)} of its peak?",
        Limiter.BANDWIDTH: f"Memory at {_percent(BANDWIDTH_FROM)} of its peak or more?",
        Limiter.OVERHEAD: "Are both shares of the peaks known?",
        Limiter.UNKNOWN: "Otherwise it is not known",
    }


def list_states() -> list[Limiter]:
    """States in the order of the limiter's own table; `unknown`, its first and its last row, at the end."""
    rows = [Limiter(name) for name in re.findall(r"^\| (\w+) \| (?!holds)", __doc__ or "", re.MULTILINE)]
    return [*(state for state in rows if state is not Limiter.UNKNOWN), Limiter.UNKNOWN]


def limiter_svg() -> str:
    """The picture as SVG: a question a row, to its right the state that a yes means."""
    states, questions = list_states(), list_questions()
    title = f"What limits a server: {len(states) - 1} questions in order; the first yes names the state"
    height = _TOP + _ROW * len(states)
    lines = [
        f'<svg class="chart" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" '
        f'aria-label="{escape(title)}"><style>{_STYLE}</style><title>{escape(title)}</title>',
        f'<rect x="0" y="0" width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text class="word" x="{_QUESTION[0]}" y="20">asked from top to bottom; the first yes holds</text>',
        f'<text class="word" x="{_STATE[0]}" y="20">state</text>',
    ]
    for place, state in enumerate(states):
        lines += _draw_row(_TOP + _ROW * place, state, questions[state], place == len(states) - 1)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _draw_row(top: int, state: Limiter, question: str, is_last: bool) -> list[str]:
    middle = top + _BOX // 2
    ask, ask_width = _QUESTION
    box, box_width = _STATE
    lines = [
        f'<rect class="ask" x="{ask}" y="{top}" width="{ask_width}" height="{_BOX}" rx="4"/>',
        f'<text class="text" x="{ask + 10}" y="{middle + 5}">{escape(question)}</text>',
        f'<path class="arrow" d="M{ask + ask_width} {middle} H{box}"/>',
        f'<rect x="{box}" y="{top}" width="{box_width}" height="{_BOX}" rx="4" fill="{_COLOURS.get(state, _QUIET)}"/>',
        f'<text class="state" x="{box + 10}" y="{middle + 5}">{state.value}</text>',
    ]
    if not is_last:
        lines += [
            f'<text class="word" x="{ask + ask_width + 25}" y="{middle - 4}">yes</text>',
            f'<path class="arrow" d="M{ask + 24} {top + _BOX} v{_ROW - _BOX}"/>',
        ]
    return lines


def _percent(share: float) -> str:
    return f"{100 * share:g} %"
