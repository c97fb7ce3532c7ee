"""Which arms the tables of the paper need, and the command that makes each."""

import shlex
from collections.abc import Sequence
from importlib import resources

from analysis.matching import MAY_DIFFER
from analysis.paper import REGIMES, TITLES
from analysis.records import ArmKey, Missing, Run
from specrl.config.overrides import key_of

BASELINE = ArmKey("none")
SPEC = ArmKey("eagle3", "3", "dapo", "offline")
NGRAM = ArmKey("ngram", "3")
INITS = ("ultrachat", "dapo")
ADAPTATIONS = ("offline", "online")
LENGTHS = (3, 5, 7)
LAG = 1
OWN_OVERRIDES = ("experiment", "seed", "sweep")
ASYNC = "execution=async"
LATER = "comes with a later feature"
"""Said in place of a command that specrl does not take yet."""


def eagle3(k: int = 3, init: str = "dapo", adaptation: str = "offline", lag: int = 0) -> ArmKey:
    """An EAGLE-3 arm, by default the one of Table 1."""
    return ArmKey("eagle3", str(k), init, adaptation, lag)


def wanted(regime: str) -> tuple[ArmKey, ...]:
    """The arms of Tables 1 to 5 and of the async comparison; others need their baseline only."""
    if regime not in REGIMES:
        return (BASELINE,)
    variants = [eagle3(3, init, how) for init in INITS for how in ADAPTATIONS]
    lengths = [eagle3(k) for k in LENGTHS if k != 3]
    lagging = [ArmKey("none", max_lag=LAG), eagle3(lag=LAG)]
    return (BASELINE, NGRAM, *variants, *lengths, *lagging)


def regime_of(experiment: str) -> str:
    """rl_think and rl_think_cpu are RL-Think; an experiment that the paper lacks is its own."""
    fitting = (r for r in REGIMES if experiment == r or experiment.startswith(f"{r}_"))
    return next(fitting, experiment)


def title_of(experiment: str) -> str:
    """The regime's name as the paper writes it, with the experiment where that says more."""
    regime = regime_of(experiment)
    name = TITLES.get(regime, experiment)
    return name if experiment == regime else f"{name} ({experiment})"


def missing(experiment: str, key: ArmKey, runs: Sequence[Run] = ()) -> Missing:
    """How to make the arm; no command where specrl has no choice for it yet.

    What all `runs` were given, and says nothing of it, is kept; so are settings of the draft that
    all runs with its drafter were given.
    """
    if key.max_lag and not available(ASYNC):
        return Missing(key, "")
    words = [f"experiment={experiment}"]
    words += [word for word in _shared(runs) if _kept(word)]
    alike = [run for run in runs if run.drafter == key.drafter]
    words += [word for word in _shared(alike) if _sets_draft(word)]
    words.append(f"drafter={key.drafter}")
    words += [f"drafter.k={key.k}"] if key.k else []
    words += [f"init={key.init}"] if key.init else []
    words += [f"adaptation={key.adaptation}"] if key.adaptation == "online" else []
    words += [ASYNC, f"execution.max_lag={key.max_lag}"] if key.max_lag else []
    return Missing(key, shlex.join(["specrl", *words]))


def available(choice: str) -> bool:
    """Whether specrl has the choice, e.g. "execution=async"."""
    group, _, name = choice.partition("=")
    return (resources.files("specrl") / "conf" / group / f"{name}.yaml").is_file()


def _shared(runs: Sequence[Run]) -> list[str]:
    """Overrides of all the runs, in the order of the first."""
    return [w for w in runs[0].overrides if all(w in r.overrides for r in runs)] if runs else []


def _sets_draft(word: str) -> bool:
    name = key_of(word)
    return name.startswith(("drafter.", "init.", "adaptation.")) and name != "drafter.k"


def _kept(word: str) -> bool:
    return key_of(word).partition(".")[0] not in (*MAY_DIFFER, *OWN_OVERRIDES)
