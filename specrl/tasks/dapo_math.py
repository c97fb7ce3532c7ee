"""DAPO-Math-17K for training (arXiv:2503.14476), AIME-2024 for validation, by math-verify."""

from collections.abc import Sequence

from specrl.config.task import DapoMathConfig
from specrl.tasks.final_answer import marked_answer, plain_number, same_number
from specrl.tasks.math_scorer import MathScorer
from specrl.tasks.question_answer import Encode, QuestionAnswer
from specrl.types import Prompt, Rollout


class DapoMath:
    """Reward 1 when the response's marked answer (`final_answer.marked_answer`) equals the
    reference, else 0; an answer without a mark scores 0. Two plain numbers are compared here;
    anything else goes to math-verify for at most `config.reward_timeout_s`.
    """

    def __init__(
        self, config: DapoMathConfig, encode: Encode, max_prompt_tokens: int | None = None
    ) -> None:
        self.name = config.name
        self._questions = QuestionAnswer(
            config, encode, lambda record: record.answer, max_prompt_tokens
        )
        self._scorer = MathScorer(config.reward_timeout_s)

    def train(self, cursor: int, num_prompts: int) -> list[Prompt]:
        return self._questions.train(cursor, num_prompts)

    def validation(self, num_prompts: int) -> list[Prompt]:
        return self._questions.validation(num_prompts)

    def rewards(self, rollouts: Sequence[Rollout]) -> list[float]:
        return [self._reward(rollout) for rollout in rollouts]

    def close(self) -> None:
        """Ends the scoring process."""
        self._scorer.close()

    def _reward(self, rollout: Rollout) -> float:
        answer = marked_answer(rollout.text, cut=rollout.finish_reason == "length")
        if answer is None:
            return 0.0
        reference = str(rollout.prompt.reference["answer"])
        ours, theirs = plain_number(reference), plain_number(answer)
        if ours is not None and theirs is not None:
            return float(same_number(ours, theirs))
        return float(self._scorer.is_right(reference, answer))
