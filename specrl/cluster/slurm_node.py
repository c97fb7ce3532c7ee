"""The life of a task in a Slurm job: the first one holds Ray's head, the others join it."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from specrl.cluster.ray_actors import ray_environment
from specrl.cluster.ray_process import TO_THE_TASK, RayProcess
from specrl.cluster.slurm_door import Door, DoorKey
from specrl.cluster.slurm_ray import node_marker
from specrl.cluster.slurm_task import (
    ALLOCATION,
    PORTS,
    Allocation,
    SlurmTask,
    close_meeting,
    is_closed,
    new_token,
    wait_for_allocation,
)
from specrl.config.cluster import SlurmConfig
from specrl.errors import RunError
from specrl.network import free_port, listens

LOOK_S = 0.5


class Meeting:
    """On the first task: where the others find it until `end`, which lets them leave.

    `lost` is told, at once and in another thread, which node's task died before.
    """

    def __init__(self, task: SlurmTask, config: SlurmConfig, lost: Callable[[str], None]) -> None:
        self._folder = task.folder
        token = new_token()
        self._door = Door(task.address, token, lambda rank: lost(_died(task, rank)))
        self.allocation = Allocation(
            nodes=task.nodes,
            ray=f"{task.address}:{free_port(task.address, task.port)}",
            door=self._door.address,
            token=token,
            log_folder=str(task.folder),
            deadline_s=config.join_deadline_s,
        )
        found = {ALLOCATION: str(self.allocation.write(task.folder))}
        # Ray reads its secret once, when it is imported.
        os.environ.update(ray_environment() | self.allocation.ray_secret() | found)

    def end(self) -> None:
        """Safe to call twice."""
        os.environ.pop(ALLOCATION, None)
        close_meeting(self._folder)
        self._door.close()


@contextmanager
def ray_head(task: SlurmTask, config: SlurmConfig, meeting: Meeting) -> Iterator[None]:
    """On the first task: Ray's head until the end of the block, which ends the meeting too.

    Raises `RunError` when it does not start.
    """
    allocation = meeting.allocation
    port = allocation.ray.rpartition(":")[2]
    client_port = free_port(task.address, task.port + PORTS)
    arguments = [
        *("--head", f"--port={port}", f"--ray-client-server-port={client_port}"),
        "--include-dashboard=false",
    ]
    head = _started(task, config, allocation, arguments)
    try:
        end = time.monotonic() + config.join_deadline_s
        while not listens(allocation.ray):
            if head.exit_code() is not None or time.monotonic() > end:
                raise RunError(
                    f"Ray does not start: its log is {head.log}; if it is about a path or "
                    "space, set cluster.temp_dir to a short path with room"
                )
            time.sleep(LOOK_S)
        yield
    finally:
        meeting.end()  # before the head goes: that would look like the death of the others' Ray
        head.close()


def follow(task: SlurmTask, config: SlurmConfig) -> None:
    """On every other task: a part of Ray until the first one is done.

    Raises `RunError` when Ray ends here before, or the first task is gone.
    """
    for number in TO_THE_TASK:
        # The first task decides when the job ends, and its end is seen here.
        signal.signal(number, _leave_it_to_the_first)
    allocation = wait_for_allocation(task, config.join_deadline_s)
    if allocation is None:
        return
    try:
        key = DoorKey(allocation.door, allocation.token, task.rank)
    except OSError as error:
        if is_closed(task.folder):
            return
        raise RunError(f"{task.node(0)} cannot be reached at {allocation.door}: {error}") from error
    with ExitStack() as stack:
        done = _join(task, config, allocation, key, stack)
    if not done and not is_closed(task.folder):
        raise RunError(f"{task.node(0)} is gone")


def _join(
    task: SlurmTask, config: SlurmConfig, allocation: Allocation, key: DoorKey, stack: ExitStack
) -> bool:
    """Whether the first task was done, when it ended; `stack` ends Ray here."""
    node: RayProcess | None = None
    end = time.monotonic() + config.join_deadline_s
    while (done := key.wait(LOOK_S)) is None:
        if node is None and listens(allocation.ray):
            node = _started(task, config, allocation, [f"--address={allocation.ray}"])
            stack.callback(node.close)
        code = None if node is None else node.exit_code()
        if node is None or code is None:
            continue
        if code < 0 or time.monotonic() > end:
            raise RunError(
                f"Ray on {task.node(task.rank)} ended with code {code}; its log is {node.log}"
            )
        node = None  # to be tried again: the head answers before it lets anybody join
    return done


def _died(task: SlurmTask, rank: int) -> str:
    output = task.folder.parent / f"{task.job_id}_{rank}_log.out"
    return f"{task.node(rank)} died, its output is {output}"


def _leave_it_to_the_first(number: int, _frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, f"{signal.Signals(number).name}: the first task decides\n".encode())


def _started(
    task: SlurmTask, config: SlurmConfig, allocation: Allocation, arguments: list[str]
) -> RayProcess:
    resources = json.dumps({node_marker(task.rank): 1})
    return RayProcess(
        [
            f"--node-ip-address={task.address}",
            f"--resources={resources}",
            "--num-cpus=0",
            f"--num-gpus={config.gpus_per_node}",
            *arguments,
        ],
        task.ray_folder(config.temp_dir),
        task.folder / f"ray-{task.rank}.log",
        ray_environment() | allocation.ray_secret(),
    )
