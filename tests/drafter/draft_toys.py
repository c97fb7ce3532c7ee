"""Tiny drafts and made-up hidden states, and a slow draft written from the engine's point of view.

Legend: T packed tokens, A auxiliary layers, H hidden, R response tokens, D draft vocabulary, V
vocabulary of the policy.
"""

import math
from dataclasses import dataclass, field

import torch

from specrl.algo.nucleus import Nucleus
from specrl.config.drafter import DraftTrainingConfig, Eagle3Config
from specrl.drafter.eagle3 import DraftShape, Rope
from specrl.drafter.eagle3_folder import write_folder
from specrl.hidden_states import HiddenStates

HIDDEN, VOCAB, DRAFT_VOCAB, LAYERS = 32, 40, 17, (1, 2, 3)
# (prompt, response length); samples with the same letter share a prompt.
RAGGED = (("a", 3, 5), ("b", 1, 1), ("a", 3, 2), ("c", 6, 9), ("b", 1, 3), ("d", 2, 1))


def shape(norm_before_residual=False, draft_vocab=DRAFT_VOCAB):
    return DraftShape(
        hidden=HIDDEN,
        intermediate=48,
        heads=4,
        kv_heads=2,
        head_dim=8,
        vocab=VOCAB,
        draft_vocab=draft_vocab,
        rms_eps=1e-5,
        rope=Rope(theta=100.0),
        aux_layers=LAYERS,
        positions=64,
        norm_before_residual=norm_before_residual,
    )


def draft_folder(folder, seed=0, **changes):
    """Writes a draft whose tensors are all random; every second id of the policy is drafted."""
    generator = torch.Generator().manual_seed(seed)
    facts = shape(**changes)
    tensors = {
        name: torch.randn(size, generator=generator) / size[-1] ** 0.5
        if len(size) > 1
        else 1 + 0.3 * torch.randn(size, generator=generator)
        for name, size in facts.tensor_shapes().items()
    }
    tensors["d2t"] = torch.arange(facts.draft_vocab)
    write_folder(folder, facts, tensors, {"policy": "toy"})
    return folder


def config(sampling="probabilistic", **training):
    values = {"precision": "fp32", "clip_grad": 0.0, **training}
    return Eagle3Config(sampling=sampling, training=DraftTrainingConfig(**values))


def hidden_states(samples=RAGGED, seed=0, temperature=0.8, dtype=torch.float32, top_p=1.0):
    """Random states; the policy's own logits are final @ head, of which the draft knows D rows."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*size):
        return torch.randn(size, generator=generator)

    embedding_VH, head_VH = draw(VOCAB, HIDDEN), draw(VOCAB, HIDDEN) / 4
    prompts, rows, slices, tokens = {}, [], [], 0
    for letter, length, _ in samples:
        if letter not in prompts:
            prompts[letter] = torch.arange(tokens, tokens + length)
            tokens += length
    total = 0
    for letter, _, length in samples:
        rows.append(torch.cat([prompts[letter], torch.arange(tokens, tokens + length)]))
        slices.append(slice(total, total + length))
        tokens, total = tokens + length, total + length
    token_ids_T = torch.randint(0, VOCAB, (tokens,), generator=generator)
    final_RH = draw(total, HIDDEN)
    return HiddenStates(
        token_ids_T=token_ids_T,
        embeds_TH=embedding_VH[token_ids_T].to(dtype),
        aux_TAH=draw(tokens, len(LAYERS), HIDDEN).to(dtype),
        rows=tuple(rows),
        prompt_lengths=tuple(length for _, length, _ in samples),
        final_RH=final_RH.to(dtype),
        nucleus=Nucleus(*truncated(final_RH @ head_VH.t() / temperature, top_p)),
        slices=tuple(slices),
        head_DH=head_VH[2 * torch.arange(DRAFT_VOCAB)].to(dtype),
        temperature=temperature,
    )


def truncated(scaled_RV, top_p):
    """Cutoff and log-sum of each row: the likeliest tokens until they hold top_p, one by one."""
    cutoffs, log_sums = [], []
    for scaled_V in scaled_RV:
        mass, kept = 0.0, []
        for token in scaled_V.argsort(descending=True).tolist():
            if kept and top_p < 1.0 and mass >= top_p:
                break
            kept.append(token)
            mass += float(scaled_V.double().softmax(0)[token])
        whole = len(kept) == len(scaled_V)
        cutoffs.append(torch.tensor(-torch.inf) if whole else scaled_V[kept[-1]] - 1e-4)
        log_sums.append(scaled_V[kept].logsumexp(0))
    return torch.stack(cutoffs), torch.stack(log_sums)


@dataclass
class EngineDraft:
    """One sequence in the engine: a cache with an entry per slot, written in the order of time.

    Nothing here is shared with what it checks: one slot, one head at a time.
    """

    weights: dict
    facts: DraftShape
    cache: list = field(default_factory=list)

    def norm(self, x, name):
        scale = torch.sqrt((x * x).mean() + self.facts.rms_eps)
        return x / scale * self.weights[f"{name}.weight"]

    def linear(self, x, name):
        return self.weights[f"{name}.weight"] @ x

    def rotate(self, x, position):
        half = self.facts.head_dim // 2
        out = []
        for pair in range(half):
            angle = position * self.facts.rope.theta ** (-pair / half)
            a, b = x[pair], x[pair + half]
            out.append((pair, a * math.cos(angle) - b * math.sin(angle)))
            out.append((pair + half, b * math.cos(angle) + a * math.sin(angle)))
        return torch.stack([value for _, value in sorted(out, key=lambda entry: entry[0])])

    def slot(self, embedding, feature, position):
        """Runs one slot on what the cache holds, and adds it there; the layer's output."""
        facts, layer = self.facts, "midlayer"
        normed = self.norm(feature, f"{layer}.hidden_norm")
        both = torch.cat([self.norm(embedding, f"{layer}.input_layernorm"), normed])
        query, key, value = (
            self.linear(both, f"{layer}.self_attn.{name}_proj").split(facts.head_dim)
            for name in "qkv"
        )
        keys = [self.rotate(head, position) for head in key]
        assert len(self.cache) == position
        self.cache.append((keys, value))
        heads = []
        for number in range(facts.heads):
            group = number * facts.kv_heads // facts.heads
            turned = self.rotate(query[number], position)
            scores = torch.stack([turned @ entry[0][group] for entry in self.cache])
            weights = (scores / math.sqrt(facts.head_dim)).softmax(0)
            heads.append(sum(w * e[1][group] for w, e in zip(weights, self.cache, strict=True)))
        residual = normed if facts.norm_before_residual else feature
        hidden = residual + self.linear(torch.cat(heads), f"{layer}.self_attn.o_proj")
        inner = self.norm(hidden, f"{layer}.post_attention_layernorm")
        gate = self.linear(inner, f"{layer}.mlp.gate_proj")
        gated = gate * gate.sigmoid() * self.linear(inner, f"{layer}.mlp.up_proj")
        return hidden + self.linear(gated, f"{layer}.mlp.down_proj")

    def probabilities(self, output, temperature):
        logits = self.linear(self.norm(output, "norm"), "lm_head")
        return (logits / temperature).softmax(0)


def engine_probabilities(weights, facts, states, number, steps):
    """Yields (t, s, q): the draft that starts after response token t, fed with what came."""
    rows = states.rows[number]
    embeds, aux = states.embeds_TH[rows].double(), states.aux_TAH[rows].double()
    prompt, length = states.prompt_lengths[number], len(rows) - states.prompt_lengths[number]
    for t in range(length - 1):
        engine = EngineDraft(weights, facts)
        for position in range(prompt + t):
            feature = engine.linear(aux[position].flatten(), "fc")
            output = engine.slot(embeds[position + 1], feature, position)
        for step in range(min(steps, length - 1 - t)):
            if step > 0:
                position = prompt - 1 + t + step
                output = engine.slot(embeds[position + 1], output, position)
            yield t, step, engine.probabilities(output, states.temperature)
