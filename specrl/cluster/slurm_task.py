"""What one task of a Slurm job knows: its node, its place among the others, where they meet."""

import json
import os
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from specrl.durable import write_atomically
from specrl.errors import RunError
from specrl.network import address_of

NODES = "SPECRL_NODES"
ADDRESSES = "SPECRL_NODE_ADDRESSES"
ALLOCATION = "SPECRL_ALLOCATION"
"""Environment of a job's tasks: names and addresses of its nodes in order, comma-separated; on the
first task, path of the `Allocation` file."""

BATCH_LINES = (
    f'export {NODES}="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | paste -sd,)"',
    f'export {ADDRESSES}="$(for node in ${{{NODES}//,/ }}; do scontrol -o show node "$node" | '
    'sed -n "s/.*NodeAddr=\\([^ ]*\\).*/\\1/p"; done | paste -sd,)"',
)
"""The batch script's part of it: a task may live in a container without Slurm's commands."""

MEETING_POINT_S = 0.2  # between two looks at it
FIRST_PORT, PORTS = 20000, 12000  # above Ray's own worker ports, below the kernel's free choice


@dataclass(frozen=True)
class SlurmTask:
    """This process in its job. `folder` is the job's own on a file system that all nodes share."""

    job_id: int
    rank: int
    nodes: tuple[str, ...]
    address: str
    folder: Path

    @property
    def port(self) -> int:
        """Where Ray's head of this job listens if nobody else does; two jobs differ."""
        return FIRST_PORT + self.job_id % PORTS

    def ray_folder(self, base: str | None) -> Path:
        """This task's own; short, as Ray puts sockets below it."""
        return Path(base or "/tmp") / f"specrl-{os.getuid()}-{self.job_id}-{self.rank}"

    def node(self, rank: int) -> str:
        """The node as messages name it."""
        return f"{self.nodes[rank]} (rank {rank} of Slurm job {self.job_id})"


def this_task(folder: Path, env: Mapping[str, str] = os.environ) -> SlurmTask:
    """The task that asks. `folder` holds the files of all attempts of the job."""
    rank = int(env["SLURM_PROCID"])
    nodes = tuple(env[NODES].split(","))
    addresses = env[ADDRESSES].split(",")
    assert len(addresses) == len(nodes) > rank, (nodes, addresses, rank)
    job_id = int(env["SLURM_JOB_ID"])
    attempt = env.get("SLURM_RESTART_COUNT", "0")
    own = folder / f"{job_id}-attempt{attempt}"
    own.mkdir(parents=True, exist_ok=True)
    return SlurmTask(job_id, rank, nodes, address_of(addresses[rank]), own)


@dataclass(frozen=True)
class Allocation:
    """Ray of a job as its first task started it; the other tasks join at `door`.

    `ray` and `door` are "address:port"; `token` lets in, and nobody else reads the file.
    """

    nodes: tuple[str, ...]
    ray: str
    door: str
    token: str
    log_folder: str
    deadline_s: float

    def write(self, folder: Path) -> Path:
        """Where every task finds it."""
        path = meeting_point(folder)
        write_atomically(path, json.dumps(asdict(self)), mode=0o600)
        return path

    @classmethod
    def read(cls, path: Path) -> "Allocation":
        values = json.loads(path.read_text(encoding="utf-8"))
        return cls(**values | {"nodes": tuple(values["nodes"])})

    @classmethod
    def here(cls) -> "Allocation | None":
        """That of the job this process drives; None outside of one."""
        path = os.environ.get(ALLOCATION)
        return None if path is None else cls.read(Path(path))

    def ray_secret(self) -> dict[str, str]:
        """Environment that every process of this Ray needs, and that wins over a user's own."""
        return {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token}


def new_token() -> str:
    """A secret of one job."""
    return secrets.token_hex(16)


def meeting_point(folder: Path) -> Path:
    """File of the `Allocation` in the job's folder."""
    return folder / "allocation.json"


def close_meeting(folder: Path) -> None:
    """Removes the secret, and tells a task that comes late that there is nothing to join."""
    _closed(folder).touch()
    meeting_point(folder).unlink(missing_ok=True)


def wait_for_allocation(task: SlurmTask, deadline_s: float) -> Allocation | None:
    """What the first task wrote; None when it is done already.

    Raises `RunError` when it wrote nothing within the deadline.
    """
    path = meeting_point(task.folder)
    end = time.monotonic() + deadline_s
    while time.monotonic() < end:
        with suppress(FileNotFoundError):
            return Allocation.read(path)
        if is_closed(task.folder):
            return None
        time.sleep(MEETING_POINT_S)
    raise RunError(
        f"{task.node(0)} has said nothing for {deadline_s:.0f} s ({path} is missing); "
        "raise cluster.join_deadline_s, and put output_dir where every node sees it"
    )


def is_closed(folder: Path) -> bool:
    """Whether the first task is done."""
    return _closed(folder).exists()


def _closed(folder: Path) -> Path:
    return folder / "closed"
