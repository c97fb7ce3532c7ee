"""How a question becomes the token ids that the policy continues."""

from pathlib import Path
from typing import Any

from specrl.errors import UserError


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of a local model folder; never asks the hub.

    Raises `UserError` when its files cannot be read.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # tokenizers raises bare Exceptions for damaged files
        reason = (str(error) or type(error).__name__).splitlines()[0][:160]
        raise UserError(
            f"the tokenizer in {folder} cannot be read ({reason}); restore it"
        ) from error


class PromptFormat:
    """style chat: one user turn in the model's chat template, ready for the assistant's answer
    (RL-Think). style raw: the text itself to be continued, with the BOS token where the tokenizer
    adds one (RL-Zero).
    """

    def __init__(self, tokenizer: Any, style: str) -> None:
        if style == "chat" and not tokenizer.chat_template:
            raise UserError(
                "task.prompt_style=chat: this model's tokenizer has no chat template; use "
                "task.prompt_style=raw or an instruction-tuned model"
            )
        self._tokenizer = tokenizer
        self._style = style

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of the prompt for `text` (a question with its instruction)."""
        if self._style == "raw":
            return tuple(self._tokenizer.encode(text))
        rendered = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": text}], add_generation_prompt=True, tokenize=False
        )
        return tuple(self._tokenizer.encode(rendered, add_special_tokens=False))
