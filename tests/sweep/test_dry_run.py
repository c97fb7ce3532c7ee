"""--dry-run: what would happen, and what is refused by name."""

from dataclasses import replace
from pathlib import Path

import pytest

from specrl.config.compose import load
from specrl.config.signature import run_folder
from specrl.errors import UserError
from specrl.process import this_process
from specrl.sweep.dry_run import dry_run
from specrl.sweep.point import PointTask
from specrl.sweep.status import Status, write_status

TINY = ["model=tiny", "steps=5"]


def task_of(*words: str, output_dir: Path = Path("outputs")) -> PointTask:
    config = load([*TINY, *words, f"output_dir={output_dir}"])
    return PointTask(config, run_folder(config), words)


def told(*tasks: PointTask) -> str:
    return "\n".join(dry_run(tasks, "here", slurm=False))


def test_points_that_start_from_one_draft_say_so() -> None:
    inits = [("dapo", 3), ("dapo", 5), ("ultrachat", 3)]
    points = [task_of("drafter=eagle3", f"init={i}", f"drafter.k={k}") for i, k in inits]
    said = told(task_of("drafter=none"), *points)
    assert "dry run: 4 points, 0 done already, 4 to run here" in said
    assert "draft A: init=dapo, 240 prompts, built once for points 2, 3," in said
    assert "draft B: init=ultrachat, 240 prompts, built once for point 4," in said


def test_what_is_made_first_and_how_much_there_is_to_do_is_told() -> None:
    sizes = ["rollout.prompts_per_step=2", "rollout.group_size=3", "rollout.max_tokens=7"]
    evaluations = ["evaluation.every=2", "evaluation.num_prompts=5", "evaluation.samples=4"]
    warm = task_of("model=smollm2_135m_math", "drafter=none", *sizes, *evaluations)
    said = told(task_of("drafter=none", *sizes, "evaluation.every=0"), warm)
    assert (
        "warm start: model=smollm2_135m_math, 640 worked solutions, made once for point 2" in said
    )
    runs, evaluated = 2 * 5 * 2 * 3 * 7, 4 * 5 * 4 * 7
    assert f"to do: 10 steps, at most {runs + evaluated} response tokens" in said


def test_what_becomes_of_each_point_is_told(tmp_path: Path) -> None:
    points = [task_of("drafter=none", f"seed={seed}", output_dir=tmp_path) for seed in range(4)]
    for point in points[:3]:
        point.folder.mkdir()
    write_status(points[0].folder, Status("finished", steps=5))
    write_status(points[1].folder, Status("running", process=this_process()))
    (points[2].folder / "checkpoints" / "step-000003").mkdir(parents=True)
    again = replace(points[0], config=replace(points[0].config, rerun=True))
    before = sorted(tmp_path.rglob("*"))
    said = told(*points, points[3])
    assert "4 points, 1 done already, 3 to run here" in said
    assert "1 more are the same run as one of these" in said
    assert f"done already, skipped; {points[0].folder}" in said
    assert f"waits for {this_process()}, which has it (running); {points[1].folder}" in said
    assert f"goes on from step 3; {points[2].folder}" in said
    assert f"starts; {points[3].folder}" in said
    assert "starts again from step 0 (rerun=true)" in told(again)
    assert sorted(tmp_path.rglob("*")) == before


def test_the_layout_says_where_each_process_would_be() -> None:
    said = told(task_of("drafter=none", "learner.tensor_parallel=2", "rollout.replicas=2"))
    assert "layout of point 1" in said
    assert "layers, 8 heads, 4 key/value heads" in said
    assert "learner: 2 TP x 1 DP, CPU" in said
    assert "node 0: learner-0 learner-1 engine-0 engine-1" in said


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["learner.tensor_parallel=3"], "learner.tensor_parallel=3 does not divide the model's 8"),
        (["learner.tensor_parallel=8"], "the model's 4 key/value heads"),
        (
            ["model=smollm2_135m", "learner.tensor_parallel=2"],
            "learner.tensor_parallel=2 does not divide the model's 9 attention heads",
        ),
        (
            ["model=qwen3_8b", "learner.tensor_parallel=3"],
            "learner.tensor_parallel=3 does not divide the model's 32 attention heads",
        ),
        (["model=qwen3_235b_a22b"], "Qwen3MoeForCausalLM needs expert parallelism"),
        (
            ["+rollout.engine_args.tensor_parallel_size=3"],
            "rollout.engine_args.tensor_parallel_size=3 does not divide the model's 8",
        ),
        (
            ["+rollout.engine_args.tensor_parallel_size=0"],
            "rollout.engine_args.tensor_parallel_size=0 is out of range",
        ),
        (
            ["+rollout.engine_args.tensor_parallel_size=two"],
            "rollout.engine_args.tensor_parallel_size=two is out of range",
        ),
    ],
)
def test_a_model_or_layout_that_cannot_be_trained_is_refused(words: list[str], says: str) -> None:
    words = ["drafter=none", *words]
    with pytest.raises(UserError) as refused:
        told(task_of("drafter=none", "seed=9"), task_of(*words))
    assert str(refused.value).startswith(f"{' '.join(words)}: ")
    assert says in str(refused.value)


def test_a_slurm_cluster_without_its_launcher_is_refused_as_a_launch_does() -> None:
    with pytest.raises(UserError, match="cluster=h100 lives in a Slurm job; add hydra/launcher"):
        told(task_of("cluster=h100"))


def test_more_gpus_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("drafter=none", "cluster=local_gpu", "rollout.replicas=2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(UserError, match="need 3 GPUs and this machine has 2"):
        told(task)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2")
    assert "cluster=local_gpu: 3 GPUs used" in told(task)


def test_a_hub_model_that_is_not_here_is_not_asked_for() -> None:
    words = ["model=qwen3_8b", "model.path=somebody/else", "learner.tensor_parallel=3"]
    said = told(task_of("drafter=none", *words))
    assert "somebody/else is not here yet: its heads are checked when the run starts" in said
