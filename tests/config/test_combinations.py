"""Values that exclude one another are refused by name."""

import os

import pytest

from specrl.config.compose import load
from specrl.errors import UserError

OURS = min(os.sched_getaffinity(0))
REFUSED = [
    (["rollout.max_tokens=1024"], "model.max_model_len=1024"),
    (["rollout.ignore_eos=true", "rollout.stop=[x]"], "use one of the two"),
    (["rollout.prompts_per_step=1000000000"], "use a value from 2 to 1000000"),
    (["algorithm.minibatches=65"], "use at most 64"),
    (["learner.data_parallel=65"], "use at most 64"),
    (["learner.data_parallel=9", "algorithm.minibatches=8"], "use at most 8"),
    (
        ["learner.recompute_logprobs=false", "algorithm.minibatches=2"],
        "use learner.recompute_logprobs=true",
    ),
    (["rollout.ignore_eos=true", "rollout.stop_token_ids=[2]"], "rollout.stop_token_ids ends"),
    (["rollout.cores=[-1]"], "core -1 is none that this process may use"),
    (["learner.cores=[100000]"], f"use some of {OURS}"),
    (["learner.cores=[100000]", "cluster.name=elsewhere"], "learner.cores=[100000]: core"),
    (["rollout.cores=[0,0]"], "names a core twice"),
    (["rollout.cores=[0]", "rollout.replicas=2"], "fewer cores than 2 replicas"),
    (["learner.cores=[0]", "learner.tensor_parallel=2"], "fewer cores than 2 ranks"),
    (["drafter=ngram", "drafter.lookup_min=9"], "drafter.lookup_max=4 is below"),
    (["cluster.gpus_per_engine=1"], "mix CPU and GPU"),
    (["init.num_prompts=241"], "task.train_size=240"),
    (["init=random", "task.train_size=100"], "task.train_size=100"),
    (["cluster=local_gpu", "cluster.gpus_per_learner_rank=2"], "a rank drives one GPU"),
    (["model=tiny", "model.source=hub"], "model.source=hub"),
]


@pytest.mark.parametrize(("overrides", "says"), REFUSED)
def test_an_impossible_pair_is_refused_by_name(overrides, says):
    with pytest.raises(UserError) as caught:
        load(overrides)
    assert says in str(caught.value)
    assert overrides[0].lstrip("+").split("=")[0].split(".")[0] in str(caught.value)


def test_values_at_the_bound_pass():
    load(["rollout.max_tokens=1023"])
    load(["algorithm.minibatches=64"])
    load(["learner.data_parallel=8", "algorithm.minibatches=8"])
    load([f"rollout.cores=[{OURS}]", f"learner.cores=[{OURS}]"])


@pytest.mark.parametrize(
    "override", ["drafter.name=x", "task.name=x", "tracking.name=x", "drafter.name=ngram"]
)
def test_a_choice_keeps_its_name(override):
    key, _, value = override.partition("=")
    own = {"drafter": "eagle3", "task": "arithmetic", "tracking": "mlflow"}[key.split(".")[0]]
    with pytest.raises(UserError, match=f"{key}={value} is not known; use one of {own}"):
        load([override])


def test_no_tracking_keeps_its_name():
    with pytest.raises(UserError, match=r"tracking.name=mlflow is not known; use one of none"):
        load(["tracking=none", "tracking.name=mlflow"])
