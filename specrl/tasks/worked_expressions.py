"""Arithmetic expressions solved one operation a line, one decimal place at a time."""

import ast
from decimal import Decimal, localcontext

EXACT_DIGITS = 120  # of sums and products, more than any generator here reaches
QUOTIENT_DIGITS = 12
_SIGNS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.LShift: "<<",
    ast.RShift: ">>",
}


def decimal_steps(expression: str, whole: bool) -> list[str]:
    """A line for each operation, in the order of precedence and from left to right.

    `whole`: "/" is Python's "//". Sums and products go place by place of the second number, so
    that each result is one easy step from the one before.
    """
    lines: list[str] = []
    with localcontext(prec=EXACT_DIGITS):
        _decimal_value(_parsed(expression), whole, lines)
    return lines


def hex_steps(expression: str) -> list[str]:
    """A line for each operation of an expression in hexadecimal numbers."""
    lines: list[str] = []
    _hex_value(_parsed(expression), lines)
    return lines


def add(a: Decimal, b: Decimal) -> str:
    """The line for a + b."""
    return _sum(a, "+", b)


def multiply(a: Decimal, b: Decimal) -> str:
    """The line for a * b."""
    negative = (a < 0) != (b < 0) and a * b != 0
    p, q = abs(a), abs(b)
    if len(_places(q)) > len(_places(p)):
        p, q = q, p
    normal = f"{plain(p)} * {plain(q)}"
    products = [(place, p * place) for place in _places(q)]
    steps = [f"{plain(p)} * {plain(place)} = {plain(product)}" for place, product in products]
    total = products[0][1]
    for _, product in products[1:]:
        steps.append(f"{plain(total)} + {plain(product)} = {plain(total + product)}")
        total += product
    return _line(f"{plain(a)} * {plain(b)}", normal, steps, a * b, negative)


def plain(value: Decimal) -> str:
    """Without exponent and without zeros that say nothing."""
    text = f"{value:f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _parsed(expression: str) -> ast.expr:
    # Numbers keep their text: as floats they would lose digits.
    return ast.parse(expression.strip(), mode="eval").body


def _decimal_value(node: ast.expr, whole: bool, lines: list[str]) -> Decimal:
    if isinstance(node, ast.UnaryOp):
        value = _decimal_value(node.operand, whole, lines)
        if isinstance(node.operand, ast.BinOp) and isinstance(node.op, ast.USub):
            lines.append(f"-({plain(value)}) = {plain(-value)}")
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant):
        return Decimal(str(node.value))
    assert isinstance(node, ast.BinOp), ast.dump(node)
    left = _decimal_value(node.left, whole, lines)
    right = _decimal_value(node.right, whole, lines)
    sign = _SIGNS[type(node.op)]
    if sign == "*":
        lines.append(multiply(left, right))
        return left * right
    if sign == "/":
        value, line = _quotient(left, right, whole)
        lines.append(line)
        return value
    lines.append(_sum(left, sign, right))
    return left + right if sign == "+" else left - right


def _hex_value(node: ast.expr, lines: list[str]) -> int:
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, int), node.value
        return node.value
    assert isinstance(node, ast.BinOp), ast.dump(node)
    left, right = _hex_value(node.left, lines), _hex_value(node.right, lines)
    sign = _SIGNS[type(node.op)]
    value = {
        "+": lambda: left + right,
        "-": lambda: left - right,
        "*": lambda: left * right,
        "<<": lambda: left << right,
        ">>": lambda: left >> right,
    }[sign]()
    lines.append(f"{left:#x} {sign} {right:#x} = {value:#x}")
    return value


def _sum(a: Decimal, sign: str, b: Decimal) -> str:
    """Turned into a sum or difference p >= q of numbers without sign, then place by place of q."""
    signed = b if sign == "+" else -b
    value = a + signed
    same = (a < 0) == (signed < 0) or signed == 0
    p, q = abs(a), abs(signed)
    if not same and q > p:
        p, q = q, p
    step = "+" if same else "-"
    normal = f"{plain(p)} {step} {plain(q)}"
    steps = []
    total = p
    for place in _places(q):
        after = total + place if same else total - place
        steps.append(f"{plain(total)} {step} {plain(place)} = {plain(after)}")
        total = after
    return _line(f"{plain(a)} {sign} {plain(b)}", normal, steps, value, value < 0)


def _line(literal: str, normal: str, steps: list[str], value: Decimal, negative: bool) -> str:
    """`literal = normal: steps`, without the parts that would repeat another."""
    normal = f"-({normal})" if negative else normal
    head = literal if normal == literal else f"{literal} = {normal}"
    if len(steps) == 1:
        return f"{head} = {plain(value)}"
    ending = f", so {plain(value)}" if negative else ""
    return f"{head}: {', '.join(steps)}{ending}"


def _quotient(a: Decimal, b: Decimal, whole: bool) -> tuple[Decimal, str]:
    head = f"{plain(a)} / {plain(b)}"
    if not whole:
        with localcontext(prec=QUOTIENT_DIGITS):
            value = a / b
        return value, f"{head} = {plain(value)}"
    quotient = Decimal(int(a) // int(b))
    product = b * quotient
    rest = f", {plain(product)} + {plain(a - product)} = {plain(a)}" if a != product else ""
    steps = f"{plain(b)} * {plain(quotient)} = {plain(product)}{rest}"
    return quotient, f"{head}: {steps}, so {plain(quotient)}"


def _places(value: Decimal) -> list[Decimal]:
    """345.6 as 300, 40, 5, 0.6; zero as itself."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), value
    top = exponent + len(digits) - 1
    places = [Decimal(d).scaleb(top - i) for i, d in enumerate(digits) if d]
    return places or [Decimal(0)]
