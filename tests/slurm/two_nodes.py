"""A real Slurm of twice two nodes on this machine, without accounting, as long as it is wanted.

    python tests/slurm/two_nodes.py FOLDER COMMAND ...

runs COMMAND with SLURM_CONF set, then takes the cluster down. Needs slurmctld, slurmd and munged
(Debian: slurm-wlm, munge) and root: the nodes are mount and host-name namespaces of their own, so
that they share files below FOLDER and not /dev/shm, as machines would. Jobs of the partition
"test" keep the first two nodes. The others are those of "low" and "abrupt", which a job of "urgent"
pre-empts: with a grace time, and without.
"""

import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

PROGRAMS = ("slurmctld", "slurmd", "munged", "unshare")
START_S = 60.0
CANCEL_S = 20.0
KILL_WAIT_S = 5
GRACE_S = 90
NODES = {f"n{number}": f"127.0.1.{number}" for number in (1, 2, 3, 4)}
PARTITIONS = (
    "PartitionName=test Nodes=n1,n2 Default=YES OverSubscribe=FORCE:4 PreemptMode=OFF",
    f"PartitionName=low Nodes=n3,n4 PriorityTier=1 GraceTime={GRACE_S}",
    "PartitionName=abrupt Nodes=n3,n4 PriorityTier=1",
    "PartitionName=urgent Nodes=n3,n4 PriorityTier=2 PreemptMode=OFF",
)
NODE_SETUP = "mount -t tmpfs tmpfs /dev/shm && hostname {name} && exec slurmd -D -N {name} -L {log}"


def missing() -> str:
    """Why no cluster can be started here; "" where one can."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    if absent:
        return f"{absent[0]} is not installed (Debian: apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "a Slurm of two nodes needs root"


def search_path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


@contextmanager
def two_nodes(folder: Path) -> Iterator[dict[str, str]]:
    """The environment in which sbatch, squeue and the others talk to the cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    env = {**os.environ, "PATH": search_path(), "SLURM_CONF": str(folder / "slurm.conf")}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        processes.append(_munged(folder, env))
        _wait_for(lambda: (folder / "munge.socket").exists(), "munged", folder)
        (folder / "slurm.conf").write_text(_configuration(folder))
        processes.append(_started(["slurmctld", "-D", "-c"], folder / "slurmctld.log", env))
        for name in NODES:
            command = NODE_SETUP.format(name=name, log=folder / f"slurmd-{name}.log")
            unshared = ["unshare", "--mount", "--uts", "bash", "-c", command]
            processes.append(_started(unshared, folder / f"{name}.log", env))
        _wait_for(lambda: _idle(env, processes), "every node", folder)
        yield env
    finally:
        _cancel_all(env)
        for process in reversed(processes):
            _end(process)


def _cancel_all(env: dict[str, str]) -> None:
    """No job outlives the cluster; those that do not end in time are killed with their node."""
    if shutil.which("scancel", path=env["PATH"]) is None:
        return
    subprocess.run(["scancel", "--user", _user()], env=env, check=False)
    end = time.monotonic() + CANCEL_S
    while time.monotonic() < end and _asked(["squeue", "--noheader"], env):
        time.sleep(0.2)


def _munged(folder: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    files = {"key-file": key} | {
        f"{name}-file": folder / f"munge.{name}" for name in ("log", "pid", "seed")
    }
    options = [f"--{name}={path}" for name, path in files.items()]
    command = ["munged", "--foreground", "--force", f"--socket={folder / 'munge.socket'}"]
    return _started([*command, *options], folder / "munged.log", env)


def _configuration(folder: Path) -> str:
    host = socket.gethostname()
    controller, *ports = _free_ports(1 + len(NODES))
    cores, memory_mib = os.cpu_count(), 2048
    lines = [
        "ClusterName=specrl",
        # Another such cluster on this machine has jobs of other numbers.
        f"FirstJobId={secrets.randbelow(600_000) * 100 + 1}",
        f"SlurmctldHost={host}(127.0.0.1)",
        f"SlurmctldPort={controller}",
        f"SlurmUser={_user()}",
        f"SlurmdUser={_user()}",
        f"AuthInfo=socket={folder / 'munge.socket'},cred_expire=5",
        f"StateSaveLocation={folder / 'state'}",
        f"SlurmdSpoolDir={folder / 'spool'}-%n",
        f"SlurmctldPidFile={folder / 'slurmctld.pid'}",
        f"SlurmdPidFile={folder / 'slurmd'}-%n.pid",
        f"SlurmctldLogFile={folder / 'slurmctld-own.log'}",
        "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none",
        "SelectType=select/cons_tres",
        "SelectTypeParameters=CR_Core",
        "JobAcctGatherType=jobacct_gather/none",
        "AccountingStorageType=accounting_storage/none",
        "MpiDefault=none",
        "SwitchType=switch/none",
        "MinJobAge=3600",
        f"KillWait={KILL_WAIT_S}",
        "ReturnToService=2",
        "SchedulerParameters=sched_interval=1,batch_sched_delay=0",
        *(
            f"NodeName={name} NodeHostname={name} NodeAddr={address} Port={port} "
            f"CPUs={cores} RealMemory={memory_mib} State=UNKNOWN"
            for (name, address), port in zip(NODES.items(), ports, strict=True)
        ),
        "PreemptType=preempt/partition_prio",
        "PreemptMode=REQUEUE",
        *PARTITIONS,
    ]
    (folder / "state").mkdir()
    return "\n".join(lines) + "\n"


def _user() -> str:
    return pwd.getpwuid(os.getuid()).pw_name


def _free_ports(count: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def _started(command: list[str], log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=env,
            start_new_session=True,
        )


def _idle(env: dict[str, str], processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    ended = [process.args for process in processes if process.poll() is not None]
    assert not ended, f"{ended} ended at once; their logs are in {env['SLURM_CONF']}'s folder"
    states = _asked(["sinfo", "--noheader", "--Node", "--format=%T"], env)
    return len(states.split()) >= len(NODES) and set(states.split()) == {"idle"}


def _asked(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return done.stdout


def _wait_for(condition: Callable[[], bool], what: str, folder: Path) -> None:
    end = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > end:
            logs = [path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log")]
            raise TimeoutError(f"{what} did not come up in {START_S:.0f} s: {logs}")
        time.sleep(0.2)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def main() -> int:
    folder, *command = sys.argv[1:]
    if problem := missing():
        sys.stderr.write(f"{problem}\n")
        return 2
    with two_nodes(Path(folder)) as env:
        return subprocess.run(command, env=env, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
