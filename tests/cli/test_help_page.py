"""The help page is complete and its examples work."""

import shlex

import pytest

from specrl.cli.help import EXAMPLES, MEANINGS, choices_page, page
from specrl.config import tree
from specrl.config.compose import load
from specrl.config.knobs import run_knobs
from specrl.errors import UserError


def test_the_page_lists_every_group_choice_and_knob_of_the_run():
    text = page()
    for group, choices in tree.groups().items():
        assert f"{group}: {MEANINGS[group]}" in text
        for choice in choices:
            assert choice.name in text
            assert choice.about in text
    assert [knob.key for knob in run_knobs() if f"{knob.key} =" not in text] == []


def test_no_line_is_wider_than_a_terminal():
    assert [line for line in page().splitlines() if len(line) > 100] == []


@pytest.mark.parametrize("group", list(tree.groups()))
def test_the_example_of_a_group_passes_the_door(group):
    words = shlex.split(EXAMPLES[group])
    sweep = "-m" in words
    overrides = [word for word in words[1:] if word != "-m"]
    if sweep:
        overrides = [word.split(",")[0] for word in overrides]
    assert any(group in override.split("=")[0] for override in overrides)
    load(overrides)


def test_a_choice_shows_its_knobs_with_type_default_and_meaning():
    text = choices_page(["drafter=ngram"])
    assert "drafter.lookup_max = 4  [int]" in text
    assert "Longest n-gram looked up" in text
    assert "drafter.model (required)  [str]" in choices_page(["drafter=draft_model"])


def test_a_group_alone_shows_its_default_choice():
    assert choices_page(["drafter"]).startswith("drafter=eagle3:")
    assert "rl_zero_cpu" in choices_page(["experiment"])


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["drafter=ngram", "steps=3"], ["drafter=ngram: ", "steps = 100  [int]"]),
        (["drafter.k"], ["drafter=eagle3:\n  drafter.k = 3  [Any]"]),
        (["drafter.lookup_max=3"], ["drafter=ngram:\n  drafter.lookup_max = 4"]),
        (["model=tiny", "model.path"], ["model=tiny:\n  model.path = "]),
        (["evaluation"], ["evaluation.every = 10", "evaluation.samples = 4"]),
    ],
)
def test_a_knob_shows_its_type_default_and_meaning(words, shown):
    text = choices_page(words)
    assert [part for part in shown if part not in text] == []


def test_an_experiment_shows_what_it_sets():
    assert "override /model: qwen3_8b" in choices_page(["experiment=rl_think"])


@pytest.mark.parametrize("word", ["drafer", "drafer=ngram", "drafter=ngrm"])
def test_help_for_what_does_not_exist_says_what_does(word):
    with pytest.raises(UserError, match="did you mean drafter"):
        choices_page([word])
