"""How long a response may get."""

from specrl.errors import EngineError


def room_tokens(prompt_id: str, prompt_tokens: int, max_model_len: int) -> int:
    """Response tokens that fit behind the prompt. Raises `EngineError` when none does."""
    if prompt_tokens == 0:
        raise EngineError(f"prompt {prompt_id} is empty; give it at least one token")
    if prompt_tokens >= max_model_len:
        raise EngineError(
            f"prompt {prompt_id} has {prompt_tokens} tokens, which leaves no room for a response "
            f"in model.max_model_len={max_model_len}; raise it or shorten the prompt"
        )
    return max_model_len - prompt_tokens
