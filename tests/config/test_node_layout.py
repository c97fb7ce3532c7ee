"""Which node each process is on, and the allocations that are refused."""

import pytest

from specrl.config.compose import load
from specrl.config.node_layout import node_layout
from specrl.errors import UserError

CPU = ["debug=tiny", "cluster=slurm_cpu", "rollout.prompts_per_step=64"]
GPU = ["cluster=gb200_nvl72"]


@pytest.mark.parametrize(
    ("nodes", "ranks", "replicas", "learner", "engine"),
    [
        (1, 1, 1, (0,), (0,)),
        (2, 1, 1, (0,), (1,)),
        (2, 1, 2, (0,), (1, 1)),
        (2, 2, 2, (0, 0), (1, 1)),
        (3, 1, 4, (0,), (1, 1, 2, 2)),
        (2, 4, 1, (0, 0, 0, 1), (1,)),
    ],
)
def test_processes_on_cpus_are_spread_with_the_learner_first(
    nodes, ranks, replicas, learner, engine
):
    sizes = [f"learner.data_parallel={ranks}", f"rollout.replicas={replicas}"]
    layout = node_layout(load([*CPU, f"cluster.nodes={nodes}", *sizes]))
    assert (layout.learner, layout.engine) == (learner, engine)


def test_the_paper_s_nodes_fill_up_with_four_gpus_each():
    sizes = ["learner.tensor_parallel=4", "learner.data_parallel=2", "rollout.replicas=24"]
    layout = node_layout(load([*GPU, *sizes, "rollout.prompts_per_step=64"]))
    assert layout.learner == (0, 0, 0, 0, 1, 1, 1, 1)
    assert layout.engine == tuple(2 + number // 4 for number in range(24))
    assert layout.idle_nodes == 0


def test_engines_go_beside_the_learner_where_the_rest_is_too_small():
    sizes = ["cluster.nodes=2", "learner.data_parallel=2", "rollout.replicas=5"]
    layout = node_layout(load([*GPU, *sizes, "rollout.prompts_per_step=64"]))
    assert (layout.learner, layout.engine) == ((0, 0), (0, 0, 1, 1, 1))
    assert layout.lines() == [
        "node 0: learner-0 learner-1 engine-0 engine-1",
        "node 1: engine-2 engine-3 engine-4",
    ]


def test_a_node_without_a_process_counts_as_idle():
    layout = node_layout(load([*CPU, "cluster.nodes=3"]))
    assert layout.idle_nodes == 1
    assert layout.lines()[2] == "node 2: idle"


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["cluster.nodes=1", "rollout.replicas=4"], "need 5 GPUs and the allocation has"),
        (["cluster.gpus_per_engine=8"], "cluster.gpus_per_engine=8 is more than a node has"),
        (
            ["cluster.nodes=2", "cluster.gpus_per_engine=3", "learner.data_parallel=2"],
            None,
        ),
        (
            [
                *("cluster.nodes=2", "cluster.gpus_per_engine=3", "rollout.replicas=2"),
                "learner.data_parallel=2",
            ],
            "2 engines of 3 do not fit beside 2 learner ranks",
        ),
        (["cluster.sbatch=[reservation]"], "'reservation' is no sbatch option"),
        (["cluster.sbatch=['--nodes=9']"], "use cluster.nodes"),
        (["cluster.time_limit_min=4"], "leaves a job of cluster.time_limit_min=4 no time to run"),
        (["cluster.signal_delay_s=1"], "cluster.signal_delay_s=1 is out of range"),
        (["cluster.container_mounts=['/a:/a']"], "set cluster.container_image"),
    ],
)
def test_an_impossible_allocation_is_refused_by_name(overrides, says):
    if says is None:
        load([*GPU, *overrides])
        return
    with pytest.raises(UserError) as caught:
        load([*GPU, *overrides])
    assert says in str(caught.value)
