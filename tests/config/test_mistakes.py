"""Every mistake is one line that names the key, the bound and the fix."""

import pytest

from specrl.config.compose import load
from specrl.config.tracking import check_uri
from specrl.errors import UserError

MISTAKES = [
    # (overrides, every one of these must be in the line)
    (
        "drafter=ngrm",
        ["drafter=ngrm", "draft_model, eagle3, ngram, none", "did you mean drafter=ngram?"],
    ),
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
    ("drafter", ["'drafter' has no value", "draft_model, eagle3, ngram, none"]),
    ("evaluation=3", ["evaluation=3", "evaluation.every=<value>"]),
    ("=3", ["'=3' names no key"]),
    ("a b=3", ["'a b=3' cannot be read"]),
    ("steps=0", ["steps=0", "at least 1"]),
    ("seed=-1", ["seed=-1", "from 0 to 2147483647"]),
    ("rollout.top_p=1.5", ["rollout.top_p=1.5", "from 0.0 to 1.0"]),
    ("rollout.top_p=0", ["rollout.top_p=0.0", "above 0.0"]),
    ("rollout.temperature=nan", ["rollout.temperature=nan", "above 0.0"]),
    ("learner.learning_rate=inf", ["learner.learning_rate=inf", "finite"]),
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
    ("drafter=null", ["drafter=null", "draft_model, eagle3, ngram, none"]),
    ("init.path=", ["init.path is empty"]),
    ("init.num_prompts=1000000000", ["init.num_prompts=1000000000", "from 1 to 1000000"]),
    ("init.revision=main", ["init.revision=main", "give both or neither"]),
    ("sweep=tabel4", ["sweep=tabel4", "figure2_paper", "did you mean sweep=table4?"]),
    ("sweep=table1,table2", ["sweep=table1,table2", "one sweep"]),
    ("+sweep=table4", ["write sweep=table4"]),
    ("experiment=null", ["experiment=null", "leave experiment out"]),
    ("tracking=", ["tracking=", "mlflow, none"]),
    ("rollout=3", ["rollout=3", "vllm"]),
    ("drafter=[none,ngram]", ["drafter=[none,ngram]", "one choice"]),
    ("drafter=none,ngram", ["drafter=none,ngram", "add -m"]),
    ("+drafter=ngram", ["write drafter=ngram"]),
    ("+steps=3", ["write steps=3"]),
    ("~drafter", ["~drafter", "every run needs"]),
    ("~drafter.k", ["drafter.k cannot be removed; use a value, e.g. drafter.k=3"]),
    ("~steps", ["steps cannot be removed; use a whole number, e.g. steps=100"]),
    ("~output_dir=outputs", ["output_dir cannot be removed"]),
    ("~checkpoint", ["checkpoint cannot be removed", "checkpoint.every=<value>"]),
    ("~debug", ["~debug: to run without, leave debug out"]),
    ("~foo", ["'foo' does not exist", "leave it out"]),
    ("drafter@x=ngram", ["drafter@x=ngram", "specrl --help"]),
    ("drafter.k=${nope}", ["drafter.k", "there is no nope"]),
    ("output_dir=${oc.env:SPECRL_NOPE}", ["output_dir: the environment variable SPECRL_NOPE"]),
    ("seed=2147483648", ["seed=2147483648", "from 0 to 2147483647"]),
    ("rollout.seed=2147483648", ["rollout.seed=2147483648", "from 0 to 2147483647"]),
    ("task.seed=2147483648", ["task.seed=2147483648", "from 0 to 2147483647"]),
    ("steps=1000000001", ["steps=1000000001", "at most 1000000000"]),
    ("tracking.uri=", ["tracking.uri is empty"]),
    ("tracking.experiment=", ["tracking.experiment is empty"]),
    ("tracking.uri=localhost:5000", ["tracking.uri=localhost:5000", "write http://host:port"]),
    ("tracking.uri=http://", ["tracking.uri=http://", "http://host:port"]),
    ("tracking.uri=http://h:port", ["tracking.uri=http://h:port", "http://host:port"]),
    ("tracking.uri=sqlite://m.db", ["tracking.uri=sqlite://m.db", "sqlite:///file.db"]),
    ("tracking.uri=sqlite:///", ["tracking.uri=sqlite:///", "sqlite:///file.db"]),
    ("tracking.uri=sqlite:///:memory:", ["sqlite:///:memory:", "sqlite:///file.db"]),
    ("tracking.uri=postgresql://", ["tracking.uri=postgresql://", "postgresql://..."]),
    ("tracking.uri=./mlruns", ["tracking.uri=./mlruns", "sqlite:///file.db"]),
    ("tracking.tags={a:1}", ["write +tracking.tags={a:1}"]),
    ("steps=", ["steps is empty; give it a value"]),
    ("model=/some/path", ["model=/some/path is", "write model=qwen3_8b model.path=/some/path"]),
    ("model=foo/bar", ["model=foo/bar is", "model.path=foo/bar model.revision=null"]),
    ("model=~/m", ["model=~/m is", "model.path=~/m"]),
    ("drafter=./m", ["drafter=./m is", "drafter=draft_model drafter.model=./m"]),
    ("hydra.run.dir=", ["hydra.run.dir=:", "use output_dir"]),
    ("hydra.sweep.dir=x", ["hydra.sweep.dir=x:", "use output_dir"]),
    ("hydra/job_logging=default", ["hydra/job_logging=default:", "use output_dir"]),
    ("drafter.name=ngram", ["drafter.name=ngram", "eagle3"]),
    ("init.name=none", ["drafter=eagle3 has weights", "use init=dapo"]),
    ("model.path=???", ["model.path is not set", "hub id"]),
    ("drafter=draft_model", ["drafter.model is not set", "add drafter.model="]),
    ("output_dir=", ["output_dir is empty"]),
    ("output_dir='~no.such/x'", ["output_dir=~no.such/x: whose home", "write it out"]),
    ("model.path='~no.such/x'", ["model.path=~no.such/x: whose home", "write it out"]),
    ("rollout.engine_args.x=3", ["+rollout.engine_args.x=3"]),
    ("+rollout.engine_args.seed=3", ["rollout.engine_args.seed", "rollout.seed"]),
    ("+model.tiny.seed=3", ["model.tiny", "use model=tiny"]),
    ("hydra.mode=foo", ["hydra.mode=foo", "RUN, MULTIRUN"]),
    ("hydra=null", ["hydra=null cannot be set", "hydra/launcher=specrl_local"]),
    ("hydra.launcher=null", ["hydra.launcher=null cannot be set"]),
    ("hydra.sweeper={}", ["hydra.sweeper={} cannot be set"]),
    ("hydra.launcher._target_=a.B", ["hydra.launcher._target_=a.B cannot be set"]),
    ("hydra/launcher=specrl_slurm,specrl_local", ["hydra/launcher=", "name one value"]),
    ("rollout.replicas=10001", ["rollout.replicas=10001", "from 1 to 10000"]),
    ("learner.tensor_parallel=10001", ["learner.data_parallel=10001", "from 1 to 10000"]),
]


@pytest.mark.parametrize("key", ["seed", "rollout.seed", "task.seed"])
def test_a_bad_seed_is_the_one_that_was_written(key):
    with pytest.raises(UserError, match=f"^{key}=-1 is out of range"):
        load([f"{key}=-1"])


@pytest.mark.parametrize(("override", "parts"), MISTAKES, ids=[mistake[0] for mistake in MISTAKES])
def test_a_mistake_is_one_line_with_the_key_and_the_fix(override, parts):
    with pytest.raises(UserError) as caught:
        load([override])
    line = str(caught.value)
    assert "\n" not in line
    assert [part for part in parts if part not in line] == []
    assert "hydra.cc" not in line
    assert "full_key" not in line


@pytest.mark.parametrize(
    ("key", "listed"),
    [
        ("task.nosuch", "task has name, prompt_style,"),
        ("evaluation.nosuch", "evaluation has every,"),
    ],
)
def test_a_key_like_no_other_lists_those_of_its_group_and_suggests_none(key, listed):
    with pytest.raises(UserError) as caught:
        load([f"{key}=1"])
    assert f"{key}=1: there is no {key}; {listed}" in str(caught.value)
    assert "did you mean" not in str(caught.value)


def test_a_draft_needs_a_path():
    with pytest.raises(UserError, match=r"drafter.model is empty; give it a value"):
        load(["drafter=draft_model", "drafter.model="])


@pytest.mark.parametrize(
    "uri",
    [
        "https://tracking.example/base",
        "http://[::1]:5000",
        "sqlite:///m.db",
        "sqlite:////data/my runs/m.db",
        "postgresql+psycopg2://user:word@host:5432/db",
        "postgresql:///db",
        "mysql+pymysql://host/db",
    ],
)
def test_an_address_that_mlflow_can_use_passes(uri):
    check_uri("tracking.uri", uri)


@pytest.mark.parametrize("override", ["+tracking.tags={a:1}", "+tracking.tags.a=1"])
def test_the_form_told_for_a_free_form_mapping_works(override):
    assert load([override, "+tracking.tags.b=2"]).tracking.tags == {"a": "1", "b": "2"}


@pytest.mark.parametrize("override", ["hydra/launcher=basic", "hydra.sweeper.max_batch_size=2"])
def test_what_hydra_does_for_sweeps_stays_usable(override):
    assert load([override]) == load()


@pytest.mark.parametrize(
    ("cache", "folder"), [(None, "~/.cache/specrl"), ("", "~/.cache/specrl"), ("/big", "/big")]
)
def test_the_cache_folder_needs_no_home(cache, folder, monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("SPECRL_CACHE", raising=False)
    if cache is not None:
        monkeypatch.setenv("SPECRL_CACHE", cache)
    assert load().model.cache_dir == folder


def test_an_unknown_key_in_a_users_own_file_names_the_file(tmp_path):
    folder = tmp_path / "experiment"
    folder.mkdir()
    (folder / "mine.yaml").write_text("# @package _global_\nrollout:\n  max_tokenz: 3\n")
    with pytest.raises(UserError, match=r"experiment/mine.yaml: .*did you mean rollout.max_tokens"):
        load(["experiment=mine", f"hydra.searchpath=[file://{tmp_path}]"])
