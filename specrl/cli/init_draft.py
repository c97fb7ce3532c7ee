"""specrl-init-draft: builds the draft that a run would start from, alone."""

import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from specrl.cli.arguments import wants_help
from specrl.cli.outcome import FAILED, INTERRUPTED, MISTAKE, tell
from specrl.config.compose import load
from specrl.config.train import TrainConfig
from specrl.errors import RunError, UserError

PROGRAM = "specrl-init-draft"

PAGE = """\
specrl-init-draft [GROUP=CHOICE | KNOB=VALUE]...

Builds the first weights of a learned draft, the same that a run of `specrl` with these words would
start from: responses of the policy, then a fit to its hidden states. It is kept in
<model.cache_dir>/drafts; runs with the same policy, init and draft find it there, whatever their
drafter.k. After Ctrl-C or a kill the same command goes on where it was.

  specrl-init-draft                                 for the default run
  specrl-init-draft init=ultrachat                  from general chat prompts
  specrl-init-draft init=dapo init.num_prompts=96   fewer prompts: a point of the data curve
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
        flags = [word for word in argv if word.startswith("-")]
        if flags:
            raise UserError(f"{flags[0]} is not a flag; see specrl-init-draft --help")
        sys.stdout.write(f"{build(load(argv))}\n")
    except UserError as error:
        return tell(PROGRAM, error, MISTAKE)
    except RunError as error:
        return tell(PROGRAM, error, FAILED)
    except KeyboardInterrupt:
        return tell(PROGRAM, "interrupted; the same command goes on from here", INTERRUPTED)
    except Exception:
        traceback.print_exc()
        return FAILED
    return 0


def _build(config: TrainConfig) -> str:
    # Here and not above: torch, vLLM and Ray load only once the config is known to be right.
    from specrl.build import init_draft
    from specrl.draft_init import read_record
    from specrl.telemetry.console import ConsoleSink

    folder = init_draft(config, ConsoleSink(Path(config.output_dir)))
    record = read_record(folder)
    if record is None:
        return f"{folder}\n  given by init.path; no cost, no estimate"
    return "\n".join([str(folder), *(f"  {line}" for line in record.lines())])
