"""Every mistake is one line that names the key, the bound and the fix."""

import pytest

from specrl.config.compose import load
from specrl.errors import UserError

MISTAKES = [
    # (overrides, every one of these must be in the line)
    ("drafter=ngrm", ["drafter=ngrm", "draft_model, ngram, none", "did you mean drafter=ngram?"]),
    ("drafer=ngram", ["drafer", "did you mean drafter=ngram?"]),
    (
        "experiment=rl_thnk",
        ["experiment=rl_thnk", "rl_zero_cpu", "did you mean experiment=rl_thin"],
    ),
    ("rollout.max_tokenz=3", ["rollout.max_tokenz", "did you mean rollout.max_tokens=3?"]),
    (
        "rollout.max_tokens=abc",
        ["rollout.max_tokens=abc", "whole number", "rollout.max_tokens=256"],
    ),
    ("rollout.max_tokens=3.5", ["rollout.max_tokens=3.5", "whole number"]),
    ("rollout.max_tokens=null", ["rollout.max_tokens=null", "whole number"]),
    ("rollout.max_tokens.x=3", ["rollout.max_tokens.x=3", "did you mean rollout.max_tokens=3?"]),
    ("+drafter.kk=3", ["drafter.kk=3", "did you mean drafter.k=3?"]),
    ("++rollout.max_tokenz=3", ["rollout.max_tokenz=3", "did you mean rollout.max_tokens=3?"]),
    ("+optimizer=adam", ["optimizer=adam", "specrl --help"]),
    ("max_tokens=3", ["max_tokens=3", "did you mean rollout.max_tokens=3?"]),
    ("drafter.lookup_max=3", ["drafter.lookup_max=3", "only with drafter=ngram"]),
    ("steps", ["'steps' has no value", "steps=100"]),
    ("stpes", ["'stpes'", "did you mean steps"]),
    ("drafter", ["'drafter' has no value", "draft_model, ngram, none"]),
    ("evaluation=3", ["evaluation=3", "evaluation.every=<value>"]),
    ("=3", ["'=3' names no key"]),
    ("a b=3", ["'a b=3' cannot be read"]),
    ("steps=0", ["steps=0", "at least 1"]),
    ("seed=-1", ["seed=-1", "at least 0"]),
    ("rollout.top_p=1.5", ["rollout.top_p=1.5", "from 0.0 to 1.0"]),
    ("rollout.top_p=0", ["rollout.top_p=0.0", "above 0.0"]),
    ("rollout.temperature=nan", ["rollout.temperature=nan", "above 0.0"]),
    ("learner.learning_rate=inf", ["learner.learning_rate=inf", "out of range"]),
    ("learner.beta1=1.0", ["learner.beta1=1.0", "at least 0.0 and below 1.0"]),
    ("learner.beta2=-0.1", ["learner.beta2=-0.1", "at least 0.0 and below 1.0"]),
    ("drafter.k=17", ["drafter.k=17", "from 1 to 16"]),
    ("execution.max_lag=1", ["execution.max_lag=1", "from 0 to 0"]),
    ("rollout.group_size=1", ["rollout.group_size=1", "at least 2"]),
    ("rollout.dtype=bflot16", ["rollout.dtype=bflot16", "did you mean bfloat16?"]),
    ("rollout.ignore_eos=maybe", ["rollout.ignore_eos=maybe", "true or false"]),
    ("task.generators=chain_sum", ["task.generators=chain_sum", "a list of texts"]),
    ("task.generators=[]", ["task.generators=[]", "[chain_sum]"]),
    ("learner.cores=[a]", ["learner.cores=[a]", "a list of whole numbers"]),
    ("adaptation=on", ["adaptation=on", "offline, online"]),
    ("drafter=null", ["drafter=null", "draft_model, ngram, none"]),
    ("experiment=null", ["experiment=null", "leave experiment out"]),
    ("tracking=", ["tracking=", "mlflow, none"]),
    ("rollout=3", ["rollout=3", "vllm"]),
    ("drafter=[none,ngram]", ["drafter=[none,ngram]", "one choice"]),
    ("drafter=none,ngram", ["drafter=none,ngram", "add -m"]),
    ("+drafter=ngram", ["write drafter=ngram"]),
    ("+steps=3", ["write steps=3"]),
    ("~drafter", ["~drafter", "every run needs"]),
    ("~drafter.k", ["drafter.k cannot be removed"]),
    ("drafter@x=ngram", ["drafter@x=ngram", "specrl --help"]),
    ("drafter.k=${nope}", ["drafter.k", "nope"]),
    ("drafter.name=ngram", ["drafter.name=ngram", "none"]),
    ("init.name=dapo", ["init=dapo cannot go with drafter=none", "init=none"]),
    ("model.path=???", ["model.path is not set", "hub id"]),
    ("drafter=draft_model", ["drafter.model is not set", "add drafter.model="]),
    ("output_dir=", ["output_dir is empty"]),
    ("rollout.engine_args.x=3", ["+rollout.engine_args.x=3"]),
    ("+rollout.engine_args.seed=3", ["rollout.engine_args.seed", "rollout.seed"]),
    ("+model.tiny.seed=3", ["model.tiny", "use model=tiny"]),
    ("hydra.mode=foo", ["hydra.mode=foo", "RUN, MULTIRUN"]),
]


@pytest.mark.parametrize(("override", "parts"), MISTAKES, ids=[mistake[0] for mistake in MISTAKES])
def test_a_mistake_is_one_line_with_the_key_and_the_fix(override, parts):
    with pytest.raises(UserError) as caught:
        load([override])
    line = str(caught.value)
    assert "\n" not in line
    assert [part for part in parts if part not in line] == []
    assert "hydra.cc" not in line
    assert "full_key" not in line


def test_an_unknown_key_in_a_users_own_file_names_the_file(tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "mine.yaml").write_text("# @package _global_\nrollout:\n  max_tokenz: 3\n")
    with pytest.raises(UserError, match=r"experiment/mine.yaml: .*did you mean rollout.max_tokens"):
        load(["experiment=mine", f"hydra.searchpath=[file://{tmp_path}]"])
