"""How a command ends: its exit code, and the one line that says why."""

import argparse
import sys
from typing import NoReturn

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130


class OneLineParser(argparse.ArgumentParser):
    """Tells a mistake in one line, without the usage before it."""

    def error(self, message: str) -> NoReturn:
        sys.exit(tell(self.prog, f"{message}; see {self.prog} --help", MISTAKE))


def tell(program: str, message: object, code: int) -> int:
    """One line, whatever the message holds; gives `code` back."""
    sys.stderr.write(f"{program}: {' '.join(str(message).split())}\n")
    return code
