"""One process a run folder."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest

from specrl.errors import UserError
from specrl.run_folder import exclusive, logging_to

HOLD = (
    "import sys, time; from pathlib import Path; from specrl.run_folder import exclusive\n"
    "with exclusive(Path(sys.argv[1])):\n"
    "    print('held', flush=True); sys.stdin.read()"
)


def test_a_second_process_is_refused_with_the_holder_s_number(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=pipe, stdout=pipe
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(UserError, match=str(holder.pid)), exclusive(folder):
            pass
        holder.kill()
        holder.wait()
        with exclusive(folder):
            pass


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="output_dir"), exclusive(tmp_path / "file" / "run"):
        pass


def test_log_records_go_to_the_file_only_while_asked(tmp_path: Path) -> None:
    logger = logging.getLogger("specrl.test")
    with logging_to(tmp_path / "run.log"):
        logger.debug("inside")
    logger.warning("outside")
    text = (tmp_path / "run.log").read_text()
    assert "inside" in text
    assert "outside" not in text
