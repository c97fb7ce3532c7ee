"""Every choice that is listed composes and passes the door."""

import re
from functools import cache

import pytest
import yaml
from omegaconf import OmegaConf

from specrl.config import tree
from specrl.config.compose import compose, load
from specrl.config.door import to_config
from specrl.config.drafter import DraftModelConfig, NgramConfig
from specrl.config.knobs import choice_knobs
from specrl.config.tracking import MlflowConfig
from specrl.errors import UserError

# Choices that cannot stand alone, and what they need.
NEEDS = {
    "drafter=draft_model": ["drafter.model=/models/draft"],
    "init=checkpoint": ["init.path=/models/draft"],
    "init=none": ["drafter=none"],
}
# Choices that are another one with a knob set, and which.
VARIANTS = {"init=ultrachat_200k": "ultrachat"}
ALL = [f"{group}={name}" for group in tree.groups() for name in tree.options(group)]
ONLINE = "adaptation=online"


@cache
def composed(choice):
    """Unchecked, for every test that reads it: a composition takes a tenth of a second."""
    return compose([choice])


ALONE = [c for c in ALL if c != "init=auto" and not c.startswith("sweep=")]


# Each point of every sweep passes it in tests/cli/test_sweeps.py.
@pytest.mark.parametrize("choice", ALONE)
def test_every_choice_passes_the_door(choice):
    needs = NEEDS.get(choice)
    config = load([choice, *needs]) if needs else to_config(composed(choice))
    group, name = choice.split("=")
    if group not in tree.OVERLAYS:
        assert getattr(config, group).name == VARIANTS.get(choice, name)


@pytest.mark.parametrize(("drafter", "init"), [("eagle3", "dapo"), ("none", "none")])
def test_the_default_init_is_what_the_drafter_needs(drafter, init):
    assert load([f"drafter={drafter}"]).init.name == init


def test_a_draft_that_learns_needs_an_init():
    with pytest.raises(UserError, match="init=none says nowhere; use init=dapo"):
        load(["drafter=eagle3", "init=none"])


@pytest.mark.parametrize("k", ["0", "17", "2.5", "null", "true", "automatic"])
def test_a_draft_length_is_a_small_whole_number_or_auto(k):
    with pytest.raises(UserError, match=f"drafter.k={'True' if k == 'true' else k} is"):
        load([f"drafter.k={k}"])


def test_an_automatic_draft_length_reserves_room_for_the_longest():
    assert load(["drafter.k=auto"]).drafter.longest_k == 7
    assert load(["drafter.k=5"]).drafter.longest_k == 5


@pytest.mark.parametrize("drafter", ["none", "ngram", "draft_model"])
def test_online_adaptation_is_refused_by_name_with_drafters_that_do_not_learn(drafter):
    overrides = [f"drafter={drafter}", *NEEDS.get(f"drafter={drafter}", [])]
    with pytest.raises(UserError, match=f"adaptation=online cannot go with drafter={drafter}"):
        load([*overrides, ONLINE])


@pytest.mark.parametrize("experiment", tree.options("experiment"))
@pytest.mark.parametrize("debug", tree.options("debug"))
def test_every_experiment_can_be_debugged(experiment, debug):
    config = load([f"experiment={experiment}", f"debug={debug}"])
    if debug == "tiny":
        assert (config.model.name, config.cluster.gpus_per_engine, config.steps) == ("tiny", 0, 2)
        assert config.rollout.prompts_per_step * config.rollout.group_size == 4
    else:
        assert (config.rollout.dtype, config.learner.precision) == ("float32", "fp32")


@pytest.mark.parametrize("model", [name for name in tree.options("model") if "qwen" in name])
def test_a_hub_model_is_pinned_to_a_commit_and_may_be_a_local_folder(model):
    config = load([f"model={model}", "model.path=/models/mine"]).model
    assert re.fullmatch(r"[0-9a-f]{40}", config.revision)
    assert config.path == "/models/mine"


def test_the_help_line_of_the_mixture_of_experts_says_that_it_is_refused():
    (choice,) = [c for c in tree.groups()["model"] if c.name == "qwen3_235b_a22b"]
    assert "refused by this learner" in choice.about


def test_the_default_run_is_a_real_model_on_this_machine():
    config = load()
    assert config.model.name == "smollm2_135m"
    assert (config.drafter.name, config.init.name) == ("eagle3", "dapo")
    assert config.task.name == "arithmetic"
    assert config.cluster.gpus_per_engine == 0
    assert isinstance(config.tracking, MlflowConfig)


def test_a_choice_arrives_as_its_own_dataclass():
    assert load(["drafter=ngram", "drafter.lookup_max=6"]).drafter == NgramConfig(lookup_max=6)
    assert load(["drafter=draft_model", "drafter.model=x"]).drafter == DraftModelConfig(model="x")


def test_the_two_regimes_differ_in_policy_and_prompt_style():
    think, zero = load(["experiment=rl_think"]), load(["experiment=rl_zero"])
    assert (think.model.name, think.task.prompt_style) == ("qwen3_8b", "chat")
    assert (zero.model.name, zero.task.prompt_style) == ("qwen3_8b_base", "raw")
    assert think.rollout == zero.rollout


@pytest.mark.parametrize("experiment", ["rl_think", "rl_zero"])
def test_a_paper_size_draft_has_a_paper_size_vocabulary(experiment):
    drafter = load([f"experiment={experiment}", "drafter=eagle3"]).drafter
    assert (drafter.vocab_size, drafter.training.tokens_per_update) == (32000, 16384)
    assert load([f"experiment={experiment}", "drafter=eagle3", "drafter.vocab_size=9"])
    for other in ("none", "ngram"):
        assert load([f"experiment={experiment}", f"drafter={other}"]).drafter.name == other
    tiny = load([f"experiment={experiment}", "drafter=eagle3", "debug=tiny"])
    assert (tiny.drafter.vocab_size, tiny.model.name) == (None, "tiny")


def test_one_seed_reaches_task_and_engine():
    config = load(["seed=7"])
    assert (config.seed, config.task.seed, config.rollout.seed) == (7, 7, 7)
    assert load(["seed=7", "rollout.seed=1"]).rollout.seed == 1


def test_free_form_mappings_take_any_key():
    config = load(["+rollout.engine_args.max_num_seqs=32", "+tracking.tags.owner=me"])
    assert config.rollout.engine_args == {"max_num_seqs": 32}
    assert config.tracking == MlflowConfig(tags={"owner": "me"})


@pytest.mark.parametrize("choice", [c for c in ALL if c.split("=")[0] not in tree.OVERLAYS])
def test_the_knob_list_shows_the_defaults_that_hydra_composes(choice):
    group, name = choice.split("=")
    values = OmegaConf.to_container(composed(choice))[group]
    shown = {
        knob.key.split(".", 1)[1]: yaml.safe_load(knob.default)
        for knob in choice_knobs(group, name)
    }
    assert shown == dict(flat(values, leaves=set(shown)))


def flat(values, leaves, prefix=""):
    for key, value in values.items():
        if isinstance(value, dict) and f"{prefix}{key}" not in leaves:
            yield from flat(value, leaves, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", "required" if value == "???" else value


@pytest.mark.parametrize("choice", ALL)
def test_every_choice_says_what_it_is(choice):
    group, name = choice.split("=")
    about = next(option.about for option in tree.groups()[group] if option.name == name)
    assert about.endswith((".", "?"))
    assert len(about) <= 80
