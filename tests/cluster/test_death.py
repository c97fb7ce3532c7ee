"""What a person is told of a process that is gone."""

import pytest

from specrl.cluster.death import cause_of

ENDED = (
    "The actor died unexpectedly before finishing this task.\n\tclass_name: _Host\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR "
    "Worker exit detail: "
)
SILENT = f"{ENDED}Worker unexpectedly exits with a connection error code 2. End of file."
LEFT = f"{ENDED}Worker exits unexpectedly. Worker exits with an exit code"
CRASHED = "loading\n*** SIGSEGV received at time=1796115372 on cpu 0 ***\nPC: @ 0x7fbd\n"


@pytest.mark.parametrize(
    ("error", "output", "out_of_memory", "cause"),
    [
        (SILENT, CRASHED, False, "it crashed with SIGSEGV"),
        (SILENT, "a line", True, "killed by SIGKILL: out of memory"),
        (SILENT, "", False, "it ended without a word, as by SIGKILL: most likely for memory"),
        (f"{LEFT} 4.", "", False, "it left with exit code 4"),
        (
            f"{LEFT} 1. The process receives a SIGTERM.",
            "",
            False,
            "it left with exit code 1 after SIGTERM",
        ),
        ("\nIts node has died.\nMore", "", True, "Its node has died."),
        (ValueError(), "", False, "ValueError"),
    ],
)
def test_exit_code_or_signal_are_named_as_far_as_they_are_known(
    error, output, out_of_memory, cause
):
    assert cause_of(error, output, out_of_memory) == cause
