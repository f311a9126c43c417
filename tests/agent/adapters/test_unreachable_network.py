"""What people read of a network that the kernel says cannot be reached, through the whole client."""

from __future__ import annotations

import asyncio
import json
import platform
import subprocess
import sys

import pytest

from tests.support.netns import namespaces
from tests.support.refused_connects import CONNECT, ask

pytestmark = pytest.mark.slow


def test_errno_65_of_a_real_socket_is_explained() -> None:
    """A connect that the kernel answers with errno 65 is told from a network that is not there."""
    if sys.platform != "linux" or platform.machine() not in CONNECT:
        pytest.skip("cannot run here: seccomp(2) answers connects on Linux, on machines that we know")
    command = [sys.executable, "-m", "tests.support.refused_connects", "http://localhost:9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    message, advice = json.loads(done.stdout)
    assert "does not let this program reach http://localhost:9 (errno 65, Local Network Privacy)" in message
    assert "Privacy & Security > Local Network" in advice


def test_a_network_that_is_not_there_is_no_matter_of_privacy() -> None:
    """Without a route, or with one that leads nowhere, the kernel's own words are given."""
    with namespaces("lonely") as [lonely]:
        lonely.ip("route", "add", "unreachable", "10.213.9.0/24")
        with lonely.inside():
            without = asyncio.run(ask("https://10.213.8.1", sys.platform))
            leads_nowhere = asyncio.run(ask("https://10.213.9.1", sys.platform))
    assert without.message.endswith("Network is unreachable")
    assert leads_nowhere.message.endswith("No route to host")
    assert "Check that the control plane runs" in leads_nowhere.advice
