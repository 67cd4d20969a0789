"""The processes of a run over several hosts, connected by JAX's coordination service.

The first process sends a beat every second, and the others answer. So each of them knows within a
minute that another one has ended, and ends with a message instead of waiting in a collective.
"""

import atexit
import json
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Any

import jax

# JAX documents neither its key-value store nor how it finds a cluster; tests need both.
from jax._src.clusters import ClusterEnv
from jax._src.distributed import global_state

from textmill.schemas.commands.terminal import say
from textmill.schemas.errors import DataError, TextmillError, UsageError, flag
from textmill.trainers.flags.command_line import command_to_resume
from textmill.trainers.flags.framework_flags import FlaxRunFlags
from textmill.trainers.on_flax.roll_call import call_roll
from textmill.trainers.run.processes import Processes, end_at_once

START_SECONDS = 50  # for all processes to answer the roll call
_MEET_SECONDS = 250  # for them to meet then: none is missing, but a busy host is slow
SILENT_SECONDS = 30  # without a beat or an answer: the process has ended
_FAREWELL_SECONDS = 3  # for the others to read why the first one ends
_KEPT_BEATS = 60
_SILENT = f"it has not answered for {SILENT_SECONDS} s, see its log"


class JaxProcesses(Processes):
    """This process and the others of `jax.distributed`."""

    def __init__(self, flags: FlaxRunFlags):
        self.index, self.count = jax.process_index(), jax.process_count()
        self._flags, self._shared, self._gathered = flags, 0, 0
        self._store: Any = global_state.client
        self._is_over, self._reason = False, ""  # why this process, the first, ends the others
        self._fails = False  # this process ends by an error of its own, in its words
        watch = self._lead if self.is_first else self._follow
        self._watch = threading.Thread(target=watch, name="processes", daemon=True)
        self._watch.start()

    def share(self, make: Callable[[], Any]) -> Any:
        """See `Processes`."""
        self._shared += 1
        key = f"shared/{self._shared}"
        if self.is_first:
            self._store.key_value_set(key, json.dumps(make()))
        return json.loads(self._wait_for(key))

    def _wait_for(self, key: str) -> str:
        while (text := self._get(key)) is None:  # the watch ends a vain wait
            pass
        return text

    def gather(self, value: Any) -> list[Any]:
        """See `Processes`."""
        self._gathered += 1
        keys = [f"gathered/{self._gathered}/{index}" for index in range(self.count)]
        self._store.key_value_set(keys[self.index], json.dumps(value))
        return [json.loads(self._wait_for(key)) for key in keys]

    def meet(self) -> None:
        """See `Processes`."""
        self.gather(None)

    def _get(self, key: str) -> str | None:
        """The value of a key, or None if it is not there within a second."""
        try:
            return self._store.blocking_key_value_get(key, 1000)
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error):
                raise
            return None

    def leave(self) -> None:
        """See `Processes`."""
        self.share(lambda: None)
        self._is_over = True
        self._watch.join()  # a thread in JAX would abort the interpreter at its end
        jax.distributed.shutdown()  # waits for all

    def __enter__(self) -> "JaxProcesses":
        """Makes SIGTERM an exception, which `__exit__` reports."""
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        return self

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        """See `Processes`; waits first if the error may be due to the end of another process."""
        if self._is_over or error is None:
            return
        if isinstance(error, jax.errors.JaxRuntimeError):  # of a collective?
            time.sleep(SILENT_SECONDS + 10)  # the watch may end this process meanwhile
        self._fails = True
        reason = (
            error.marked if isinstance(error, TextmillError) else f"{type(error).__name__} {error}"
        )
        if self.is_first:
            self._reason = self._describe(0, reason)
            time.sleep(_FAREWELL_SECONDS)
        else:
            self._store.key_value_set(f"failed/{self.index}", reason[:2000])
        self._is_over = True
        # JAX would wait for the other processes, which end when they get this one's message.
        atexit.register(end_at_once, getattr(error, "exit_code", getattr(error, "code", 1)))
        if isinstance(error, jax.errors.JaxRuntimeError):
            raise DataError(self._describe(self.index, reason.splitlines()[0])) from error

    def _lead(self) -> None:
        """Sends beats, and ends all processes if one has failed or is silent."""
        answers = [f"answered/{index}" for index in range(1, self.count)]
        try:
            for number in count():
                if self._is_over:
                    return
                self._store.key_value_set(f"beat/{number}", self._reason)
                if self._reason:  # this process ends
                    return
                if number >= _KEPT_BEATS:
                    self._store.key_value_delete(f"beat/{number - _KEPT_BEATS}")
                found = dict(self._store.key_value_dir_get("answered/"))
                # A beat takes a second.
                silent = [n for n in answers if number - int(found.get(n, "0")) > SILENT_SECONDS]
                failed = self._store.key_value_dir_get("failed/")
                if failed:
                    self._reason = self._describe(failed[0][0], failed[0][1])
                elif silent:
                    self._reason = self._describe(silent[0], _SILENT)
                if failed or silent:
                    self._store.key_value_set(f"beat/{number + 1}", self._reason)
                    time.sleep(_FAREWELL_SECONDS)
                    self._end(self._reason)
                    return
                time.sleep(1)
        except jax.errors.JaxRuntimeError as error:
            self._end(self._describe(0, str(error).splitlines()[0]))

    def _follow(self) -> None:
        """Answers the first process, and ends this one by its message or when it has ended."""
        try:
            for number in count():
                last = time.monotonic()
                while (reason := self._get(f"beat/{number}")) is None:
                    if self._is_over:
                        return
                    if time.monotonic() - last > SILENT_SECONDS:
                        return self._end(self._describe(0, _SILENT))
                if reason:
                    return self._end(reason)
                self._store.key_value_set(f"answered/{self.index}", str(number), True)
        except jax.errors.JaxRuntimeError as error:
            self._end(self._describe(0, str(error).splitlines()[0]))

    def first_ended(self) -> None:
        """Ends this process, since the first one's connection was closed."""
        self._end(self._describe(0, "its connection was closed, see its log"))

    def _describe(self, process: str | int, reason: str) -> str:
        number = str(process).rpartition("/")[2]
        return (
            f"process {number} of {self.count} has ended: {reason}. Start all processes again, to "
            f"resume from the newest checkpoint:\n  {command_to_resume(self._flags)}"
        )

    def _end(self, reason: str) -> None:
        if not (self._is_over or self._fails):
            self._is_over = True
            say(f"error: {reason}", sys.stderr)
            end_at_once(1)


def join(flags: FlaxRunFlags) -> Processes:
    """Meets the other processes of the flags, before JAX has devices.

    Raises:
      UsageError: no cluster is found, or the address cannot be used.
      DataError: not all processes came in time.
    """
    given = flags.processes
    address, number, index = given.coordinator_address, given.count, given.process_id
    devices = None
    if number is None:
        address, number, index, devices = ClusterEnv.auto_detect_unset_distributed_params(
            None, None, None, None, None, START_SECONDS
        )
    if address is None or number is None or index is None:
        raise UsageError(
            f"{flag('num_processes', 'auto')}: this is neither a job of Slurm or Open MPI nor a "
            f"TPU pod: give {flag('coordinator_address', 'HOST:PORT')}, {flag('num_processes')} "
            f"and {flag('process_id')}"
        )
    if number == 1:
        return Processes()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_preemption_service", False)  # it would take SIGTERM
    processes: list[JaxProcesses] = []
    did_not_meet = (
        f"process {index} of {number} did not meet all others at {address} within {_MEET_SECONDS} s"
    )
    remedy = "start all of them, with one address that they all reach"

    def end() -> None:
        say(f"error: {did_not_meet}: {remedy}", sys.stderr)
        end_at_once(1)

    def first_ended() -> None:
        processes[0].first_ended() if processes else end()

    call_roll(address, number, index, START_SECONDS)
    timer = threading.Timer(_MEET_SECONDS, end)  # JAX would abort with a stack trace
    timer.daemon = True
    timer.start()
    try:
        jax.distributed.initialize(
            address if index == 0 else _forward(address, first_ended),
            number,
            index,
            local_device_ids=devices,
            cluster_detection_method="deactivate",
            initialization_timeout=2 * _MEET_SECONDS,
            heartbeat_timeout_seconds=3 * SILENT_SECONDS,  # it aborts with a stack trace
            shutdown_timeout_seconds=45,
        )
        processes.append(JaxProcesses(flags))
    except (OSError, RuntimeError) as error:
        raise DataError(f"{did_not_meet} ({str(error).splitlines()[0]:.200}): {remedy}") from error
    finally:
        timer.cancel()
    return processes[0]


def _forward(address: str, on_end: Callable[[], None]) -> str:
    """A local address whose connections end at `address`; `on_end` is called when that is gone.

    JAX's client aborts with a stack trace the moment its connection to the first process closes.
    This one stays open.
    """
    host, _, port = address.rpartition(":")
    far_address = host.strip("[]"), int(port)
    deadline = time.monotonic() + _MEET_SECONDS

    def connect() -> socket.socket:
        """Waits for the service, which begins to listen a moment after the roll call has ended."""
        while True:
            try:
                far = socket.create_connection(far_address, timeout=5)
                if far.getsockname() != far.getpeername():  # TCP connects a free port to itself
                    far.settimeout(None)
                    return far
                far.close()
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.2)

    server = socket.create_server(("127.0.0.1", 0))

    def pump(source: socket.socket, target: socket.socket, is_far: bool) -> None:
        try:
            while data := source.recv(1 << 16):
                target.sendall(data)
        except OSError:
            pass
        if not is_far:
            return target.close()
        time.sleep(1)  # a dying process closes its ports one after another
        try:
            socket.create_connection(far_address, timeout=5).close()
            source.close()
            target.close()  # JAX connects again
        except OSError:
            on_end()

    def accept() -> None:
        while True:
            near, _ = server.accept()
            try:
                far = connect()
            except OSError:  # the first process has ended
                near.close()
                continue
            for source, target in ((near, far), (far, near)):
                pair = source, target, source is far
                threading.Thread(target=pump, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}"
