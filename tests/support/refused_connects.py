"""A process whose kernel answers each connect(2) with errno 65, as macOS does for Local Network Privacy.

`python -m tests.support.refused_connects URL` asks a control plane there, and prints the error as JSON.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import platform
import struct
import sys

from journeyman.adapters.http_control_plane import HttpControlPlane
from journeyman.adapters.system_clock import SystemClock
from journeyman.client import NODES
from journeyman.errors import UnreachableError
from journeyman.settings import load_settings

CONNECT = {"x86_64": 42, "aarch64": 203}
"""The number of the system call, by machine."""
EHOSTUNREACH_OF_MACOS = 65
_SET_SECCOMP, _FILTER, _SET_NO_NEW_PRIVILEGES = 22, 2, 38
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("code", ctypes.c_char_p))


def refuse_connects() -> None:
    """From now on no connect(2) of this process does anything; seccomp(2), without a way back."""
    instructions = [
        (_LOAD_WORD, 0, 0, 0),
        (_JUMP_IF_EQUAL, 0, 1, CONNECT[platform.machine()]),
        (_RETURN, 0, 0, _ERRNO | EHOSTUNREACH_OF_MACOS),
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in instructions)
    libc = ctypes.CDLL(None, use_errno=True)
    program = _Program(len(instructions), code)
    if libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")


async def ask(url: str, platform_name: str) -> UnreachableError:
    """The error of the product's own client."""
    settings = load_settings({"server": url}, {}).settings
    plane = HttpControlPlane(settings, SystemClock(), version="1", environ={}, platform=platform_name)
    try:
        await plane.list(NODES)
    except UnreachableError as error:
        return error
    finally:
        await plane.aclose()
    raise AssertionError("it answered")


if __name__ == "__main__":
    refuse_connects()
    error = asyncio.run(ask(sys.argv[1], "darwin"))
    sys.stdout.write(json.dumps([error.message, error.advice]))
