"""Which runs are one arm, and which arms may be compared.

Runs of any origin: whole configs and machines are held against each other. Within one sweep the
words of the command line suffice (`specrl.sweep.comparison`): all else is the same there.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from analysis.records import ArmKey, Difference, Problem, Run
from specrl.config.signature import IGNORED

MAY_DIFFER = ("drafter", "init", "adaptation", "execution")
"""Config groups that tell arms apart. Everything else must agree."""

CORES = ("rollout.cores", "learner.cores")
NO_INFLUENCE = (*(key for key in IGNORED if key not in CORES), "evaluation")
"""Keys that change neither what is generated nor how fast."""

SEEDS = ("seed", "task.seed", "rollout.seed")
MACHINE = "machine"
NAMES = {"drafter.name", "drafter.k", "init.name", "adaptation.name", "execution.max_lag"}
NOT_SET = "(not set)"


def arm_key(config: Mapping[str, str]) -> ArmKey:
    """The arm that a config belongs to, `variant` left empty."""
    drafter = config.get("drafter.name", "")
    lag = int(config.get("execution.max_lag", "0"))
    if drafter == "none":
        return ArmKey(drafter, max_lag=lag)
    init = config.get("init.name", "none")
    learned = None if init == "none" else init
    adaptation = config.get("adaptation.name", "offline") if learned else None
    return ArmKey(drafter, config.get("drafter.k"), learned, adaptation, lag)


def must_agree(run: Run) -> dict[str, str]:
    """The part of a run's config, and its machine, that matched arms share."""
    kept = {
        key: value
        for key, value in run.config.items()
        if not _within(key, (*MAY_DIFFER, *NO_INFLUENCE)) and key not in SEEDS
    }
    return {**kept, **({MACHINE: run.machine} if run.machine else {})}


def differences(baseline: Run, run: Run) -> tuple[Difference, ...]:
    """Keys that must agree, are known of both and do not."""
    left, right = must_agree(baseline), must_agree(run)
    shared = sorted(left.keys() & right.keys())
    return tuple(
        Difference(key, left[key], right[key]) for key in shared if left[key] != right[key]
    )


def seed_of(run: Run) -> str:
    """The seeds of a run as one word; runs of two arms are paired where it agrees."""
    values = [run.config.get(key, NOT_SET) for key in SEEDS]
    return values[0] if len(set(values)) == 1 else "/".join(values)


def cautions(baseline: Run, run: Run) -> list[str]:
    """What a reader should know of a comparison that is allowed."""
    found = []
    left, right = must_agree(baseline), must_agree(run)
    unknown = sorted((left.keys() ^ right.keys()) - {MACHINE})
    if unknown:
        found.append(f"{', '.join(unknown)}: known of one run only, not compared")
    if not (baseline.machine and run.machine):
        found.append("machine not recorded: that both ran on the same one is not checked")
    if baseline.git_commit != run.git_commit:
        found.append(f"commits differ: {_short(baseline.git_commit)}, {_short(run.git_commit)}")
    return found


def families(runs: Iterable[Run]) -> list[list[Run]]:
    """Runs of one experiment that agree in everything that must, the largest family first.

    A key that is known of one run only does not tell it from the others.
    """
    found: list[tuple[dict[str, str], list[Run]]] = []
    for run in sorted(runs, key=lambda run: -run.created_s):
        own = {**must_agree(run), "name": run.experiment}
        for known, members in found:
            if all(known.get(key, value) == value for key, value in own.items()):
                members.append(run)
                known |= own
                break
        else:
            found.append((own, [run]))
    groups = [members for _, members in found]
    return sorted(groups, key=lambda members: (members[0].experiment, -_arms(members)))


def arms_of(runs: Iterable[Run]) -> tuple[dict[ArmKey, list[Run]], list[Problem]]:
    """A family's runs by arm, one per seed; the newest of several with one seed counts."""
    by_key: dict[ArmKey, list[Run]] = {}
    for run in runs:
        by_key.setdefault(arm_key(run.config), []).append(run)
    problems: list[Problem] = []
    arms: dict[ArmKey, list[Run]] = {}
    for key, members in by_key.items():
        for variant, same in _variants(members).items():
            own = ArmKey(key.drafter, key.k, key.init, key.adaptation, key.max_lag, variant)
            arms[own], repeats = _one_per_seed(same)
            problems += repeats
    return dict(sorted(arms.items(), key=lambda item: _order(item[0]))), problems


def _one_per_seed(runs: Sequence[Run]) -> tuple[list[Run], list[Problem]]:
    chosen: dict[str, Run] = {}
    problems = []
    for run in sorted(runs, key=lambda run: -run.created_s):
        newest = chosen.setdefault(seed_of(run), run)
        if newest is not run:
            text = f"same config and seed as {newest.name} ({newest.source}), which is newer"
            problems.append(Problem(run.name, text, True))
    return [chosen[seed] for seed in sorted(chosen)], problems


def _variants(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs of an arm by the draft settings in which they differ; "" where they do not."""
    settings = [_draft_settings(run) for run in runs]
    keys = sorted(set().union(*settings))
    varying = [key for key in keys if len({own.get(key, NOT_SET) for own in settings}) > 1]
    usual = Counter(_words(own, varying) for own in settings).most_common(1)[0][0]
    found: dict[str, list[Run]] = {}
    for run, own in zip(runs, settings, strict=True):
        words = _words(own, varying)
        found.setdefault("" if words == usual else words, []).append(run)
    return found


def _draft_settings(run: Run) -> dict[str, str]:
    if run.config.get("drafter.name") == "none":
        return {}
    groups = ["drafter"]
    if run.config.get("init.name") != "none":
        groups.append("init")
    if run.config.get("adaptation.name") == "online":
        groups.append("adaptation")
    return {
        key: value
        for key, value in run.config.items()
        if _within(key, groups) and key not in NAMES and key != "init.seed"
    }


def _words(settings: Mapping[str, str], keys: Sequence[str]) -> str:
    return " ".join(f"{key}={settings.get(key, NOT_SET)}" for key in keys)


def _within(key: str, groups: Sequence[str]) -> bool:
    return any(key == group or key.startswith(f"{group}.") for group in groups)


def _arms(members: Sequence[Run]) -> int:
    return len({arm_key(run.config) for run in members})


def _order(key: ArmKey) -> tuple[int, bool, str, int, str, str, str]:
    number = int(key.k) if key.k and key.k.isdigit() else 10**6
    words = (key.init or "", key.adaptation or "", key.variant)
    return (key.max_lag, key.drafter != "none", key.drafter, number, *words)


def _short(commit: str | None) -> str:
    return "unknown" if commit is None else commit[:10]
