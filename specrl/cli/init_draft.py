"""specrl-init-draft: builds the draft that a run would start from, alone."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from specrl.cli.arguments import overrides_last, wants_help
from specrl.cli.outcome import FAILED, INTERRUPTED, MISTAKE, tell
from specrl.cli.train import DRY_RUN, checked_plan, hand_to_hydra
from specrl.config.train import TrainConfig
from specrl.errors import RunError, UserError
from specrl.sweep.possible import check_possible

PROGRAM = "specrl-init-draft"
SHOWING = ("--cfg", "-c", "--package", "-p", "--resolve")

PAGE = """\
specrl-init-draft [GROUP=CHOICE | KNOB=VALUE]...

Builds the first weights of a learned draft, the same that a run of `specrl` with these words would
start from: responses of the policy, then a fit to its hidden states. It is kept in
<model.cache_dir>/drafts; runs with the same policy, init and draft find it there, whatever their
drafter.k. After Ctrl-C or a kill the same command goes on where it was.

  specrl-init-draft                                 for the default run
  specrl-init-draft init=ultrachat                  from general chat prompts
  specrl-init-draft init=dapo init.num_prompts=96   fewer prompts: a point of the data curve
  specrl-init-draft [...] --dry-run                 what would be built, or is there; builds nothing
  specrl-init-draft [...] --cfg job                 the composed config
  specrl init --help                                every knob of an init

Exit code: 0 done, 1 the build failed, 2 a mistake in the command, 130 interrupted."""

Build = Callable[[TrainConfig], str]


def main() -> None:
    """Console script."""
    sys.exit(launch(sys.argv[1:], _build))


def launch(argv: Sequence[str], build: Build) -> int:
    """Exit code of `specrl-init-draft ARGV`; `build` gives the lines to print at the end."""
    if wants_help(argv):
        sys.stdout.write(f"{PAGE}\n")
        return 0
    try:
        return _checked(argv, build)
    except UserError as error:
        return tell(PROGRAM, error, MISTAKE)
    except RunError as error:
        return tell(PROGRAM, error, FAILED)
    except KeyboardInterrupt:
        return tell(PROGRAM, "interrupted; the same command goes on from here", INTERRUPTED)
    except Exception:
        traceback.print_exc()
        return FAILED


def _checked(argv: Sequence[str], build: Build) -> int:
    dry = DRY_RUN in argv
    flags, overrides = overrides_last([word for word in argv if word != DRY_RUN])
    other = next(
        (word for word in flags if word.startswith("-") and word.partition("=")[0] not in SHOWING),
        None,
    )
    if other is not None:
        raise UserError(f"{other} is not a flag here; see specrl-init-draft --help")
    plan = checked_plan(flags, overrides)
    if plan is None and not dry:
        return hand_to_hydra(flags, overrides)
    if plan is None or plan.sweep:
        raise UserError("this builds the draft of one run; leave out --cfg and what is a sweep")
    config = plan.tasks[0].config
    check_possible(config)
    sys.stdout.write(f"{(_foreseen if dry else build)(config)}\n")
    return 0


def _foreseen(config: TrainConfig) -> str:
    from specrl.build import foreseen_draft

    return "dry run: " + "\n  ".join(foreseen_draft(config))


def _build(config: TrainConfig) -> str:
    # Here and not above: torch, vLLM and Ray load only once the config is known to be right.
    from specrl.build import init_draft
    from specrl.draft_record import read_record
    from specrl.telemetry.console import ConsoleSink

    folder = init_draft(config, ConsoleSink(Path(config.output_dir)))
    record = read_record(folder)
    if record is None:
        return f"{folder}\n  given by init.path; no cost, no estimate"
    return "\n".join([str(folder), *(f"  {line}" for line in record.lines())])
