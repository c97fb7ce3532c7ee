"""Which arguments the engine knows, read from vLLM's source: importing it takes ten seconds."""

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from specrl.config.suggestions import near
from specrl.errors import UserError

DECLARING = {"engine/arg_utils.py": "EngineArgs", "entrypoints/llm.py": "LLM"}
"""File and class of vLLM, of which the fields and the parameters of `__init__` are arguments."""
PACE = frozenset(
    (
        "block_size",
        "compilation_config",
        "enable_chunked_prefill",
        "enable_prefix_caching",
        "enforce_eager",
        "gpu_memory_utilization",
        "kv_cache_memory_bytes",
        "max_num_batched_tokens",
        "max_num_seqs",
        "tensor_parallel_size",
    )
)
"""How fast responses come and in which batches, not which distribution they are drawn from."""


def check_engine_args(given: Mapping[str, Any]) -> None:
    """Raises `UserError` for a name that is no engine argument; passes where vLLM is not found."""
    known = _known() if given else frozenset()
    for name in given:
        if known and name not in known:
            meant = near(name, known)
            hint = f"did you mean {meant}?" if meant else "see vLLM's EngineArgs for its name"
            raise UserError(f"rollout.engine_args.{name} is no engine argument of vLLM; {hint}")


def that_change_responses(given: Mapping[str, Any]) -> dict[str, Any]:
    """What remains of engine arguments without those of `PACE`."""
    return {name: value for name, value in given.items() if name not in PACE}


@cache
def _known() -> frozenset[str]:
    spec = find_spec("vllm")
    roots = list(spec.submodule_search_locations or ()) if spec else []
    found: set[str] = set()
    for name, kind in DECLARING.items():
        path = Path(roots[0]) / name if roots else Path(name)
        if not path.is_file():
            return frozenset()
        found |= {*_declared(path.read_text(encoding="utf-8"), kind)}
    return frozenset(found - {"self"})


def _declared(source: str, kind: str) -> Iterator[str]:
    tree = ast.parse(source)
    (body,) = (n.body for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind)
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
        elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
            yield from (argument.arg for argument in (*node.args.args, *node.args.kwonlyargs))
