"""An actor in a spawned process: a real engine per process, no Ray needed."""

import multiprocessing
import os
from collections.abc import Mapping
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any


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
    """Runs `target(*args)` in a fresh process with `env` set before it starts."""

    def __init__(
        self, name: str, target: str, args: tuple[Any, ...], env: Mapping[str, str]
    ) -> None:
        self.name = name
        self._last: Answer | None = None
        self._connection, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self._process = context.Process(target=_serve, args=(theirs, target, args), daemon=True)
        old = dict(os.environ)
        os.environ.update(env)
        try:
            self._process.start()
        finally:
            os.environ.clear()
            os.environ.update(old)
        theirs.close()

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
        self._process.join()


def _serve(connection: Connection, target: str, args: tuple[Any, ...]) -> None:
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
