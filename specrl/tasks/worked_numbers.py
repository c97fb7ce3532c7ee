"""Worked solutions about single numbers: divisors, primes, bits, powers, formats, dice."""

import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from functools import reduce
from typing import Any

from specrl.tasks.worked_expressions import add, multiply, plain

Metadata = Mapping[str, Any]


def gcd_steps(metadata: Metadata) -> list[str]:
    """Euclid's divisions, number after number."""
    return _euclid_of_all([int(n) for n in metadata["numbers"]])


def lcm_steps(metadata: Metadata) -> list[str]:
    """lcm(a, b) = a / gcd * b, number after number."""
    first, *others = (int(n) for n in metadata["numbers"])
    lines = []
    for other in others:
        divisor = math.gcd(first, other)
        lines += _euclid(first, other)
        lines.append(f"{first} / {divisor} = {first // divisor}")
        lines.append(multiply(Decimal(first // divisor), Decimal(other)))
        first = first // divisor * other
    return lines


def fraction_steps(metadata: Metadata) -> list[str]:
    """Both parts divided by their greatest common divisor."""
    numerator, denominator = int(metadata["numerator"]), int(metadata["denominator"])
    divisor = math.gcd(numerator, denominator)
    return [
        *_euclid(denominator, numerator),
        f"{numerator} / {divisor} = {numerator // divisor}",
        f"{denominator} / {divisor} = {denominator // divisor}",
    ]


def prime_steps(metadata: Metadata) -> list[str]:
    """The smallest factor divided out until a prime is left."""
    *smaller, last = (int(n) for n in metadata["factors"])
    rest = int(metadata["number"])
    lines = []
    for factor in smaller:
        lines.append(f"{rest} / {factor} = {rest // factor}")
        rest //= factor
    return [*lines, f"{last} is prime"]


def bit_steps(metadata: Metadata) -> list[str]:
    """The binary digits in groups of four, counted group by group."""
    binary = f"{int(metadata['number']):b}"
    binary = binary.zfill(-(-len(binary) // 4) * 4)
    groups = [binary[i : i + 4] for i in range(0, len(binary), 4)]
    counts = [group.count("1") for group in groups]
    lines = [f"{metadata['number']} is {' '.join(groups)} in binary"]
    lines += [f"{group} has {count}" for group, count in zip(groups, counts, strict=True)]
    return [*lines, f"{' + '.join(map(str, counts))} = {sum(counts)}"]


def leg_steps(metadata: Metadata, generator: Any) -> list[str]:
    """Legs per kind of animal, then their sum."""
    legs_of = sys.modules[type(generator).__module__].ANIMALS
    legs = {name: count * legs_of[name] for name, count in metadata["animals"].items()}
    lines = [
        f"{name}: {count} * {legs_of[name]} = {legs[name]}"
        for name, count in metadata["animals"].items()
    ]
    first, *others = legs.values()
    for other in others:
        lines.append(add(Decimal(first), Decimal(other)))
        first += other
    return lines


def power_steps(metadata: Metadata) -> list[str]:
    """Successive powers to five digits, then the reciprocal of a negative exponent."""
    base, exponent = float(metadata["base"]), int(metadata["exponent"])
    lines = [f"{base}^{n} = {base**n:.4e}" for n in range(2, abs(exponent) + 1)]
    if exponent < 0:
        lines.append(f"1 / {base ** abs(exponent):.4e} = {base**exponent:.4e}")
    return lines or [f"{base}^{exponent} = {base**exponent:.4e}"]


def three_figures(answer: str) -> str:
    """In scientific notation, as the power questions ask."""
    return f"{Decimal(answer):.2e}"


def format_steps(metadata: Metadata) -> list[str]:
    """Every candidate as a plain number, then the one that is asked for."""
    numbers = ", ".join(plain(Decimal(repr(number))) for number in metadata["candidates"])
    return [f"As plain numbers: {numbers}", f"The {metadata['size']} is {metadata['solution']}"]


def dice_steps(metadata: Metadata) -> list[str]:
    """The number of ways that reach the target over the number of outcomes."""
    puzzle = metadata["puzzle"]
    sides = [int(die.split("d")[1]) for die in puzzle["dice_str"].split(", ")]
    ways = [1]
    for size in sides:
        ways = [sum(ways[max(0, total - size) : total]) for total in range(1, len(ways) + size)]
        ways = [0, *ways]
    outcomes = math.prod(sides)
    enough = sum(ways[int(puzzle["target"]) :])
    divisor = math.gcd(enough, outcomes)
    return [
        f"{' * '.join(map(str, sides))} = {outcomes} outcomes",
        f"{puzzle['target']} or higher: {enough} outcomes",
        f"{enough} / {divisor} = {enough // divisor}",
        f"{outcomes} / {divisor} = {outcomes // divisor}",
    ]


def _euclid_of_all(numbers: list[int]) -> list[str]:
    pairs: list[str] = []

    def fold(a: int, b: int) -> int:
        pairs.extend(_euclid(a, b))
        return math.gcd(a, b)

    reduce(fold, numbers)
    return pairs


def _euclid(a: int, b: int) -> list[str]:
    a, b = max(a, b), min(a, b)
    lines = []
    x, y = a, b
    while y:
        lines.append(f"{x} = {y} * {x // y} + {x % y}")
        x, y = y, x % y
    return [*lines, f"gcd({a}, {b}) = {x}"]
