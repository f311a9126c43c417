"""Sleep of a Mac: IOKit's power notifications, IORegisterForSystemPower(3), by ctypes.

The Mac waits for IOAllowPowerChange from everybody who has registered, for 30 seconds at most.  A shutdown is
told by SIGTERM there.  The names and numbers are those of IOKit/pwr_mgt/IOPMLib.h and IOKit/IOMessage.h.
"""

from __future__ import annotations

import asyncio
import ctypes
import threading
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from journeyman.errors import HostError
from journeyman.model.power import Going

CAN_SLEEP = 0xE0000270
WILL_SLEEP = 0xE0000280
WILL_NOT_SLEEP = 0xE0000290
HAS_POWERED_ON = 0xE0000300
IOKIT = "/System/Library/Frameworks/IOKit.framework/IOKit"
CORE_FOUNDATION = "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation"
START_SECONDS = 10.0

# void (*IOServiceInterestCallback)(void *refcon, io_service_t, uint32_t messageType, void *messageArgument)
Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p)


class PowerLibrary(Protocol):
    """What is used of IOKit."""

    def register(self, heard: Callable[[int, int], None]) -> int:
        """Registers the calling thread, and returns the port to answer to, or 0.

        Args:
            heard: is called with the type of each message and its argument, by `run`.
        """
        ...

    def run(self) -> None:
        """Delivers messages in the calling thread until `stop`."""
        ...

    def allow(self, port: int, argument: int) -> None:
        """Lets the Mac do what the message with that argument has told."""
        ...

    def stop(self) -> None:
        """Ends `run`, from another thread, and takes the registration back."""
        ...


class MacPower:
    """Implements the port PowerEvents.

    Args:
        library: IOKit; `load_iokit` finds it.
    """

    def __init__(self, library: Callable[[], PowerLibrary]) -> None:
        self._load = library

    async def listen(self, going: Callable[[Going], Awaitable[None]], back: Callable[[], None]) -> None:
        """See the port."""
        loop = asyncio.get_running_loop()
        words: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        try:
            library = self._load()
        except (OSError, AttributeError) as error:
            raise HostError(f"IOKit cannot be used: {error}") from error
        listener = _Listener(library, lambda word: loop.call_soon_threadsafe(words.put_nowait, word))
        if not await asyncio.to_thread(listener.start):
            raise HostError("IOKit takes no registration for power notifications")
        try:
            while True:
                kind, argument = await words.get()
                if kind == WILL_SLEEP:
                    await going(Going.SLEEP)
                if kind in {WILL_SLEEP, CAN_SLEEP}:
                    library.allow(listener.port, argument)
                elif kind in {HAS_POWERED_ON, WILL_NOT_SLEEP}:
                    back()
        finally:
            library.stop()


class _Listener(threading.Thread):
    """The thread in which IOKit delivers, as a run loop belongs to one."""

    def __init__(self, library: PowerLibrary, hand_over: Callable[[tuple[int, int]], Any]) -> None:
        super().__init__(name="power notifications", daemon=True)
        self._library = library
        self._hand_over = hand_over
        self._registered = threading.Event()
        self.port = 0

    def start(self) -> bool:  # type: ignore[override]
        """Returns whether the registration was taken."""
        super().start()
        return self._registered.wait(START_SECONDS) and self.port != 0

    def run(self) -> None:
        self.port = self._library.register(lambda kind, argument: self._hand_over((kind, argument)))
        self._registered.set()
        if self.port:
            self._library.run()


def load_iokit() -> PowerLibrary:
    """IOKit of this Mac.

    Raises:
        OSError, AttributeError: this is none.
    """
    return IoKit(ctypes.CDLL(IOKIT), ctypes.CDLL(CORE_FOUNDATION))


class IoKit:
    """Implements PowerLibrary with the two frameworks.

    Args:
        iokit: IOKit.
        core: CoreFoundation.
    """

    def __init__(self, iokit: Any, core: Any) -> None:
        self._iokit, self._core = iokit, core
        pointer, port = ctypes.c_void_p, ctypes.c_uint32
        _declare(iokit.IORegisterForSystemPower, port, pointer, pointer, Callback, pointer)
        _declare(iokit.IODeregisterForSystemPower, ctypes.c_int, pointer)
        _declare(iokit.IONotificationPortGetRunLoopSource, pointer, pointer)
        _declare(iokit.IONotificationPortDestroy, None, pointer)
        _declare(iokit.IOAllowPowerChange, ctypes.c_int, port, ctypes.c_long)
        _declare(iokit.IOServiceClose, ctypes.c_int, port)
        _declare(core.CFRunLoopGetCurrent, pointer)
        _declare(core.CFRunLoopAddSource, None, pointer, pointer, pointer)
        _declare(core.CFRunLoopRun, None)
        _declare(core.CFRunLoopStop, None, pointer)
        self._notifications, self._notifier = ctypes.c_void_p(), ctypes.c_uint32()
        self._port = 0
        self._loop: Any = None
        self._callback: Any = None

    def register(self, heard: Callable[[int, int], None]) -> int:
        """See PowerLibrary."""
        # IOKit keeps the pointer, so the object has to live as long as the registration.
        self._callback = Callback(lambda _, __, kind, argument: heard(kind, argument or 0))
        self._port = self._iokit.IORegisterForSystemPower(
            None, ctypes.byref(self._notifications), self._callback, ctypes.byref(self._notifier)
        )
        if self._port:
            self._loop = self._core.CFRunLoopGetCurrent()
            source = self._iokit.IONotificationPortGetRunLoopSource(self._notifications)
            modes = ctypes.c_void_p.in_dll(self._core, "kCFRunLoopCommonModes")
            self._core.CFRunLoopAddSource(self._loop, source, modes)
        return int(self._port)

    def run(self) -> None:
        """See PowerLibrary."""
        self._core.CFRunLoopRun()

    def allow(self, port: int, argument: int) -> None:
        """See PowerLibrary."""
        self._iokit.IOAllowPowerChange(port, argument)

    def stop(self) -> None:
        """See PowerLibrary."""
        if not self._port:
            return
        self._iokit.IODeregisterForSystemPower(ctypes.byref(self._notifier))
        self._iokit.IOServiceClose(self._port)
        self._core.CFRunLoopStop(self._loop)
        self._iokit.IONotificationPortDestroy(self._notifications)


def _declare(function: Any, result: Any, *arguments: Any) -> None:
    function.restype, function.argtypes = result, list(arguments)
