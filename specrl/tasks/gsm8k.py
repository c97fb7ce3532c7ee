"""GSM8K (arXiv:2110.14168): grade-school word problems, scored by the final number."""

from collections.abc import Sequence

from specrl.config.task import Gsm8kConfig
from specrl.errors import UserError
from specrl.tasks.final_answer import final_number, plain_number, same_number
from specrl.tasks.question_answer import Encode, QuestionAnswer
from specrl.tasks.records import Record
from specrl.types import Prompt, Rollout


class Gsm8k:
    """Reward 1 when the response's final number (`final_answer.final_number`) equals the number
    after `####` in the reference solution, else 0.
    """

    def __init__(
        self, config: Gsm8kConfig, encode: Encode, max_prompt_tokens: int | None = None
    ) -> None:
        self.name = config.name
        self._questions = QuestionAnswer(config, encode, _reference_number, max_prompt_tokens)

    def train(self, cursor: int, num_prompts: int) -> list[Prompt]:
        return self._questions.train(cursor, num_prompts)

    def validation(self, num_prompts: int) -> list[Prompt]:
        return self._questions.validation(num_prompts)

    def rewards(self, rollouts: Sequence[Rollout]) -> list[float]:
        return [_reward(rollout) for rollout in rollouts]

    def close(self) -> None: ...


def _reward(rollout: Rollout) -> float:
    number = final_number(rollout.text, cut=rollout.finish_reason == "length")
    reference = str(rollout.prompt.reference["answer"])
    return 1.0 if number is not None and same_number(number, reference) else 0.0


def _reference_number(record: Record) -> str:
    number = plain_number(record.answer.rpartition("####")[2])
    if number is None:
        raise UserError(
            f"{record.place}: the reference answer does not end in '#### <number>' and is not a "
            "number; set task.answer_field"
        )
    return number
