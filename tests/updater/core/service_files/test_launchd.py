"""The property lists that people install."""

from __future__ import annotations

import plistlib
from pathlib import Path
from typing import Any

import pytest

from journeyman_updater.core.service_files.launchd import (
    LaunchdSettings,
    marked,
    problems,
    render_agent,
    render_updater,
    unit_of,
)

LAUNCHD = Path(__file__).resolve().parents[4] / "launchd"
SYSTEM = LaunchdSettings(
    kind="system",
    guard="/var/lib/journeyman/guard/journeyman-guard",
    updater="/var/lib/journeyman/guard/journeyman-updater",
    root="/var/lib/journeyman",
    log_folder="/Library/Logs/journeyman",
    user="journeyman",
)
HOME = "/Users/ada/Library/Application Support/journeyman"
GUI = LaunchdSettings(
    kind="gui",
    guard=f"{HOME}/guard/journeyman-guard",
    updater=f"{HOME}/guard/journeyman-updater",
    root=HOME,
    log_folder="/Users/ada/Library/Logs/journeyman",
    uid=501,
)
USER = LaunchdSettings(
    kind="user", guard=GUI.guard, updater=GUI.updater, root=GUI.root, log_folder=GUI.log_folder, uid=501
)
ALL = {"system": SYSTEM, "gui": GUI, "user": USER}


def lists() -> dict[str, bytes]:
    """Each file of launchd/ by its path below it."""
    found = {}
    for kind, settings in ALL.items():
        found[f"{kind}/{settings.agent_label}.plist"] = render_agent(settings)
        found[f"{kind}/{settings.updater_label}.plist"] = render_updater(settings)
    return found


def parsed(text: bytes) -> dict[str, Any]:
    value: dict[str, Any] = plistlib.loads(text)
    return value


@pytest.mark.parametrize("name", lists())
def test_the_reference_files_are_what_is_rendered(name: str) -> None:
    """launchd/ holds what an installation with the usual settings writes, byte for byte."""
    assert (LAUNCHD / name).read_bytes() == lists()[name]


def test_there_are_no_other_reference_files() -> None:
    """A file that nothing renders would be installed by nobody."""
    assert {str(path.relative_to(LAUNCHD)) for path in LAUNCHD.rglob("*.plist")} == set(lists())


@pytest.mark.parametrize("name", lists())
def test_what_is_rendered_has_no_problem(name: str) -> None:
    """Each key is one of launchd.plist(5) and has a value of its type."""
    assert problems(parsed(lists()[name])) == []


@pytest.mark.parametrize("settings", ALL.values(), ids=list(ALL))
def test_the_agent_is_kept_running_and_stopped_in_bounds(settings: LaunchdSettings) -> None:
    """Relaunched on any exit, ten seconds apart at most; its stop is bounded; nothing of it is abandoned."""
    agent = parsed(render_agent(settings))
    assert agent["KeepAlive"] is True
    assert agent["RunAtLoad"] is True
    assert agent["ThrottleInterval"] == 10
    assert agent["ExitTimeOut"] == settings.stop_seconds
    assert agent["ProcessType"] == "Standard"
    assert "AbandonProcessGroup" not in agent


def test_only_a_daemon_has_a_user_and_only_an_agent_a_session() -> None:
    """System: UserName and no session type, for the boot without a login; else the other way round."""
    system, gui, user = (parsed(render_agent(settings)) for settings in (SYSTEM, GUI, USER))
    assert (system["UserName"], system.get("LimitLoadToSessionType")) == ("journeyman", None)
    assert (gui.get("UserName"), gui["LimitLoadToSessionType"]) == (None, "Aqua")
    assert (user.get("UserName"), user["LimitLoadToSessionType"]) == (None, "Background")


def test_the_updater_of_a_system_install_is_root() -> None:
    """It owns what the agent may not write, so it has no UserName."""
    assert "UserName" not in parsed(render_updater(SYSTEM))


def test_the_updater_is_woken_up_and_has_an_interval_behind_that() -> None:
    """Both may miss, so both are there; it is no job that is kept alive."""
    updater = parsed(render_updater(GUI))
    assert updater["WatchPaths"] == [f"{HOME}/run/update-wanted"]
    assert updater["StartInterval"] == 300
    assert updater["RunAtLoad"] is True
    assert "KeepAlive" not in updater


def test_an_agent_that_may_start_the_updater_knows_its_job() -> None:
    """In a user's domains the agent is told the job; in the system's it may not start it."""
    system, gui, user = (
        parsed(render_agent(settings))["EnvironmentVariables"].get("JOURNEYMAN_UPDATER_JOB")
        for settings in (SYSTEM, GUI, USER)
    )
    assert system is None
    assert gui == "gui/501/dev.journeyman.updater"
    assert user == "user/501/dev.journeyman.updater"


def test_homebrew_is_on_the_path() -> None:
    """A service is handed /usr/bin and its kin alone; Homebrew has two places, by processor."""
    path = parsed(render_agent(SYSTEM))["EnvironmentVariables"]["PATH"].split(":")
    assert {"/opt/homebrew/bin", "/usr/local/bin", "/usr/bin", "/bin"} <= set(path)


def test_any_change_makes_another_unit() -> None:
    """The digest in the environment tells lists apart, whatever differs between them."""
    first = parsed(render_agent(SYSTEM))
    later = LaunchdSettings(**{**vars(SYSTEM), "stop_seconds": 31})
    assert unit_of(first) == unit_of(parsed(render_agent(SYSTEM)))
    assert unit_of(first) != unit_of(parsed(render_agent(later)))
    assert unit_of({"Label": "somebody.else"}) is None


def test_each_registration_has_a_mark_of_its_own() -> None:
    """The same list registered twice is two units; nothing else of it changes, and marks do not add up."""
    text = render_agent(SYSTEM)
    first, second = parsed(marked(text, "01")), parsed(marked(marked(text, "01"), "02"))
    unit = unit_of(parsed(text))
    assert (unit_of(first), unit_of(second)) == (f"{unit}.01", f"{unit}.02")
    first["EnvironmentVariables"]["JOURNEYMAN_UNIT"] = unit
    assert first == parsed(text)


def test_a_foreign_list_is_not_marked() -> None:
    """What we did not render is left as it is, byte for byte."""
    text = plistlib.dumps({"Label": "somebody.else"})
    assert marked(text, "01") == text


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"KeepAlve": True}, "KeepAlve is no key"),
        ({"ExitTimeout": 30}, "ExitTimeout is no key"),
        ({"ThrottleInterval": "10"}, "ThrottleInterval has a value of the wrong type"),
        ({"ThrottleInterval": True}, "ThrottleInterval has a value of the wrong type"),
        ({"KeepAlive": 1}, "KeepAlive has a value of the wrong type"),
        ({"ProgramArguments": []}, "ProgramArguments is missing"),
        ({"ProgramArguments": ["guard"]}, "ProgramArguments is no absolute path"),
        ({"StandardErrorPath": "agent.log"}, "StandardErrorPath is no absolute path"),
        ({"Label": ""}, "Label is missing"),
        ({"AbandonProcessGroup": True}, "AbandonProcessGroup would leave"),
        ({"ExitTimeOut": 0}, "ExitTimeOut of 0 waits for ever"),
    ],
)
def test_what_launchd_would_swallow_is_named(change: dict[str, Any], complaint: str) -> None:
    """Unknown keys are ignored and unfit values answered with a bare 5, so each has its line here."""
    found = problems({**parsed(render_agent(SYSTEM)), **change})
    assert len(found) == 1
    assert found[0].startswith(complaint)
