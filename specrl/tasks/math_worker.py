"""The process behind `math_scorer`: one JSON request a line in, "1" or "0" a line out."""

import json
import logging
import os
import resource
import signal
import sys
from typing import Any

# Enough for sympy; ends 10^10^10 with a MemoryError instead of the machine's memory.
MEMORY_BYTES = 4 << 30


def verify_answer(reference: str, answer: str) -> bool:
    """True when math-verify takes `answer` for equal to `reference`, both in LaTeX.

    Sums, integrals and the like are no final answer to a question about a number: they would
    let a response restate the question.
    """
    from math_verify import parse, verify

    gold = parse(_boxed(reference), parsing_timeout=None)
    found = parse(_boxed(answer), parsing_timeout=None)
    if not gold or not found or _is_unfinished(found[0]) > _is_unfinished(gold[0]):
        return False
    return bool(verify(gold, found, timeout_seconds=None))


def _boxed(answer: str) -> str:
    return "\\boxed{" + answer + "}"


def _is_unfinished(expression: Any) -> bool:
    from sympy import Basic, Derivative, Integral, Limit, Product, Sum

    unfinished = (Derivative, Integral, Limit, Product, Sum)
    return isinstance(expression, Basic) and expression.has(*unfinished)


def main() -> None:
    """Serves until stdin closes. A comparison that outlives its parent's patience is killed by
    the kernel's alarm, so that no process is left behind by a parent that died.
    """
    timeout_s = float(sys.argv[1])
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # libraries may print; replies stay clean
    logging.disable(logging.CRITICAL)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    verify_answer("\\frac{1}{2}", "0.5")
    replies.write("ready\n")
    for line in sys.stdin:
        request = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, 2 * timeout_s + 1)
        try:
            right = verify_answer(request["reference"], request["answer"])
        except (Exception, RecursionError, MemoryError):  # whatever the answer broke, it is wrong
            right = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write("1\n" if right else "0\n")


if __name__ == "__main__":
    main()
