"""Training of the draft: alignment with the engine, gradients, acceptance, state."""

import numpy as np
import pytest
import torch
from draft_toys import (
    DRAFT_VOCAB,
    RAGGED,
    config,
    draft_folder,
    engine_probabilities,
    hidden_states,
    shape,
)

from specrl.algo.replay import expected_counts
from specrl.config.drafter import DRAFT_LOSSES
from specrl.drafter.eagle3_folder import read_facts, read_folder
from specrl.drafter.training import Eagle3Trainer
from specrl.errors import NonFiniteError, UserError


def trainer_of(folder, seed=0, sampling="probabilistic", **training):
    return Eagle3Trainer(draft_folder(folder, seed), config(sampling, **training))


def reference(trainer, states, steps, name="soft_ce", decay=0.8, facts=None):
    """Loss per draft and kept [R, S] of each sample by the slow engine; fp64, differentiable."""
    weights = {
        key: value.double().requires_grad_(value.is_floating_point())
        for key, value in trainer.tensors().items()
    }
    temperature = states.temperature
    teacher = (states.final_RH.double() @ states.head_DH.double().t()) / temperature
    p_RD = (teacher - states.nucleus.log_sum_C.double()[:, None]).exp()
    p_RD = torch.where(teacher < states.nucleus.cutoff_C[:, None], 0.0, p_RD)
    loss, slots, kept = 0.0, 0, []
    for number, span in enumerate(states.slices):
        length = span.stop - span.start
        kept.append(np.zeros((length, steps)))
        slots += length - 1
        drafts = engine_probabilities(weights, facts or shape(), states, number, steps)
        for t, step, q in drafts:
            row = span.start + t + 1 + step
            token = int(states.token_ids_T[states.rows[number][-length:][t + 1 + step]])
            loss = loss + decay**step * _loss(name, p_RD[row], q, token)
            if token % 2 == 0 and token // 2 < DRAFT_VOCAB:
                ratio = q[token // 2] / p_RD[row, token // 2].clamp(min=1e-38)
                kept[-1][t, step] = min(1.0, float(ratio.detach()))
    total = sum(decay**step for step in range(steps))
    return loss / total / slots, kept, weights


def _loss(name, p, q, token):
    if name == "soft_ce":
        return -(p * q.log()).sum()
    if name == "tv":
        return 1 - torch.minimum(p, q).sum()
    known = token % 2 == 0 and token // 2 < DRAFT_VOCAB
    return -q[token // 2].log() if known else torch.zeros(())


@pytest.mark.parametrize("norm_before_residual", [False, True])
def test_replay_is_what_the_engines_cache_would_give(tmp_path, norm_before_residual):
    folder = draft_folder(tmp_path, norm_before_residual=norm_before_residual)
    trainer = Eagle3Trainer(folder, config(ttt_steps=2))
    states = hidden_states()
    facts = shape(norm_before_residual=norm_before_residual)
    _, kept, _ = reference(trainer, states, 5, facts=facts)
    replayed = trainer.replay([states], 5)
    assert [part.shape for part in replayed] == [(length, 5) for _, _, length in RAGGED]
    for got, expected in zip(replayed, kept, strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5)
    assert max(part[:, 1:].max() for part in kept) > 0.05


@pytest.mark.parametrize("name", DRAFT_LOSSES)
def test_loss_and_gradients_are_those_of_the_engines_drafts(tmp_path, name):
    trainer = trainer_of(tmp_path, loss=name, ttt_steps=3, tokens_per_update=10**6)
    states = hidden_states()
    loss, _, weights = reference(trainer, states, 3, name)
    loss.backward()
    metrics = trainer.fit([states], learning_rate=0.0)
    assert metrics["loss"] / metrics["slots"] == pytest.approx(loss.item(), rel=1e-5)
    for key, parameter in trainer._draft.named_parameters():
        torch.testing.assert_close(
            parameter.grad.double(), weights[key].grad, rtol=1e-4, atol=1e-6, msg=key
        )


def test_the_teacher_of_a_fit_is_the_nucleus(tmp_path):
    states = hidden_states(top_p=0.6)
    whole = hidden_states()
    assert (states.nucleus.log_sum_C < whole.nucleus.log_sum_C - 0.1).float().mean() > 0.9
    trainer = trainer_of(tmp_path, ttt_steps=2, tokens_per_update=10**6)
    loss, kept, _ = reference(trainer, states, 2)
    metrics = trainer.fit([states], learning_rate=0.0)
    assert metrics["loss"] / metrics["slots"] == pytest.approx(loss.item(), rel=1e-5)
    for got, expected in zip(trainer.replay([states], 2), kept, strict=True):
        np.testing.assert_allclose(got, expected, atol=2e-5)


def test_sums_count_slots_mass_and_expected_acceptance(tmp_path):
    trainer = trainer_of(tmp_path, ttt_steps=2)
    states = hidden_states()
    metrics = trainer.fit([states], learning_rate=0.0)
    lengths = [length for _, _, length in RAGGED]
    assert metrics["tokens"] == sum(lengths)
    assert metrics["slots"] == sum(length - 1 for length in lengths)
    p_RD = (states.final_RH @ states.head_DH.t() / states.temperature).exp()
    outside_R = 1 - p_RD.sum(1) * (-states.nucleus.log_sum_C).exp()
    firsts = [span.start for span in states.slices]
    expected = outside_R.sum() - outside_R[firsts].sum()
    assert metrics["out_of_vocabulary_mass"] == pytest.approx(expected.item(), rel=1e-5)
    _, kept, weights = reference(trainer, states, 2)
    accept = 0.0
    for number, span in enumerate(states.slices):
        for t, step, q in engine_probabilities(weights, shape(), states, number, 2):
            if step == 1:
                row = span.start + t + 2
                p = p_RD[row] * (-states.nucleus.log_sum_C[row]).exp()
                accept += kept[number][t, 0] * torch.minimum(p, q).sum().item()
    assert metrics["expected_accepted_pos_1"] == pytest.approx(accept, rel=1e-4)


def test_greedy_drafts_are_kept_where_the_best_token_came(tmp_path):
    trainer = trainer_of(tmp_path, sampling="greedy")
    states = hidden_states()
    replayed = trainer.replay([states], 3)
    weights = {key: value.double() for key, value in trainer.tensors().items()}
    for number, (_, _, length) in enumerate(RAGGED):
        expected = np.zeros((length, 3))
        tokens = states.token_ids_T[states.rows[number][-length:]]
        for t, step, q in engine_probabilities(weights, shape(), states, number, 3):
            expected[t, step] = 2 * int(q.argmax()) == int(tokens[t + 1 + step])
        np.testing.assert_array_equal(replayed[number], expected)


def test_shared_prompts_give_what_prompts_of_their_own_give(tmp_path):
    shared = hidden_states()
    apart = [one_sample(shared, number) for number in range(len(RAGGED))]
    trainer = trainer_of(tmp_path)
    for got, expected in zip(trainer.replay([shared], 4), trainer.replay(apart, 4), strict=True):
        np.testing.assert_allclose(got, expected, atol=1e-5)


def one_sample(states, number):
    rows = states.rows[number]
    span = states.slices[number]
    return type(states)(
        token_ids_T=states.token_ids_T[rows],
        embeds_TH=states.embeds_TH[rows],
        aux_TAH=states.aux_TAH[rows],
        rows=(torch.arange(len(rows)),),
        prompt_lengths=(states.prompt_lengths[number],),
        final_RH=states.final_RH[span],
        nucleus=states.nucleus.of(span),
        slices=(slice(0, span.stop - span.start),),
        head_DH=states.head_DH,
        temperature=states.temperature,
    )


def test_batches_are_merged_and_split_into_updates_of_about_the_asked_tokens(tmp_path):
    trainer = trainer_of(tmp_path, tokens_per_update=12)
    batches = [hidden_states(seed=seed) for seed in range(4)]  # 15 slots each
    assert trainer.fit(batches, 1e-3)["updates"] == 5
    assert trainer.fit([], 1e-3)["updates"] == 0
    only_single_tokens = hidden_states((("a", 3, 1), ("b", 2, 1)))
    metrics = trainer.fit([only_single_tokens], 1e-3)
    assert (metrics["updates"], metrics["slots"], metrics["tokens"]) == (0, 0, 2)
    assert [part.tolist() for part in trainer.replay([only_single_tokens], 2)] == [[[0, 0]]] * 2


def deterministic_states(num_samples=24, seed=3):
    """A policy that repeats one cycle of tokens, sure of itself, and states that tell the token."""
    samples = [(str(n), 4, 20) for n in range(num_samples)]
    states = hidden_states(samples, seed, temperature=1.0)
    generator = torch.Generator().manual_seed(seed)
    codes_VH = torch.randn(40, 32, generator=generator)
    head_VH = torch.randn(40, 32, generator=generator)
    tokens = states.token_ids_T
    for rows in states.rows:
        start = int(torch.randint(0, 16, (1,), generator=generator))
        tokens[rows] = 2 * ((start + torch.arange(len(rows))) % 16)
    final, log_sum = states.final_RH, states.nucleus.log_sum_C
    for number, span in enumerate(states.slices):
        mine = tokens[states.rows[number][-20:]]
        final[span] = head_VH[mine] * 12 / head_VH[mine].norm(dim=1, keepdim=True)
    log_sum[:] = (final @ head_VH.t()).logsumexp(1)
    return type(states)(
        token_ids_T=tokens,
        embeds_TH=codes_VH[tokens],
        aux_TAH=codes_VH[tokens][:, None].expand(-1, 3, -1).contiguous(),
        rows=states.rows,
        prompt_lengths=states.prompt_lengths,
        final_RH=final,
        nucleus=states.nucleus,
        slices=states.slices,
        head_DH=head_VH[2 * torch.arange(DRAFT_VOCAB)].contiguous(),
        temperature=1.0,
    )


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
@pytest.mark.parametrize("name", DRAFT_LOSSES)
def test_training_lowers_the_loss_and_raises_replayed_acceptance(tmp_path, name, precision):
    trainer = trainer_of(tmp_path, loss=name, precision=precision, tokens_per_update=128)
    states, heldout = deterministic_states(), deterministic_states(6, seed=3)
    before = expected_counts(trainer.replay([heldout], 3), 3).acceptance_length
    losses = []
    for _ in range(12):
        metrics = trainer.fit([states], 3e-3)
        losses.append(metrics["loss"] / metrics["slots"])
    after = expected_counts(trainer.replay([heldout], 3), 3).acceptance_length
    assert losses[-1] < 0.6 * losses[0]
    assert after > before + 1.0
    assert metrics["expected_accepted_pos_2"] / metrics["slots"] > 0.3


def test_bf16_products_stay_near_fp32_ones(tmp_path):
    states = hidden_states()
    exact, rounded = trainer_of(tmp_path), trainer_of(tmp_path, precision="bf16")
    losses = [t.fit([states], 0.0)["loss"] for t in (exact, rounded)]
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    assert all(p.dtype == torch.float32 for p in rounded._draft.parameters())


def test_training_goes_on_from_its_saved_state_by_bits(tmp_path):
    batches = [hidden_states(seed=seed) for seed in range(3)]
    settings = {"tokens_per_update": 10, "precision": "bf16", "weight_decay": 0.1}
    straight = trainer_of(tmp_path / "draft", **settings)
    straight.fit(batches, 1e-3)
    (tmp_path / "state").mkdir()
    straight.save(tmp_path / "state")
    resumed = trainer_of(tmp_path / "draft", seed=9, **settings)
    resumed.load(tmp_path / "state")
    for trainer in (straight, resumed):
        trainer.fit(batches, 1e-3)
    for name, tensor in straight.tensors().items():
        assert torch.equal(tensor, resumed.tensors()[name]), name


def test_the_state_of_another_draft_is_refused_by_name(tmp_path):
    other = Eagle3Trainer(draft_folder(tmp_path / "other", draft_vocab=12), config())
    (tmp_path / "state").mkdir()
    other.save(tmp_path / "state")
    with pytest.raises(UserError, match=r"lm_head.weight is \(12, 32\), not \(17, 32\)"):
        trainer_of(tmp_path / "draft").load(tmp_path / "state")


def test_the_exported_folder_holds_the_trained_weights_and_the_facts(tmp_path):
    trainer = trainer_of(tmp_path / "draft")
    trainer.fit([hidden_states()], 1e-2)
    trainer.export(tmp_path / "out")
    _, tensors = read_folder(tmp_path / "out")
    assert tensors.keys() == trainer.tensors().keys()
    for name, tensor in trainer.tensors().items():
        assert torch.equal(tensor, tensors[name]), name
    assert read_facts(tmp_path / "out") == read_facts(tmp_path / "draft")
    _, first = read_folder(tmp_path / "draft")
    assert not torch.equal(first["fc.weight"], tensors["fc.weight"])


def test_the_random_stream_of_the_policy_is_not_touched(tmp_path):
    trainer = trainer_of(tmp_path)
    state = torch.get_rng_state()
    trainer.fit([hidden_states()], 1e-3)
    trainer.replay([hidden_states()], 2)
    assert torch.equal(torch.get_rng_state(), state)


def test_a_gradient_that_is_not_finite_leaves_the_weights_as_they_were(tmp_path):
    trainer = trainer_of(tmp_path)
    before = {name: tensor.clone() for name, tensor in trainer.tensors().items()}
    states = hidden_states()
    states.aux_TAH[states.rows[0][-2]] = float("nan")
    with pytest.raises(NonFiniteError, match="draft's gradient norm is nan"):
        trainer.fit([states], 1e-3)
    for name, tensor in trainer.tensors().items():
        assert torch.equal(tensor, before[name]), name


def test_the_clip_bounds_the_step_and_not_the_reported_norm(tmp_path):
    states = hidden_states()
    free = trainer_of(tmp_path, tokens_per_update=10**6)
    clipped = trainer_of(tmp_path, tokens_per_update=10**6, clip_grad=0.01)
    norms = [trainer.fit([states], 0.0)["grad_norm"] for trainer in (free, clipped)]
    assert norms[0] == norms[1] > 0.01
    gradients = [p.grad for p in clipped._draft.parameters()]
    assert torch.nn.utils.get_total_norm(gradients).item() == pytest.approx(0.01, rel=1e-3)
