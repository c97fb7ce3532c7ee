"""Worked solutions: rewarded, true line by line, a function of the question."""

import re
from decimal import Decimal, localcontext

import numpy as np
import pytest

from specrl.config.task import ArithmeticConfig
from specrl.tasks.arithmetic import Arithmetic
from specrl.tasks.generators import arithmetic_names
from specrl.tasks.worked_expressions import decimal_steps, hex_steps
from specrl.types import Rollout

EQUATION = re.compile(r"(-?[\d.]+) ([-+*]) (-?[\d.]+) = (-?[\d.]+)(?![\d.]| [-+*/]|\()")


def task(name, difficulty, **sizes):
    values = {"train_size": 60, "validation_size": 10, **sizes}
    config = ArithmeticConfig(generators=[name], difficulty=difficulty, **values)
    return Arithmetic(config, lambda text: tuple(text.encode()))


def responses(made, prompts):
    return [
        Rollout(
            prompt=prompt,
            group=0,
            sample=0,
            token_ids=(1,),
            rollout_logprobs=np.zeros(1, np.float32),
            text=made.worked_solution(prompt),
            finish_reason="stop",
            versions=(0,),
            spec=None,
            latency_s=0.0,
        )
        for prompt in prompts
    ]


@pytest.mark.parametrize("difficulty", [1, 2, 3, 5])
@pytest.mark.parametrize("name", arithmetic_names())
def test_every_solution_gets_the_full_reward(name, difficulty):
    made = task(name, difficulty)
    rollouts = responses(made, [*made.train(0, 60), *made.validation(10)])
    wrong = [
        r.text for r, reward in zip(rollouts, made.rewards(rollouts), strict=True) if not reward
    ]
    assert wrong == []
    again = responses(task(name, difficulty), [r.prompt for r in rollouts])
    assert [r.text for r in again] == [r.text for r in rollouts]


@pytest.mark.parametrize("name", ["chain_sum", "basic_arithmetic", "products", "decimal_chain_sum"])
def test_every_step_is_true(name):
    made = task(name, 3, train_size=300)
    steps = [
        match.groups()
        for rollout in responses(made, made.train(0, 300))
        for match in EQUATION.finditer(rollout.text)
    ]
    assert len(steps) > 300
    with localcontext(prec=200):
        for a, sign, b, result in steps:
            a, b = Decimal(a), Decimal(b)
            assert Decimal(result) == {"+": a + b, "-": a - b, "*": a * b}[sign], (a, sign, b)


def test_a_sum_goes_place_by_place_from_left_to_right():
    assert decimal_steps("83 + 79 - 200", whole=True) == [
        "83 + 79: 83 + 70 = 153, 153 + 9 = 162",
        "162 - 200 = -(200 - 162): 200 - 100 = 100, 100 - 60 = 40, 40 - 2 = 38, so -38",
    ]


def test_signs_are_taken_out_first():
    assert decimal_steps("5 - -3", whole=True) == ["5 - -3 = 5 + 3 = 8"]
    assert decimal_steps("-5 - 3", whole=True) == ["-5 - 3 = -(5 + 3) = -8"]
    assert decimal_steps("-12 * 34", whole=True) == [
        "-12 * 34 = -(12 * 34): 12 * 30 = 360, 12 * 4 = 48, 360 + 48 = 408, so -408"
    ]


def test_precedence_and_brackets_decide_the_order():
    assert decimal_steps("2 + 3 * ( 4 - 1 )", whole=True) == [
        "4 - 1 = 3",
        "3 * 3 = 9",
        "2 + 9 = 11",
    ]
    assert decimal_steps("-7 / 2", whole=True) == ["-7 / 2: 2 * -4 = -8, -8 + 1 = -7, so -4"]


def test_decimals_keep_their_digits():
    assert decimal_steps("1.05 + 2.3", whole=False) == [
        "1.05 + 2.3: 1.05 + 2 = 3.05, 3.05 + 0.3 = 3.35"
    ]
    assert decimal_steps("3.10 - 3.10", whole=False)[-1].endswith("= 0")


def test_hexadecimal_operations_are_one_line_each():
    assert hex_steps("((0x10 + 0x3) << 0x2)") == ["0x10 + 0x3 = 0x13", "0x13 << 0x2 = 0x4c"]
