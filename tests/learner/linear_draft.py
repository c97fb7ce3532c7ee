"""The smallest `hidden_states.DraftTrainer`: logits are a linear map of the auxiliary states.

Legend: R response tokens, F features of a token, D draft vocabulary, A auxiliary layers.
"""

import json

import numpy as np
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file

from specrl.types import TrainSample

STATE = "state.pt"


class LinearDraft:
    """`config` has `aux_layers` and `target_ids`; `folder` is not read. One update per `fit`.

    Losses: cross-entropy, and "twice" that.
    """

    def __init__(self, folder, config):
        del folder
        self.aux_layers = tuple(config["aux_layers"])
        self.target_ids_D = torch.tensor(config["target_ids"])
        features = (len(self.aux_layers) + 1) * config["hidden"]
        self.weight_DF = torch.rand(len(self.target_ids_D), features)  # draws random numbers
        self.weight_DF = torch.linspace(-0.1, 0.1, self.weight_DF.numel()).view_as(self.weight_DF)
        self.weight_DF.requires_grad_()
        self.adam = torch.optim.Adam([self.weight_DF])

    def fit(self, batches, learning_rate, group=None, loss=None):
        self.adam.zero_grad()
        scale = 2.0 if loss == "twice" else 1.0
        sums = torch.zeros(4, dtype=torch.float64)
        loss = 0.0 * self.weight_DF.sum()
        for batch in batches:
            teacher_RD, logprobs_RD = _teacher(batch), self._logits(batch).log_softmax(-1)
            tokens_R = -scale * (teacher_RD * logprobs_RD).sum(1)
            loss = loss + tokens_R.sum()
            overlap_R = torch.minimum(teacher_RD, logprobs_RD.detach().exp()).sum(1)
            missing_R = 1.0 - teacher_RD.sum(1)
            own = [tokens_R.detach().sum(), missing_R.sum(), overlap_R.sum(), float(len(tokens_R))]
            sums += torch.tensor(own, dtype=torch.float64)
        loss.backward()
        count = sums[3:].clone()
        dist.all_reduce(self.weight_DF.grad, group=group)
        dist.all_reduce(count, group=group)
        self.weight_DF.grad /= count.clamp(min=1.0).item()
        norm = float(self.weight_DF.grad.norm())
        self.adam.param_groups[0]["lr"] = learning_rate
        self.adam.step()
        loss, missing, overlap, tokens = sums.tolist()
        return {
            "loss": loss,
            "tokens": tokens,
            "slots": tokens,
            "out_of_vocabulary_mass": missing,
            "expected_accepted_pos_0": overlap,
            "updates": 1.0,
            "grad_norm": norm,
        }

    def replay(self, batches, k):
        """Not acceptance: the log-sum of each token, which says which token a row belongs to."""
        return [
            batch.nucleus.log_sum_C[rows][:, None].expand(-1, k).tolist()
            for batch in batches
            for rows in batch.slices
        ]

    def tensors(self):
        offsets_D = self.target_ids_D - torch.arange(len(self.target_ids_D))
        return {"fc.weight": self.weight_DF.detach(), "d2t": offsets_D}

    def save(self, folder):
        torch.save([self.weight_DF.detach(), self.adam.state_dict()], folder / STATE)

    def load(self, folder):
        weight_DF, adam = torch.load(folder / STATE)
        with torch.no_grad():
            self.weight_DF.copy_(weight_DF)
        self.adam.load_state_dict(adam)

    def export(self, folder):
        (folder / "config.json").write_text(json.dumps({"aux_layers": self.aux_layers}))
        save_file(self.tensors(), folder / "model.safetensors")

    def _logits(self, batch):
        states_TF = torch.cat([batch.embeds_TH, batch.aux_TAH.flatten(1)], dim=1).float()
        before_R = [
            rows[prompt - 1 : -1]
            for rows, prompt in zip(batch.rows, batch.prompt_lengths, strict=True)
        ]
        return states_TF[torch.cat(before_R)] @ self.weight_DF.t()


def _teacher(batch):
    logits_RD = (batch.final_RH @ batch.head_DH.t()).float() / batch.temperature
    return (logits_RD - batch.nucleus.log_sum_C[:, None]).exp()


def draft_weights(snapshot):
    """The exported draft of a published version."""
    return load_file(snapshot.draft.path)


def samples_of(rollouts, seed=1):
    """What an update needs of the rollouts, with random advantages."""
    rng = np.random.default_rng(seed)
    behaviours = [rng.normal(-4.5, 0.1, len(r.token_ids)).astype(np.float32) for r in rollouts]
    return [
        TrainSample(r.prompt.token_ids, r.token_ids, float(rng.normal()), b, b)
        for r, b in zip(rollouts, behaviours, strict=True)
    ]
