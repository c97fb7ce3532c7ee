"""How a command ends: its exit code, and the one line that says why."""

import sys

FAILED, MISTAKE, INTERRUPTED = 1, 2, 130


def tell(program: str, message: object, code: int) -> int:
    """One line, whatever the message holds; gives `code` back."""
    sys.stderr.write(f"{program}: {' '.join(str(message).split())}\n")
    return code
