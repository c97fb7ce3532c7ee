"""Chat prompts: those shipped, and files laid out as the usual data sets are."""

import json
from pathlib import Path

import pytest

from specrl.errors import UserError
from specrl.tasks.chat_prompts import SHIPPED, load_chat_prompts
from specrl.types import Prompt


def encode(text: str) -> tuple[int, ...]:
    return tuple(text.encode())


def load(source: str | None, num_prompts: int = 100, longest: int = 1000) -> list[Prompt]:
    return load_chat_prompts(source, None, num_prompts, encode, longest)


def written(path: Path, *rows: object) -> str:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(path)


def test_the_shipped_prompts_are_many_different_and_of_many_kinds() -> None:
    rows = [json.loads(line) for line in SHIPPED.read_text().splitlines()]
    assert len(load(None, 10_000)) == len(rows) >= 400
    kinds = {row["kind"] for row in rows}
    assert len(kinds) >= 20
    assert len({row["kind"] for row in rows[:60]}) == len(kinds), "the first are no mixture"


def test_the_first_prompts_are_the_same_whatever_the_number() -> None:
    assert load(None, 30)[:10] == load(None, 10)
    assert len({prompt.id for prompt in load(None, 30)}) == 30


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "hi there", "messages": [{"role": "user", "content": "other"}]},
        {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi there"}]},
        {"instruction": "hi there", "response": "x"},
        {"conversations": [{"from": "human", "value": "hi there"}, {"from": "gpt", "value": "x"}]},
        {"id": "0", "data": ["hi there", "hello"]},
        {"prompt": [{"role": "user", "content": "hi there"}]},
    ],
)
def test_the_usual_layouts_give_the_first_user_turn(tmp_path: Path, row: object) -> None:
    (prompt,) = load(written(tmp_path / "chat.jsonl", row))
    assert prompt.text == "hi there"
    assert prompt.token_ids == encode("hi there")


def test_a_parquet_file_works_too(tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "chat.parquet"
    parquet.write_table(pyarrow.table({"prompt": ["one", "two"], "n": [1, 2]}), path)
    assert [prompt.text for prompt in load(str(path))] == ["one", "two"]


def test_repeated_and_long_prompts_are_left_out(tmp_path: Path) -> None:
    texts = ["short", "short ", "x" * 50, "other"]
    source = written(tmp_path / "chat.jsonl", *({"prompt": text} for text in texts))
    assert [prompt.text for prompt in load(source, longest=10)] == ["short", "other"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("not json\n", "line 1 is not JSON"),
        ('{"text": "x"}\n', "line 1 has no prompt, only text"),
        ("", "has no prompt of at most"),
        (json.dumps({"prompt": "x" * 2000}) + "\n", "has no prompt of at most 1000 tokens"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text(content)
    with pytest.raises(UserError, match=says):
        load(str(path))


def test_a_missing_file_names_the_key_and_the_columns(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"init\.path=.*prompt, instruction"):
        load(str(tmp_path / "nope.jsonl"))
