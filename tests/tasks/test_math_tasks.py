"""DAPO-Math and GSM8K rewards, and the scoring process under attack."""

import json

import numpy as np
import pytest

from specrl.config.task import DapoMathConfig, Gsm8kConfig
from specrl.errors import RunError, UserError
from specrl.tasks import math_scorer
from specrl.tasks.dapo_math import DapoMath
from specrl.tasks.gsm8k import Gsm8k
from specrl.tasks.math_scorer import MathScorer
from specrl.types import Rollout

TIMEOUT_S = 2.0


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def math_files(folder, answers, held_out=("what is 99?",)):
    train = [{"prompt": f"what is {a}?", "answer": a} for a in answers]
    validation = [{"prompt": q, "answer": "99"} for q in held_out]
    return {
        "train_data": write_lines(folder / "train.jsonl", train),
        "validation_data": write_lines(folder / "validation.jsonl", validation),
    }


def encode(text):
    return tuple(text.encode())


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


@pytest.fixture(scope="module")
def dapo(tmp_path_factory):
    files = math_files(tmp_path_factory.mktemp("dapo"), ["34"])
    task = DapoMath(DapoMathConfig(**files, reward_timeout_s=TIMEOUT_S), encode)
    yield task
    task.close()


def test_training_holds_no_validation_question(tmp_path):
    files = math_files(tmp_path, ["1", "2", "3"], held_out=("what is 2?", "what is 9?"))
    task = DapoMath(DapoMathConfig(**files), encode)
    assert {p.text for p in task.train(0, 10)} == {"what is 1?", "what is 3?"}
    assert [p.text for p in task.validation(10)] == ["what is 2?", "what is 9?"]
    assert task.train(0, 8)[3:] == task.train(3, 5)


def test_prompts_that_leave_no_room_are_left_out_and_none_left_is_refused(tmp_path):
    files = math_files(tmp_path, ["1", "long " * 60, "3"], held_out=("what is 9?",))
    task = DapoMath(DapoMathConfig(**files), encode, max_prompt_tokens=100)
    assert {p.text for p in task.train(0, 10)} == {"what is 1?", "what is 3?"}
    with pytest.raises(UserError, match=r"raise model\.max_model_len"):
        DapoMath(DapoMathConfig(**files), encode, max_prompt_tokens=2)


def test_training_data_that_is_all_validation_is_refused(tmp_path):
    files = math_files(tmp_path, ["1"], held_out=("what is 1?",))
    with pytest.raises(UserError, match="no question that is not in"):
        DapoMath(DapoMathConfig(**files), encode)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("Answer: 34", 1.0),
        ("Answer: $34.0$", 1.0),
        ("so \\boxed{34}", 1.0),
        ("Answer: $17 \\cdot 2$", 1.0),
        ("Answer: $x = 34$", 1.0),
        ("Answer: 35", 0.0),
        ("it is 34", 0.0),
        ("Answer: 33 or 34", 0.0),
        ("Answer: 34 or 33", 0.0),
        ("Answer: 34, 33", 0.0),
        ("Answer: $\\{33, 34\\}$", 0.0),
        ("Answer: $34 \\text{ or } 33$", 0.0),
        ("Answer: $\\sum_{k=1}^{34} 1$", 0.0),
        ("", 0.0),
        ("Answer:", 0.0),
        ("\\boxed{34", 0.0),
        ("\\boxed{" * 10_000, 0.0),
        ("\u0663\u0664", 0.0),
        ("Answer: " + "34" * 500_000, 0.0),
    ],
)
def test_dapo_math_rewards(dapo, text, value):
    [prompt] = dapo.train(0, 1)
    assert dapo.rewards([rollout(prompt, text)]) == [value]


# The worker kills itself or is killed; a scorer without its time limit hits this one.
@pytest.mark.slow
@pytest.mark.timeout(120)
def test_hostile_latex_scores_zero_and_the_scorer_lives_on(dapo):
    [prompt] = dapo.train(0, 1)
    hostile = [
        "$10^{10^{10}}$",
        "$3^{2^{100000000000}}$",
        "$((((9!)!)!)!)$",
        "$" + "9" * 240 + "!$",
        "(" * 250,
        "\\frac" * 50,
        "$" + "{" * 100 + "}" * 100 + "$",
        "$\\sqrt" * 30 + "$",
        "\x00\\",
    ]
    texts = [f"Answer: {answer}" for answer in hostile]
    right = "Answer: $\\frac{68}{2}$"
    rewards = dapo.rewards([rollout(prompt, text) for text in [*texts, right]])
    assert rewards == [0.0] * len(hostile) + [1.0]


@pytest.mark.slow
def test_a_comparison_that_is_too_slow_kills_the_process():
    with MathScorer(TIMEOUT_S) as scorer:
        assert scorer.is_right("\\frac{1}{2}", "\\frac{2}{4}")
        first = scorer._process
        assert not scorer.is_right("1", "3^{2^{100000000000}}")
        assert first.poll() is not None
        assert scorer.is_right("\\frac{1}{2}", "0.5")
        assert scorer._process is not first


def test_a_scorer_killed_from_outside_starts_again():
    with MathScorer(TIMEOUT_S) as scorer:
        assert scorer.is_right("\\frac{1}{2}", "0.5")
        scorer._process.kill()
        scorer._process.wait()
        assert scorer.is_right("\\frac{1}{2}", "0.5")


def test_a_scorer_that_cannot_start_says_how_to_see_why(monkeypatch):
    monkeypatch.setattr(math_scorer, "WORKER", "specrl.tasks.no_such_worker")
    with pytest.raises(RunError, match=r"python -m specrl.tasks.no_such_worker"):
        MathScorer(TIMEOUT_S).is_right("1", "x")


def gsm8k_task(folder, answer="a little sum\n#### 1,234"):
    rows = [{"question": "how many?", "answer": answer}]
    held_out = [{"question": "how few?", "answer": "#### 5"}]
    return Gsm8k(
        Gsm8kConfig(
            train_data=write_lines(folder / "train.jsonl", rows),
            validation_data=write_lines(folder / "test.jsonl", held_out),
            question_field="question",
        ),
        encode,
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("#### 1234", 1.0),
        ("That makes $1,234.00.", 1.0),
        ("Answer: 1234 apples", 1.0),
        ("Answer: 1233", 0.0),
        ("Answer: 1234 or 1235", 0.0),
        ("", 0.0),
        ("9" * 1_000_000, 0.0),
    ],
)
def test_gsm8k_rewards_the_final_number(tmp_path, text, value):
    task = gsm8k_task(tmp_path)
    [prompt] = task.train(0, 1)
    assert task.rewards([rollout(prompt, text)]) == [value]


def test_a_gsm8k_solution_without_a_number_names_the_row(tmp_path):
    with pytest.raises(UserError, match=r"train.jsonl line 1: .*#### <number>"):
        gsm8k_task(tmp_path, answer="no idea")
