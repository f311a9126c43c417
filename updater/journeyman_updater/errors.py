"""Every error that the updater raises on purpose, by whose fault it is.

    UpdaterError                 anything that stops an update, with a stable reason code
    ├── RequestError             what was asked for is not granted: the request must change
    ├── PostponedError           not now: the request stands, and nothing is wrong
    ├── SourceError              the way to the artifact, or its server: later may be better
    ├── UntrustedError           these bytes or this signature are not what was promised; nothing of them ran
    ├── ReleaseError   rejects   the verified release itself is unfit: other bytes are needed
    ├── HostError                this machine: disk, permissions, clock
    ├── RestartError             the service manager did not do, or did not prove, what was asked
    └── TrialError     rejects   the release was tried and failed by itself

Only two of them are evidence against the release itself (`rejects`).  `is_transient` says that the same
request may succeed later without anybody's help.  All others wait for a changed request or for a person.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Reason codes.  They appear in conditions, logs and `--json` output and never change their meaning."""

    # What was asked for.
    BAD_REQUEST = "BadRequest"
    """The request cannot be read: version, URL or digest are malformed."""
    PINNED = "Pinned"
    """This node is pinned to another version."""
    DENYLISTED = "Denylisted"
    """This release was rejected here before."""
    SUPERSEDED = "Superseded"
    """The request was replaced, or taken back, before anything stopped."""
    OUTSIDE_WINDOW = "OutsideWindow"
    """The maintenance window of this host is closed."""
    GATE_CLOSED = "GateClosed"
    """A gate of this host that concerns a fetch is closed."""
    ATTEMPTS_EXHAUSTED = "AttemptsExhausted"
    """All attempts of this release are used up."""

    # The way to the artifact.
    UNREACHABLE = "Unreachable"
    """No answer: name not found, connection refused or cut."""
    TLS_UNTRUSTED = "TlsUntrusted"
    """The server's certificate is not trusted."""
    SCHEME_DOWNGRADE = "SchemeDowngrade"
    """A URL or a redirect is not https."""
    TOO_MANY_REDIRECTS = "TooManyRedirects"
    """The redirects do not end."""
    HTTP_STATUS = "HttpStatus"
    """The server answered with another status than success."""
    STALLED = "Stalled"
    """No byte came for the stall timeout."""
    TOO_LARGE = "TooLarge"
    """More bytes than the limit, or than were promised."""
    LENGTH_MISMATCH = "LengthMismatch"
    """Fewer bytes than were promised, or a promise that contradicts the signature."""
    HTML_BODY = "HtmlBody"
    """A web page came in place of the artifact: a captive portal, or a login page."""

    # Trust.
    HASH_MISMATCH = "HashMismatch"
    """The SHA-256 is not the one that was asked for."""
    BAD_SIGNATURE = "BadSignature"
    """The signature is missing, malformed, of an unknown key, or of something else."""
    EXPIRED = "Expired"
    """The signature has expired.  This blocks updates only; what runs goes on."""
    ROLLBACK_REFUSED = "RollbackRefused"
    """The signed sequence is lower than one that was accepted before."""

    # The verified release.
    WRONG_FORMAT = "WrongFormat"
    """It is no tar.gz: a bare executable, a zip, or something else."""
    COMPRESSED = "Compressed"
    """It is compressed twice, or by the transport."""
    BAD_ARCHIVE = "BadArchive"
    """The archive is damaged, or lacks what each release has."""
    UNSAFE_PATH = "UnsafePath"
    """A member's path is absolute, leads out of the tree, or cannot be written everywhere."""
    UNSAFE_LINK = "UnsafeLink"
    """A link leads out of the tree, or is a hard link."""
    UNSAFE_TYPE = "UnsafeType"
    """A member is a device, a pipe or another special file."""
    DUPLICATE_MEMBER = "DuplicateMember"
    """Two members have the same path, be it only on file systems that ignore case."""
    BAD_MODE = "BadMode"
    """A member is setuid, setgid, sticky or writable for others."""
    DECOMPRESSION_BOMB = "DecompressionBomb"
    """It unpacks to more bytes or files than is sane."""
    WRONG_PRODUCT = "WrongProduct"
    """It is a release of something else."""
    WRONG_OS = "WrongOS"
    """It is for another operating system."""
    WRONG_ARCH = "WrongArch"
    """It is for another processor."""
    WRONG_PYTHON = "WrongPython"
    """It does not support the Python of this host."""
    NOT_EXECUTABLE_FORMAT = "NotExecutableFormat"
    """The kernel does not know the format of its program (ENOEXEC)."""
    EXEC_CHECK_FAILED = "ExecCheckFailed"
    """Its program failed when asked for its version."""
    EXEC_CHECK_TIMEOUT = "ExecCheckTimeout"
    """Its program did not answer when asked for its version."""
    VERSION_MISMATCH = "VersionMismatch"
    """Its program names another version than its signature or the request."""
    CODE_SIGNATURE_INVALID = "CodeSignatureInvalid"
    """macOS killed its program at the start."""

    # This host.
    SELF_UPDATE_UNAVAILABLE = "SelfUpdateUnavailable"
    """This installation cannot replace itself."""
    NOT_WRITABLE = "NotWritable"
    """The folder of versions cannot be written."""
    INSUFFICIENT_DISK = "InsufficientDisk"
    """Not enough free space."""
    NO_EXEC = "NoExec"
    """The file system of the state root forbids execution (noexec)."""
    CLOCK_WRONG = "ClockWrong"
    """The clock of this host is wrong, so dates cannot be judged."""
    DRAIN_TIMEOUT = "DrainTimeout"
    """Work that cannot be handed over did not end in time."""

    # The service manager.
    RESTART_NOT_PERMITTED = "RestartNotPermitted"
    """We may not ask the service manager for a restart."""
    RESTART_UNPROVEN = "RestartUnproven"
    """The restart cannot be proven."""
    OLD_PLIST = "OldPlist"
    """launchd still runs the old property list."""
    NEED_DAEMON_RELOAD = "NeedDaemonReload"
    """systemd still runs the old unit."""
    START_LIMITED = "StartLimited"
    """The service manager refuses more starts."""
    DOMAIN_UNAVAILABLE = "DomainUnavailable"
    """The service manager cannot be reached: no login, no bus, no runsv."""
    SERVICE_DISABLED = "ServiceDisabled"
    """The service is disabled."""

    # The trial.
    CRASH_LOOP = "CrashLoop"
    """It ended by itself in each attempt."""
    NOT_READY = "NotReady"
    """It did not become READY in time."""
    UNHEALTHY = "Unhealthy"
    """It became READY and did not stay healthy."""
    ROLLED_BACK = "RolledBack"
    """The previous version runs again."""
    ROLLBACK_FAILED = "RollbackFailed"
    """The previous version could not be brought back."""


class UpdaterError(Exception):
    """An update cannot go on.

    Args:
        reason: the stable code.
        message: one line that says what is wrong.
        advice: one line that says what to do about it, or an empty string.
    """

    rejects = False
    """Whether it is evidence against the release itself, which is then never tried again."""
    is_transient = False
    """Whether the same request may succeed later without anybody's help."""

    def __init__(self, reason: Reason, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.advice = advice


class RequestError(UpdaterError):
    """What was asked for is not granted."""


class PostponedError(UpdaterError):
    """Not now: the window, a gate, or a request that has changed.  Nothing is wrong, nothing is counted."""

    is_transient = True


class SourceError(UpdaterError):
    """The way to the artifact, or its server.

    Args:
        reason: the stable code.
        message: one line that says what is wrong.
        advice: what to do about it.
        retry_after_seconds: how long the server asked us to wait, or None.
        at_once: whether trying again within the same run makes sense, rather than at the next one.
    """

    is_transient = True

    def __init__(
        self,
        reason: Reason,
        message: str,
        advice: str = "",
        *,
        retry_after_seconds: float | None = None,
        at_once: bool = True,
    ) -> None:
        super().__init__(reason, message, advice)
        self.retry_after_seconds = retry_after_seconds
        self.at_once = at_once


class UntrustedError(UpdaterError):
    """These bytes or this signature are not what was promised.  Nothing of them ran."""


class ReleaseError(UpdaterError):
    """The verified release itself is unfit for this host."""

    rejects = True


class HostError(UpdaterError):
    """This machine cannot take an update now."""

    is_transient = True


class RestartError(UpdaterError):
    """The service manager did not do, or did not prove, what was asked."""

    is_transient = True


class TrialError(UpdaterError):
    """The release was tried and failed by itself."""

    rejects = True
