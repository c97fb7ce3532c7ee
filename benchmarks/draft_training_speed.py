"""Seconds of `Eagle3Trainer.fit` against a bare forward + backward of the same matrix products.

A draft of SmolLM2's size on cached hidden states; both sides in turn, medians over rounds after
one of warm-up. Needs a quiet machine.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from result import machine, publish

from specrl.algo.nucleus import Nucleus
from specrl.config.compose import load
from specrl.config.drafter import Eagle3Config
from specrl.drafter.eagle3 import NUM_AUX_LAYERS, DraftShape
from specrl.drafter.eagle3_folder import fresh_folder, read_folder
from specrl.drafter.training import Eagle3Trainer
from specrl.hidden_states import HiddenStates
from specrl.models.prepare import prepare_model

AUX_LAYERS, DRAFT_VOCAB = (2, 15, 27), 4096
ROUNDS, UPDATES, PROMPT, RESPONSE = 9, 32, 64, 128
SAMPLES = 2  # of an update: with the default tokens_per_update two such responses
ROWS, SLOTS, TARGETS = SAMPLES * RESPONSE, SAMPLES * (PROMPT - 1), SAMPLES * (RESPONSE - 1)
# Rows m, inputs n, outputs k, p products (output, weight's gradient, input's): 2 m n k p FLOPs.
Product = tuple[int, int, int, int]


def products(shape: DraftShape, steps: int) -> list[Product]:
    """What an update cannot do without: all but attention scores, norms, loss and optimizer."""
    hidden, query, key = shape.hidden, shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    sizes = [(2 * hidden, query), (2 * hidden, key), (2 * hidden, key), (query, hidden)]
    sizes += [(hidden, shape.intermediate)] * 2 + [(shape.intermediate, hidden)]
    step = [(ROWS, *size, 3) for size in sizes] + [(TARGETS, hidden, shape.draft_vocab, 3)]
    feature = (ROWS + SLOTS, NUM_AUX_LAYERS * hidden, hidden, 2)
    teacher = (TARGETS, hidden, shape.draft_vocab, 1)
    return [feature, teacher, *[(SLOTS, 2 * hidden, key, 3)] * 2, *step * steps]


def bare(sizes: list[Product]) -> Callable[[], None]:
    """The products of all updates in bf16, into buffers that are there already."""
    jobs: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
    for rows, inputs, outputs, count in sizes:
        x, y = torch.randn(rows, inputs).bfloat16(), torch.randn(rows, outputs).bfloat16()
        w = torch.randn(outputs, inputs).bfloat16()
        jobs += [(x, w.t(), y.clone()), (y.t(), x, w.clone()), (y, w, x.clone())][:count]

    def run() -> None:
        for left, right, out in jobs * UPDATES:
            torch.mm(left, right, out=out)

    return run


def hidden_states(shape: DraftShape) -> HiddenStates:
    """Random ones in the learner's dtype, a prompt for each response."""
    count, length = UPDATES * SAMPLES, PROMPT + RESPONSE
    final_RH = torch.randn(count * RESPONSE, shape.hidden).bfloat16()
    head_DH = torch.randn(shape.draft_vocab, shape.hidden).bfloat16() / 8
    log_sum_R = (final_RH @ head_DH.t()).float().logsumexp(1)
    return HiddenStates(
        token_ids_T=torch.randint(0, shape.draft_vocab, (count * length,)),
        embeds_TH=torch.randn(count * length, shape.hidden).bfloat16(),
        aux_TAH=torch.randn(count * length, NUM_AUX_LAYERS, shape.hidden).bfloat16(),
        rows=torch.arange(count * length).view(count, length).unbind(),
        prompt_lengths=(PROMPT,) * count,
        final_RH=final_RH,
        nucleus=Nucleus(torch.full_like(log_sum_R, -torch.inf), log_sum_R),
        slices=tuple(slice(n * RESPONSE, (n + 1) * RESPONSE) for n in range(count)),
        head_DH=head_DH,
        temperature=1.0,
    )


def measure(folder: Path) -> dict[str, object]:
    """Medians in seconds of `UPDATES` optimizer steps, and their ratio."""
    policy, config = prepare_model(load(["model=smollm2_135m"]).model), Eagle3Config()
    fresh_folder(policy, range(DRAFT_VOCAB), AUX_LAYERS, seed=0, dtype="float32", folder=folder)
    trainer, (shape, _) = Eagle3Trainer(folder, config), read_folder(folder)
    sizes, states = products(shape, config.training.ttt_steps), hidden_states(shape)
    run_bare, seconds = bare(sizes), list[tuple[float, float]]()
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        trainer.fit([states], learning_rate=1e-5)
        middle = time.perf_counter()
        run_bare()
        seconds.append((middle - began, time.perf_counter() - middle))
    assert trainer.fit([states], learning_rate=0.0)["updates"] == UPDATES
    fit_s, bare_s = (statistics.median(side) for side in zip(*seconds[1:], strict=True))
    flops = UPDATES * sum(2 * m * n * k * p for m, n, k, p in sizes)
    return {
        "ratio": round(fit_s / bare_s, 2),
        "ratios": [round(fit / plain, 2) for fit, plain in seconds[1:]],
        "fit_s": round(fit_s, 3),
        "bare_s": round(bare_s, 3),
        "gflop": round(flops / 1e9, 1),
        "bare_tflop_per_s": round(flops / bare_s / 1e12, 3),
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__).parse_args()
    before, threads = machine(), torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        measured = {"threads": threads, **measure(Path(folder))}
    publish(measured, before, "specrl", f"draft_training_speed_{threads}cores")


if __name__ == "__main__":
    main()
