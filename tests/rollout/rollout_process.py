"""An actor in a forked process: a real engine per process, no Ray needed."""

from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from tests.warm_process import with_vllm


class Answer:
    """The future of one call; calls are answered in the order of submission."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._value: tuple[bool, Any] | None = None

    def result(self) -> Any:
        if self._value is None:
            self._value = self._connection.recv()
        ok, value = self._value
        if not ok:
            raise value
        return value


class ProcessActor:
    """Runs `target(*args)` in a process that was forked with vLLM imported."""

    def __init__(self, name: str, target: str, args: tuple[Any, ...]) -> None:
        self.name = name
        self._last: Answer | None = None
        self._process = with_vllm().fork("rollout_process:serve", target, args)
        self._connection = self._process.connection

    def submit(self, method: str, *args: Any, **kwargs: Any) -> Answer:
        if self._last is not None and self._last._value is None:
            self._last._value = self._connection.recv()
        self._connection.send((method, args, kwargs))
        self._last = Answer(self._connection)
        return self._last

    def call(self, method: str, *args: Any) -> Any:
        return self.submit(method, *args).result()

    def kill(self) -> None:
        self._process.kill()


def serve(connection: Connection, target: str, args: tuple[Any, ...]) -> None:
    module, _, name = target.partition(":")
    actor: Any = None
    broken: Exception | None = None
    try:
        actor = getattr(import_module(module), name)(*args)
    except Exception as error:
        broken = error
    while True:
        method, call_args, kwargs = connection.recv()
        try:
            if broken is not None:
                raise broken
            connection.send((True, getattr(actor, method)(*call_args, **kwargs)))
        except Exception as error:
            connection.send((False, error))
