"""Questions of the arithmetic task solved step by step, as a supervised pass teaches it.

Every solution has one step a line and ends in `Answer: <answer>`, which the task's reward accepts.
"""

from collections.abc import Mapping
from decimal import localcontext
from typing import Any

from specrl.tasks import worked_dates, worked_numbers
from specrl.tasks.worked_expressions import EXACT_DIGITS, decimal_steps, hex_steps

# Part of the key of what is trained on solutions: raise it when their text changes.
SOLUTIONS = 1


def worked_solution(name: str, generator: Any, entry: Mapping[str, Any]) -> str:
    """Solution of a question of reasoning-gym's data set `name`, a function of its text."""
    answer = str(entry["answer"])
    if name == "power_function":
        answer = worked_numbers.three_figures(answer)
    with localcontext(prec=EXACT_DIGITS):
        return "\n".join([*_steps(name, generator, entry), f"Answer: {answer}"])


def _steps(name: str, generator: Any, entry: Mapping[str, Any]) -> list[str]:
    question, metadata = str(entry["question"]), entry["metadata"]
    match name:
        case "chain_sum" | "basic_arithmetic" | "products":
            return decimal_steps(metadata["expression"], whole=True)
        case "decimal_chain_sum":
            return decimal_steps(metadata["expression"], whole=False)
        case "decimal_arithmetic":
            expression = question.splitlines()[-1].removesuffix("= ?")
            return decimal_steps(expression, whole=False)
        case "bitwise_arithmetic":
            return hex_steps(metadata["problem"])
        case "calendar_arithmetic":
            return worked_dates.calendar_steps(metadata, question)
        case "time_intervals":
            return worked_dates.interval_steps(metadata)
        case "leg_counting":
            return worked_numbers.leg_steps(metadata, generator)
        case other:
            return _number_steps(other, metadata)


def _number_steps(name: str, metadata: Mapping[str, Any]) -> list[str]:
    return {
        "count_bits": worked_numbers.bit_steps,
        "dice": worked_numbers.dice_steps,
        "fraction_simplification": worked_numbers.fraction_steps,
        "gcd": worked_numbers.gcd_steps,
        "lcm": worked_numbers.lcm_steps,
        "number_format": worked_numbers.format_steps,
        "power_function": worked_numbers.power_steps,
        "prime_factorization": worked_numbers.prime_steps,
    }[name](metadata)
