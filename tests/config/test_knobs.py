"""Every knob is documented, and a new or changed one shows in a diff of tests/knobs.txt."""

from pathlib import Path

from specrl.config.knobs import all_knobs, listing

AGREED = Path(__file__).parents[1] / "knobs.txt"


def test_every_knob_has_a_help_text():
    assert [knob.key for knob in all_knobs() if not knob.help] == []


def test_help_texts_are_short_sentences():
    assert [knob.key for knob in all_knobs() if not knob.help.endswith(".")] == []
    assert [knob.key for knob in all_knobs() if len(knob.help) > 120] == []


def test_knobs_are_those_agreed_on():
    """After a change that is meant: python tests/config/test_knobs.py."""
    assert listing() == AGREED.read_text()


def test_knobs_of_groups_and_of_the_run_are_listed():
    keys = {knob.key for knob in all_knobs()}
    assert {"drafter.k", "rollout.engine_args", "evaluation.every", "steps"} <= keys
    (required,) = [knob for knob in all_knobs() if knob.key == "drafter.model"]
    assert (required.default, required.choice) == ("required", "drafter=draft_model")


if __name__ == "__main__":
    AGREED.write_text(listing())
