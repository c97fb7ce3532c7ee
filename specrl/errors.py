"""Errors that one line explains. The door shows them without a traceback."""


class UserError(ValueError):
    """A mistake of the user's: one line naming the value and the fix, shown without a traceback."""


class RunError(RuntimeError):
    """A run cannot go on, for a reason that one line explains; shown without a traceback."""


class ActorDied(RunError):
    """A process of the run is gone (killed, out of memory, crashed)."""


class EngineError(RunError):
    """The rollout engine refuses or fails."""


class PublishError(RunError):
    """New weights did not become live; the old version still is."""


class NonFiniteError(RunError):
    """NaN or inf in loss or gradients; weights are those before the step."""
