"""What the tasks with fixed questions share: training and validation files become prompts."""

from collections.abc import Callable, Sequence

from specrl.config.task import MathDataConfig
from specrl.errors import UserError
from specrl.tasks.records import Columns, Record, load_records, normalised
from specrl.tasks.stream import shuffled_indices
from specrl.types import Prompt

Encode = Callable[[str], tuple[int, ...]]
Reference = Callable[[Record], str]


class QuestionAnswer:
    """Prompts of two question files. Duplicates are gone, and training holds no validation
    question. `reference` turns a record's answer into what the reward compares with.
    """

    def __init__(self, config: MathDataConfig, encode: Encode, reference: Reference) -> None:
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
        self._train = _with_references(train, reference)
        self._validation = _with_references(validation, reference)

    def train(self, cursor: int, num_prompts: int) -> list[Prompt]:
        indices = shuffled_indices(len(self._train), self._config.seed, cursor, num_prompts)
        return [self._prompt("train", i, *self._train[i]) for i in indices]

    def validation(self, num_prompts: int) -> list[Prompt]:
        chosen = self._validation[:num_prompts]
        return [self._prompt("validation", i, *pair) for i, pair in enumerate(chosen)]

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
