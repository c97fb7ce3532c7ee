"""The final answer of a response: at most one guess, so that listing answers cannot pay.

A marked answer is the content of the last `\\boxed{...}`, the rest of the line after the last
`Answer:` (or the next line with text), or what follows the last `####`, whichever comes last. A
number is decimal digits with optional sign, thousands commas, fraction and small exponent.
"""

import re
from decimal import Decimal

# Only the end of a response is read, which bounds the work on enormous ones.
TAIL_CHARS = 10_000
MAX_ANSWER_CHARS = 256
MAX_DIGITS = 64

_BOXED = "\\boxed{"
_LINE_MARK = re.compile(r"(?:answer\s{0,3}:|####)[\s*]*", re.IGNORECASE)
_NUMBER = re.compile(
    r"(?P<sign>(?<![\w)\]}])[-+])?"
    r"(?P<digits>\d(?:[\d,]*\d)?(?:\.\d+)?(?:[eE][-+]?\d{1,2}(?!\d))?|(?<!\d)\.\d+)",
    re.ASCII,
)
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", re.ASCII)
_DECORATION = " \t\r\n*$`.,;:!\"'"


def marked_answer(text: str, cut: bool = False) -> str | None:
    """The marked answer without decoration; None when there is none or it is malformed.

    `cut` says that the response ran into its length limit: then an answer that reaches the very
    end of the text may be incomplete and does not count.
    """
    text = text[-TAIL_CHARS:]
    box, line = text.rfind(_BOXED), _last_line_mark(text)
    if box < 0 and line is None:
        return None
    if line is None or box >= line.start():
        end = _closing_brace(text, box + len(_BOXED))
        answer = None if end is None else text[box + len(_BOXED) : end]
    else:
        newline = text.find("\n", line.end())
        if cut and newline < 0:
            return None
        answer = text[line.end() : newline if newline >= 0 else len(text)]
    return None if answer is None else _cleaned(answer)


def final_number(text: str, cut: bool = False) -> str | None:
    """The one number a response ends on, as plain digits; None when there is no single one.

    With a marked answer it is that answer's number: the only one, or the only one after its last
    "=". Without a mark it is the last number of the text, unless the response was cut.
    """
    if has_mark(text):
        answer = marked_answer(text, cut)
        numbers = [] if answer is None else _numbers(answer.rpartition("=")[2])
        return numbers[0] if len(numbers) == 1 else None
    numbers = [] if cut else _numbers(text[-TAIL_CHARS:])
    return numbers[-1] if numbers else None


def has_mark(text: str) -> bool:
    """True when the end of the response marks an answer, well-formed or not."""
    text = text[-TAIL_CHARS:]
    return _BOXED in text or _last_line_mark(text) is not None


def plain_number(text: str) -> str | None:
    """`text` as plain digits when it is one number and nothing else."""
    text = text.strip(_DECORATION).replace("\u2212", "-")
    numbers = _numbers(text)
    return numbers[0] if len(numbers) == 1 and _NUMBER.fullmatch(text) else None


def same_number(a: str, b: str) -> bool:
    """Equality of two results of `plain_number`."""
    return Decimal(a) == Decimal(b)


def _numbers(text: str) -> list[str]:
    """All numbers of a text as plain digits; a comma-separated list counts as several."""
    found = []
    for match in _NUMBER.finditer(text.replace("\u2212", "-")):
        sign, digits = match["sign"] or "", match["digits"]
        parts = [digits.replace(",", "")] if _THOUSANDS.fullmatch(digits) else digits.split(",")
        found += [sign + part for part in parts if 0 < len(part) <= MAX_DIGITS]
    return found


def _last_line_mark(text: str) -> re.Match[str] | None:
    return max(_LINE_MARK.finditer(text), key=lambda match: match.start(), default=None)


def _closing_brace(text: str, start: int) -> int | None:
    """Position of the brace that closes one opened before `start`; None when it stays open."""
    depth = 1
    for position in range(start, len(text)):
        if text[position] == "{":
            depth += 1
        elif text[position] == "}":
            depth -= 1
        if depth == 0:
            return position
    return None


def _cleaned(answer: str) -> str | None:
    """Without markdown and math delimiters; None when empty, unbalanced or too long."""
    answer = answer.strip(_DECORATION)
    for opening, closing in (("\\(", "\\)"), ("\\[", "\\]")):
        if answer.startswith(opening) and answer.endswith(closing):
            answer = answer[2:-2]
    answer = answer.strip(_DECORATION)
    if _closing_brace(answer + "}", 0) != len(answer):
        return None
    return answer if 0 < len(answer) <= MAX_ANSWER_CHARS else None
