"""At most one guess is read out of any response."""

import pytest

from specrl.tasks.final_answer import final_number, marked_answer, plain_number, same_number


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so Answer: 42", "42"),
        ("**Answer:** $42$.", "42"),
        ("Answer:\n\n42\nDone.", "42"),
        ("thus \\boxed{\\frac{1}{2}} holds", "\\frac{1}{2}"),
        ("#### 1,234", "1,234"),
        ("Answer: 1\nno, \\boxed{2}", "2"),
        ("\\boxed{2}\nAnswer: 3", "3"),
        ("Answer: \\(x+1\\)", "x+1"),
        ("Answer: $\\boxed{7}$", "7"),
        ("nothing marked: 42", None),
        ("Answer:", None),
        ("\\boxed{}", None),
        ("\\boxed{42", None),
        ("Answer: 34}{33", None),
        ("Answer: " + "9" * 1000, None),
    ],
)
def test_the_last_marked_answer_is_taken_without_decoration(text, answer):
    assert marked_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("3 + 4 = 7", "7"),
        ("The answer is 1,234.", "1234"),
        ("It is -5.", "-5"),
        ("5-3", "3"),
        ("Answer: 3 + 4 = 7", "7"),
        ("Answer: 7 or 8", None),
        ("Answer: 1, 2, 3, 4", None),
        ("Answer: 1,2,3", None),
        ("Answer: 12 apples", "12"),
        ("Answer: 5\nlater 9", "5"),
        ("Answer: five", None),
        ("\\boxed{\u22123}", "-3"),
        ("Answer: -8.94e+8", "-8.94e+8"),
        ("Answer: 1e999999999", None),
        ("\uff14\uff12 and \u0664\u0662", None),
        ("", None),
        ("no digits", None),
    ],
)
def test_the_final_number_is_one_guess(text, number):
    assert final_number(text) == number


def test_a_cut_response_has_no_answer_at_its_very_end():
    assert final_number("so 12", cut=True) is None
    assert final_number("Answer: 12", cut=True) is None
    assert final_number("Answer: 12\nbecause", cut=True) == "12"
    assert final_number("\\boxed{12} beca", cut=True) == "12"
    assert final_number("\\boxed{12", cut=True) is None


def test_numbers_compare_by_value():
    assert same_number("42", "42.0")
    assert not same_number("42", "42.5")
    assert plain_number("$1,000.50$") == "1000.50"
    assert plain_number("12 apples") is None
    assert plain_number("") is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 10_000,
        "\\boxed{" * 140_000,
        "{" * 1_000_000,
        "9" * 1_000_000,
        "1," * 500_000,
        "answer" + " " * 1_000_000,
        "answer: " * 125_000,
        "#" * 1_000_000,
        "-." * 500_000,
        "\x00" * 1_000_000,
    ],
)
def test_enormous_and_nested_responses_are_done_at_once(text):
    assert final_number(text) is None or text.startswith("1,")
    assert marked_answer(text) is None
