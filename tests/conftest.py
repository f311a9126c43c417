"""Rules that hold for every test: no silent skip in CI."""

from __future__ import annotations

import os
import signal

import hypothesis
import pytest

pytest_plugins = [
    "tests.support.models",
    "tests.support.real_kubeconfig",
    "tests.support.real_releases",
    "tests.support.virtual_time",
]

# A skip is honest only where the part cannot exist on this host; anything else is a missing install step.
CANNOT_RUN_HERE = "cannot run here: "


# A shell that starts the tests in the background ignores SIGINT for them, and programs inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples in every run, and no deadline: how fast a machine is has no say in whether a rule holds.
hypothesis.settings.register_profile("journeyman", deadline=None, derandomize=True)
hypothesis.settings.load_profile("journeyman")


def pytest_addoption(parser: pytest.Parser) -> None:
    """What only the owner of the right machine can run."""
    parser.addoption(
        "--real-launchd",
        metavar="FILE",
        help="run the contract suite against the launchd of this Mac too, and add its replies to FILE",
    )
    parser.addoption(
        "--real-apiserver",
        action="store_true",
        help="run the conformance suite against a kube-apiserver too, see scripts/real-apiserver",
    )
    parser.addoption(
        "--record", action="store_true", help="keep the answers of that server as what the plane is held to"
    )
    parser.addoption(
        "--api-server",
        metavar="KUBECONFIG",
        help="run the conformance suite against that API server too; it needs LLMKube's CRDs",
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """In the default and full tiers a skip must say `cannot run here: ...`, or it is a failure."""
    outcome = yield
    report = outcome.get_result()
    if not report.skipped or os.environ.get("JOURNEYMAN_TEST_TIER") not in {"default", "full"}:
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if CANNOT_RUN_HERE not in reason:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped without saying why it cannot run: {reason}"
