"""The speculation modes that keep the policy's sampling distribution, by name."""

from collections.abc import Mapping
from typing import Any

from specrl.errors import UserError

EXACT_METHODS = ("ngram", "draft_model", "eagle3")
BLOCK = "block"
_EXACT_VALUES: Mapping[str, tuple[object, ...]] = {
    # Token by token (arXiv:2211.17192) or jointly (arXiv:2403.10444); "synthetic" is neither.
    "rejection_sample_method": ("standard", BLOCK),
    "draft_sample_method": ("greedy", "probabilistic"),
    "use_heterogeneous_vocab": (False,),
}


def check_exact(speculative_config: Mapping[str, Any] | None) -> None:
    """Raises `UserError` naming the first setting that is not known to be lossless."""
    if speculative_config is None:
        return
    method = speculative_config.get("method")
    if method not in EXACT_METHODS:
        raise UserError(
            f"speculative method {method!r} is not known to be exact; "
            f"use one of {', '.join(EXACT_METHODS)}"
        )
    for key, allowed in _EXACT_VALUES.items():
        value = speculative_config.get(key, allowed[0])
        if value not in allowed:
            raise UserError(
                f"speculative_config.{key}={value!r} is not known to be exact; "
                f"use one of {', '.join(map(repr, allowed))}"
            )
