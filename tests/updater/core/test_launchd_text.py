"""What is read from launchctl's text, whatever release of macOS wrote it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journeyman_updater.core.launchd_text import PrintedJob, parse_disabled, parse_job

# In the shape that macOS 13 and later print, shortened.
RUNNING = """\
system/dev.journeyman.agent = {
\tactive count = 1
\tpath = /Library/LaunchDaemons/dev.journeyman.agent.plist
\ttype = LaunchDaemon
\tstate = running

\tprogram = /var/lib/journeyman/guard/guard
\targuments = {
\t\t/var/lib/journeyman/guard/guard
\t\t--root
\t\tstate = lost
\t}

\tdefault environment = {
\t\tPATH => /usr/bin:/bin:/usr/sbin:/sbin
\t\tJOURNEYMAN_UNIT => of somebody else
\t}

\tenvironment = {
\t\tJOURNEYMAN_UNIT => 0123456789ab
\t\tODD => a = b => c
\t\tXPC_SERVICE_NAME => dev.journeyman.agent
\t}

\tdomain = system
\tminimum runtime = 10
\texit timeout = 30
\truns = 3
\tpid = 913
\tlast exit code = 78: EX_CONFIG

\tendpoints = {
\t\t"dev.journeyman.port" = {
\t\t\tstate = active
\t\t\tactive count = 1
\t\t\tpid = 1
\t\t}
\t}
\tpended nondemand spawn = false
\tproperties = keepalive | runatload
}
"""


def test_reads_the_fields_of_the_job_and_of_no_table_in_it() -> None:
    """`state = active` of an endpoint, or an argument that looks like a field, is not the job's."""
    job = parse_job(RUNNING)
    assert (job.state, job.pid, job.runs, job.exit_timeout_seconds) == ("running", 913, 3, 30)
    assert job.path == "/Library/LaunchDaemons/dev.journeyman.agent.plist"
    assert job.pended is None
    assert job.environment == {
        "JOURNEYMAN_UNIT": "0123456789ab",
        "ODD": "a = b => c",
        "XPC_SERVICE_NAME": "dev.journeyman.agent",
    }


@pytest.mark.parametrize("name", ["state", "pid", "runs", "exit timeout", "path", "program"])
def test_a_missing_field_is_unknown(name: str) -> None:
    """A release of macOS that leaves a field out leaves the others readable."""
    lines = [line for line in RUNNING.splitlines() if not line.startswith(f"\t{name} = ")]
    whole, without = vars(parse_job(RUNNING)), vars(parse_job("\n".join(lines)))
    assert {key for key in whole if whole[key] != without[key]} == {
        {"exit timeout": "exit_timeout_seconds"}.get(name, name)
    }


def test_no_environment_table_is_not_an_empty_one() -> None:
    """Text without the table says nothing about the variables; an empty table says that there are none."""
    assert parse_job("a/b = {\n\tstate = running\n}\n").environment is None
    assert parse_job("a/b = {\n\tenvironment = {\n\t}\n}\n").environment == {}


def test_a_spawn_that_is_kept_back_has_its_reason() -> None:
    """A job that was never spawned has no pid, no runs, and a reason."""
    text = "a/b = {\n\tstate = not running\n\truns = 0\n\tpended nondemand spawn = speculative\n}\n"
    assert parse_job(text) == PrintedJob(state="not running", runs=0, pended="speculative")


@given(st.text())
def test_no_text_makes_it_fail(text: str) -> None:
    """Any text at all gives a job."""
    parse_job(text)
    parse_disabled(text, "dev.journeyman.agent")


@pytest.mark.parametrize(
    ("value", "meaning"),
    [("disabled", True), ("enabled", False), ("true", True), ("false", False), ("maybe", None)],
)
def test_overrides_are_read_in_both_spellings(value: str, meaning: bool | None) -> None:  # noqa: FBT001
    """MacOS 13 spells `disabled` what was `true` before; another word is unknown."""
    other = '\t"dev.journeyman.agent.x" => true\n'
    text = f'disabled services = {{\n{other}\t"dev.journeyman.agent" => {value}\n}}\n'
    assert parse_disabled(text, "dev.journeyman.agent") is meaning


def test_a_label_without_an_override_is_unknown() -> None:
    """The list names only labels that were ever enabled or disabled by hand."""
    assert parse_disabled("disabled services = {\n}\n", "dev.journeyman.agent") is None
