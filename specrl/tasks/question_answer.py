"""What the tasks with fixed questions share: training and validation files become prompts."""

import logging
from collections.abc import Callable, Sequence

from specrl.config.task import MathDataConfig
from specrl.errors import UserError
from specrl.tasks.records import Columns, Record, load_records, normalised
from specrl.tasks.stream import shuffled_indices
from specrl.types import Prompt

logger = logging.getLogger(__name__)

TEMPLATE_TOKENS = 256  # more than any chat template adds to a question
Encode = Callable[[str], tuple[int, ...]]
Reference = Callable[[Record], str]


class QuestionAnswer:
    """Prompts of two question files. Duplicates are gone, and training holds no validation
    question. `reference` turns a record's answer into what the reward compares with. Questions
    whose prompt is longer than `max_prompt_tokens` (None: no limit) are left out.
    """

    def __init__(
        self,
        config: MathDataConfig,
        encode: Encode,
        reference: Reference,
        max_prompt_tokens: int | None = None,
    ) -> None:
        self._config = config
        self._encode = encode
        columns = Columns(config.question_field, config.answer_field)
        validation = load_records(
            "task.validation_data", config.validation_data, config.validation_split, columns
        )
        train = load_records("task.train_data", config.train_data, config.train_split, columns)
        held_out = {normalised(record.question) for record in validation}
        train = [record for record in train if normalised(record.question) not in held_out]
        if not train:
            raise UserError(
                f"task.train_data={config.train_data} has no question that is not in "
                "task.validation_data too; give different files or splits"
            )
        self._train = self._short_enough(_with_references(train, reference), max_prompt_tokens)
        self._validation = self._short_enough(
            _with_references(validation, reference), max_prompt_tokens
        )

    def train(self, cursor: int, num_prompts: int) -> list[Prompt]:
        indices = shuffled_indices(len(self._train), self._config.seed, cursor, num_prompts)
        return [self._prompt("train", i, *self._train[i]) for i in indices]

    def validation(self, num_prompts: int) -> list[Prompt]:
        chosen = self._validation[:num_prompts]
        return [self._prompt("validation", i, *pair) for i, pair in enumerate(chosen)]

    def _short_enough(
        self, questions: list[tuple[str, str]], max_prompt_tokens: int | None
    ) -> list[tuple[str, str]]:
        if max_prompt_tokens is None:
            return questions
        kept = [pair for pair in questions if self._fits(pair[0], max_prompt_tokens)]
        if not kept:
            raise UserError(
                f"every prompt of {self._config.name} is longer than {max_prompt_tokens} tokens; "
                "raise model.max_model_len"
            )
        if len(kept) < len(questions):
            left_out = len(questions) - len(kept)
            logger.warning("%d prompts over %d tokens left out", left_out, max_prompt_tokens)
        return kept

    def _fits(self, question: str, max_prompt_tokens: int) -> bool:
        # A token holds at least one byte: most prompts need no encoding to see that they fit.
        bytes_at_most = len(question.encode()) + len(self._config.instruction.encode())
        if bytes_at_most + TEMPLATE_TOKENS <= max_prompt_tokens:
            return True
        return len(self._prompt("", 0, question, "").token_ids) <= max_prompt_tokens

    def _prompt(self, split: str, index: int, question: str, answer: str) -> Prompt:
        text = "\n".join(filter(None, (question, self._config.instruction)))
        return Prompt(
            id=f"{self._config.name}/{split}/{index}",
            text=text,
            token_ids=self._encode(text),
            reference={"answer": answer},
        )


def _with_references(records: Sequence[Record], reference: Reference) -> list[tuple[str, str]]:
    return [(record.question, reference(record)) for record in records]
