"""The arguments of the `specrl` command, before Hydra sees them."""

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser

from specrl.errors import UserError


def overrides_last(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(flags, overrides): Hydra's parser takes overrides on one side of a flag only.

    Raises `UserError` for a flag that does not exist.
    """
    parser = get_args_parser()
    parser.error = _refuse  # type: ignore[method-assign]  # its exit
    overrides = list(parser.parse_intermixed_args(list(argv)).overrides or [])
    rest = list(overrides)
    flags = [word for word in argv if not (word in rest and _take(rest, word))]
    return flags, overrides


def check_flags(flags: Sequence[str], overrides: Sequence[str]) -> None:
    """Raises `UserError` for flags that mean nothing here, or nothing together."""
    args = get_args_parser().parse_args([*flags, *overrides])
    if args.package and not args.cfg:
        raise UserError(
            f"--package {args.package} goes with --cfg; write --cfg job --package {args.package}"
        )
    if args.resolve and not args.cfg:
        raise UserError("--resolve goes with --cfg; write --cfg job --resolve")
    if args.run and args.multirun:
        raise UserError("--run is one run and -m a sweep; leave one of them out")
    if args.experimental_rerun:
        raise UserError(
            f"--experimental-rerun={args.experimental_rerun} is not supported; the command of a "
            "run goes on with it, and rerun=true starts it again"
        )
    if args.config_dir and not Path(args.config_dir).is_dir():
        raise UserError(f"--config-dir={args.config_dir} is no folder; name one with YAML groups")


def wants_help(argv: Sequence[str]) -> bool:
    """Whether the page for a person is asked for (Hydra's own is --hydra-help)."""
    return "--help" in argv or "-h" in argv


def _take(rest: list[str], word: str) -> bool:
    rest.remove(word)
    return True


def _refuse(message: str) -> NoReturn:
    words = message.removeprefix("unrecognized arguments: ")
    if words == message:
        raise UserError(f"{message}; see specrl --help")
    name, _, value = words.split()[0].lstrip("-").partition("=")
    raise UserError(
        f"{words} is not a flag; knobs take no dashes: write {name}={value or '<value>'}"
    )
