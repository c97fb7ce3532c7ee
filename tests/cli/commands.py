"""What stands for a run behind the commands."""


class Runs:
    """Stands for specrl.build.run: remembers its calls, fails for the drafters named."""

    def __init__(self, **failures: BaseException):
        self.failures = failures
        self.calls = []

    def __call__(self, config, folder, overrides):
        self.calls.append((config, folder, list(overrides)))
        if config.drafter.name in self.failures:
            raise self.failures[config.drafter.name]
