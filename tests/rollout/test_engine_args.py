"""Names of engine arguments are checked against the installed vLLM, which is not imported."""

import pytest

from specrl.errors import UserError
from specrl.rollout.engine_args import check_engine_args


def test_what_vllm_declares_passes() -> None:
    check_engine_args({"max_num_seqs": 4, "enforce_eager": True, "kv_cache_memory_bytes": 1})
    check_engine_args({})


@pytest.mark.parametrize(
    ("name", "fix"),
    [("max_num_seq", "did you mean max_num_seqs"), ("self", "see vLLM's EngineArgs")],
)
def test_another_name_is_refused(name: str, fix: str) -> None:
    with pytest.raises(UserError, match=f"^rollout.engine_args.{name} is no engine arg.*; {fix}"):
        check_engine_args({"enforce_eager": True, name: 4})
