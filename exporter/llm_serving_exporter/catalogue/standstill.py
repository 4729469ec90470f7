"""When an engine stands still: what LLMServingStalled fires on and the limiter calls `stalled`, declared once for both.

Requests run or wait, and for longer than the longest prefill nothing that counts work moves; or for twice as long, while requests come
and go, or are given up.
"""

from __future__ import annotations

from collections.abc import Mapping

# for how long nothing moves: longer than the longest prefill (a million tokens at 10,000 tokens/s take 100 s). LLMServingStalled's range and
# the limiter's key may each be set otherwise
SPAN_SECONDS = 300.0
# what moves while an engine works: a counter's field, and of one by reason the reasons that are no progress
MOVES: Mapping[str, tuple[str, ...]] = {
    "prefill_tokens_total": (),
    "decode_tokens_total": (),
    "engine_steps_total": (),
    # a request that its client gives up is no progress
    "requests_finished_total": ("abort",),
}
# it has to say at once what runs, and one of these at once: tokens that are booked late do not excuse steps that are counted at once
SAYS_WHAT_RUNS = "requests_running"
SAYS_WHAT_IS_DONE = ("decode_tokens_total", "engine_steps_total")
# requests given up in the longer time, from which on it counts as evidence; one client may change its mind
GIVEN_UP_FROM = 3
# the longer time, in which requests may come and go, is so many times the usual one
LONGER = 2
# share of moments of the longer time at which requests have to be there; in the rules `Dialect.half`
HELD_SHARE = 0.5
