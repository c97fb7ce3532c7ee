"""Prompts of general chat, for a draft that is to know more than the task."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specrl.errors import UserError
from specrl.tasks.question_answer import Encode
from specrl.tasks.records import normalised
from specrl.tasks.rows import data_files, json_rows, parquet_rows
from specrl.types import Prompt

SHIPPED = Path(__file__).parent / "data" / "chat_prompts.jsonl"
KEY = "init.path"
EXPECTED = "a column prompt, instruction, messages or conversations"
TEXT_COLUMNS = ("prompt", "instruction", "question")
CHAT_COLUMNS = ("messages", "conversations", "conversation", "data")


def load_chat_prompts(
    source: str | None,
    revision: str | None,
    num_prompts: int,
    encode: Encode,
    max_prompt_tokens: int,
) -> list[Prompt]:
    """The first prompts of `source` (None: those that specrl ships), each text once.

    source: a local .parquet or .jsonl file or a hub data set, laid out as UltraChat, Magpie and
    ShareGPT are; of a chat its first user turn counts. Prompts above `max_prompt_tokens` are left
    out; there may be fewer than asked for. Raises `UserError` naming the file, the row or the key.
    """
    prompts: list[Prompt] = []
    seen: set[str] = set()
    for text in _texts(source, revision):
        if len(prompts) == num_prompts:
            break
        name = normalised(text)
        if name in seen:
            continue
        seen.add(name)
        token_ids = encode(text)
        if len(token_ids) <= max_prompt_tokens:
            prompt_id = f"chat/{hashlib.sha256(name.encode()).hexdigest()[:12]}"
            prompts.append(Prompt(prompt_id, text, token_ids, {}))
    if not prompts:
        raise UserError(
            f"{KEY}={source} has no prompt of at most {max_prompt_tokens} tokens; give a file with "
            f"{EXPECTED}, or leave {KEY} out for the prompts that specrl ships"
        )
    return prompts


def _texts(source: str | None, revision: str | None) -> Iterator[str]:
    paths = [SHIPPED] if source is None else data_files(KEY, source, "train", EXPECTED, revision)
    for path in paths:
        rows = parquet_rows(path, {}) if path.suffix == ".parquet" else json_rows(path)
        for place, row in rows:
            yield _text(place, row)


def _text(place: str, row: Mapping[str, Any]) -> str:
    for column in TEXT_COLUMNS:
        if isinstance(row.get(column), str) and row[column].strip():
            return str(row[column]).strip()
    for column in (*CHAT_COLUMNS, *TEXT_COLUMNS):
        text = _first_user_turn(row.get(column))
        if text:
            return text
    raise UserError(
        f"{place} has no prompt, only {', '.join(map(str, row))}; {KEY} needs {EXPECTED}"
    )


def _first_user_turn(turns: object) -> str:
    """Turns are texts (the user's first), or objects of role and content, or from and value."""
    if not isinstance(turns, Sequence) or isinstance(turns, str):
        return ""
    for turn in turns:
        if isinstance(turn, str):
            return turn.strip()
        if not isinstance(turn, Mapping):
            return ""
        if turn.get("role", turn.get("from")) in ("user", "human"):
            return str(turn.get("content", turn.get("value")) or "").strip()
    return ""
