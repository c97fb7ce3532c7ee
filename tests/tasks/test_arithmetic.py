"""Arithmetic: disjoint splits, the stream of prompts, strict rewards."""

import json
import re
from decimal import getcontext, localcontext

import numpy as np
import pytest

from specrl.config.task import ArithmeticConfig
from specrl.errors import UserError
from specrl.tasks.arithmetic import Arithmetic
from specrl.tasks.generators import arithmetic_names, held_out, split_questions
from specrl.types import Rollout

SMALL = {"train_size": 60, "validation_size": 20}


def task(**values):
    return Arithmetic(ArithmeticConfig(**{**SMALL, **values}), lambda text: tuple(text.encode()))


def rollout(prompt, text, finish_reason="stop"):
    return Rollout(
        prompt=prompt,
        group=0,
        sample=0,
        token_ids=(1,),
        rollout_logprobs=np.zeros(1, np.float32),
        text=text,
        finish_reason=finish_reason,
        versions=(0,),
        spec=None,
        latency_s=0.0,
    )


def reward(made, prompt, text, finish_reason="stop"):
    [value] = made.rewards([rollout(prompt, text, finish_reason)])
    return value


def test_training_and_validation_share_no_question():
    made = task(train_size=2000, validation_size=300)
    train = {p.text for p in made.train(0, 2000)}
    validation = {p.text for p in made.validation(1000)}
    assert len(train) == 2000
    assert len(validation) == 300
    assert not train & validation


def test_resuming_at_a_cursor_gives_the_same_prompts():
    whole = task().train(0, 150)
    assert task().train(70, 80) == whole[70:]
    assert [p.id for p in whole[:60]] != [p.id for p in whole[60:120]]
    assert {p.id for p in whole[:60]} == {p.id for p in whole[60:120]}


def test_the_seed_decides_questions_and_order():
    assert task(seed=1).train(0, 20) == task(seed=1).train(0, 20)
    assert task(seed=1).train(0, 20) != task(seed=2).train(0, 20)


def test_difficulty_makes_longer_sums():
    easy = task(difficulty=1).validation(20)
    hard = task(difficulty=4).validation(20)
    assert sum(len(p.text) for p in hard) > sum(len(p.text) for p in easy) + 100


def test_generators_are_mixed_evenly():
    prompts = task(generators=["chain_sum", "products"]).train(0, 60)
    prompts += task(generators=["chain_sum", "products"]).validation(20)
    names = [p.reference["generator"] for p in prompts]
    assert names.count("chain_sum") == names.count("products") == 40


def test_the_instruction_follows_the_question():
    [prompt] = task(instruction="Reply with a number.").validation(1)
    assert prompt.text.endswith("=\nReply with a number.")
    assert bytes(prompt.token_ids).decode() == prompt.text


def test_right_and_wrong_answers():
    made = task()
    [prompt] = made.validation(1)
    right = str(prompt.reference["answer"])
    wrong = str(int(right) + 1)
    assert reward(made, prompt, f"It is {right}.") == 1.0
    assert reward(made, prompt, f"Answer: {right}") == 1.0
    assert reward(made, prompt, f"\\boxed{{{right}.0}}") == 1.0
    assert reward(made, prompt, f"It is {wrong}.") == 0.0
    assert reward(made, prompt, f"Answer: {right} or {wrong}") == 0.0
    assert reward(made, prompt, f"{right}, {wrong}") == 0.0
    assert reward(made, prompt, f"Answer: {wrong}\n({right})") == 0.0


def test_an_answer_at_the_length_limit_may_be_cut_and_does_not_count():
    made = task()
    [prompt] = made.validation(1)
    assert reward(made, prompt, f"It is {prompt.reference['answer']}", "length") == 0.0


def test_every_generator_rewards_its_own_reference_answer():
    for name in arithmetic_names():
        made = task(generators=[name], train_size=5, validation_size=5)
        for prompt in made.validation(5):
            answer = str(prompt.reference["answer"])
            assert reward(made, prompt, f"Answer: {answer}\n") == 1.0, (name, answer)
            assert reward(made, prompt, "Answer: 123456789123\n") == 0.0, (name, answer)


@pytest.mark.timeout(60)
def test_malformed_and_hostile_answers_score_zero():
    hostile = [
        "",
        " ",
        "no",
        "\\boxed{" * 10_000,
        "\\boxed{9e999999999}",
        "Answer: 10^10^10",
        "Answer: nan",
        "Answer: inf",
        "\uff17",
        "\x00",
        "7" * 1_000_000,
        "Answer: " + "(" * 200,
    ]
    for name in ("chain_sum", "power_function", "decimal_arithmetic", "bitwise_arithmetic"):
        made = task(generators=[name], train_size=5, validation_size=2)
        [prompt] = made.validation(1)
        assert made.rewards([rollout(prompt, text) for text in hostile]) == [0.0] * len(hostile)


def test_more_questions_than_there_are_is_one_line():
    dull = [{"question": f"1 + {n % 8}", "answer": str(1 + n % 8)} for n in range(500)]
    kept = sum(not held_out(f"1 + {n}") for n in range(8))
    assert 0 < kept < 8
    train, validation = split_questions({"dull": dull}, kept, 8 - kept)
    assert len({question.text for question in train + validation}) == 8
    with pytest.raises(UserError, match=rf"task.train_size.*only {kept} and .*raise task.diff"):
        split_questions({"dull": dull}, kept + 1, 1)


def test_no_config_trains_on_what_another_validates_with():
    trained = {p.text for p in task(seed=1, train_size=3000).train(0, 3000)}
    validated = {p.text for p in task(seed=2, validation_size=500).validation(500)}
    assert len(validated) == 500
    assert not trained & validated
    assert {held_out(text) for text in validated} == {True}


def test_answers_do_not_depend_on_what_other_generators_did_to_the_decimal_precision():
    alone = task(generators=["decimal_chain_sum"], difficulty=3).validation(10)
    task(generators=["decimal_arithmetic"])
    assert getcontext().prec == 28
    with localcontext(prec=5):
        again = task(generators=["decimal_chain_sum"], difficulty=3).validation(10)
    assert again == alone


def test_a_hexadecimal_answer_may_look_like_a_huge_exponent():
    made = task(generators=["bitwise_arithmetic"], train_size=400)
    odd = [p for p in made.train(0, 400) if re.search(r"e\d{3}", str(p.reference["answer"]))]
    assert odd
    assert [reward(made, p, f"Answer: {p.reference['answer']}\n") for p in odd] == [1.0] * len(odd)


def test_generator_args_override_difficulty_and_are_checked():
    prompts = task(generator_args={"max_terms": 2, "min_digits": 2}).validation(20)
    assert all(len(re.findall(r"\b\d\d\b", p.text)) == 2 for p in prompts)
    with pytest.raises(UserError, match=r"generator_args.terms is not known to chain_sum; use"):
        task(generator_args={"terms": 2})
    with pytest.raises(UserError, match=r"max_terms must be >= min_terms"):
        task(generator_args={"max_terms": 1})


def test_unknown_generators_are_named_with_the_known_ones():
    with pytest.raises(UserError, match=r"chain_sums is not known.*chain_sum"):
        task(generators=["chain_sums"])
    with pytest.raises(UserError, match="empty"):
        task(generators=[])


def test_prompts_survive_json():
    [prompt] = task().validation(1)
    assert json.loads(json.dumps(prompt.reference)) == prompt.reference
