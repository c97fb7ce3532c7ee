"""Arithmetic made on the fly by reasoning-gym: needs no data."""

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from specrl.config.task import ArithmeticConfig
from specrl.tasks.final_answer import final_number, has_mark, marked_answer, plain_number
from specrl.tasks.generators import Question, entry_of, make_generators, split_questions
from specrl.tasks.stream import shuffled_indices
from specrl.tasks.worked_solutions import worked_solution
from specrl.types import Prompt, Rollout

# Decimal("1e999999999") is cheap to make and ruinous to print, which some scorers do.
_HUGE_EXPONENT = re.compile(r"[eE][-+]?\d{3}")


class Arithmetic:
    """reasoning-gym's arithmetic generators and scorers.

    Training and validation questions come from one distribution, and which of the two a question
    is depends on its text alone (`generators.held_out`): no config of this task trains on what
    another one validates with.
    A reward is 1 when the scorer gives the response's final answer full marks, else 0: partial
    credit would pay for answers that merely contain the right one. Where the reference is a
    number the answer must be a single number too (`final_answer.final_number`).
    """

    def __init__(self, config: ArithmeticConfig, encode: Callable[[str], tuple[int, ...]]) -> None:
        self.name = config.name
        self._config = config
        self._encode = encode
        self._generators = make_generators(
            config.generators, config.difficulty, config.generator_args, config.seed
        )
        self._train, self._validation = split_questions(
            self._generators, config.train_size, config.validation_size
        )
        Random(f"{config.seed}/split").shuffle(self._validation)

    def train(self, cursor: int, num_prompts: int) -> list[Prompt]:
        indices = shuffled_indices(len(self._train), self._config.seed, cursor, num_prompts)
        return [self._prompt("train", i, self._train[i]) for i in indices]

    def validation(self, num_prompts: int) -> list[Prompt]:
        chosen = self._validation[:num_prompts]
        return [self._prompt("validation", i, question) for i, question in enumerate(chosen)]

    def rewards(self, rollouts: Sequence[Rollout]) -> list[float]:
        return [self._reward(rollout) for rollout in rollouts]

    def worked_solution(self, prompt: Prompt) -> str:
        """A step-by-step solution of one of this task's prompts, rewarded with 1."""
        name = str(prompt.reference["generator"])
        generator = self._generators[name]
        return worked_solution(
            name, generator, entry_of(generator, int(str(prompt.reference["index"])))
        )

    def close(self) -> None: ...

    def _prompt(self, split: str, index: int, question: Question) -> Prompt:
        text = "\n".join(filter(None, (question.text, self._config.instruction)))
        return Prompt(
            id=f"{self.name}/{split}/{index}",
            text=text,
            token_ids=self._encode(text),
            reference={
                "answer": question.answer,
                "generator": question.generator,
                "index": question.index,
            },
        )

    def _reward(self, rollout: Rollout) -> float:
        reference = rollout.prompt.reference
        answer = _candidate(
            rollout.text, str(reference["answer"]), cut=rollout.finish_reason == "length"
        )
        if answer is None:
            return 0.0
        generator = self._generators[str(reference["generator"])]
        return _full_marks(generator, answer, int(str(reference["index"])))


def _candidate(text: str, reference: str, cut: bool) -> str | None:
    """What the scorer sees: a number for a number, else the marked answer or the last line."""
    if plain_number(reference) is not None:
        return final_number(text, cut)
    if has_mark(text):
        answer = marked_answer(text, cut)
    else:
        lines = text.strip().splitlines()
        answer = lines[-1].strip() if lines and not cut else None
    return answer if answer is not None and _is_tame(answer, reference) else None


def _is_tame(answer: str, reference: str) -> bool:
    """False for answers no reference looks like: too long, other scripts, huge exponents."""
    short = len(answer) <= 2 * len(reference) + 16
    script = answer.isascii() or not reference.isascii()
    hexadecimal = answer.lower().lstrip("-").startswith("0x")  # 0x1e999 has no exponent
    return short and script and (hexadecimal or _HUGE_EXPONENT.search(answer) is None)


def _full_marks(generator: Any, answer: str, index: int) -> float:
    try:
        score = generator.score_answer(answer, entry_of(generator, index))
    except Exception:  # scorers parse what a model wrote; whatever they choke on is wrong
        return 0.0
    return 1.0 if score >= 1.0 else 0.0
