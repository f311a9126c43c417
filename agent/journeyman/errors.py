"""Every error that Journeyman raises on purpose, by whose fault it is.

    JourneymanError                 anything we can explain to the person at the terminal
    ├── UsageError             (2)  the command line cannot be understood
    ├── ConfigError           (78)  a setting is wrong; nothing was started
    ├── ArtifactError         (65)  the file of a release cannot be installed
    ├── ControlPlaneError     (69)  the other side, or the way to it
    │   ├── UnreachableError  (69)  no answer: refused, timed out, name not found
    │   ├── UnauthorizedError (77)  401 or 403: the credential is wrong or too weak
    │   │   └── DeniedError   (77)  an administrator has denied the request for a certificate
    │   ├── CertificateError  (69)  the signer failed, or signed what is of no use to us
    │   ├── PendingError      (79)  nobody has approved the request for a certificate yet
    │   ├── NotFoundError     (66)  404
    │   ├── ConflictError     (75)  409: somebody else wrote first, or the name is taken
    │   ├── ExpiredError      (69)  410: the resourceVersion is too old; list again
    │   └── InvalidError      (65)  400, 413 or 422: the object breaks its schema, or is too large
    ├── HostError             (71)  this machine: disk, port, permission, missing program
    │   ├── AlreadyRunningError (73)  another agent owns this state root
    │   ├── DownloadError     (69)  the server of a model, or the way to it
    │   └── NameTakenError    (76)  another machine beats under our node name
    └── WorkerError           (70)  a worker could not be started, or died
        └── ModelError        (74)  a model is missing, corrupt or does not load

The numbers are the exit codes of the CLI, taken from sysexits.h where one fits.  They are documented
in docs/exit-codes.md and are part of the interface.
"""

from __future__ import annotations

from enum import StrEnum


class JourneymanError(Exception):
    """Something that can be explained.

    Args:
        message: one line that says what is wrong.
        advice: one line that says what to do about it, or an empty string.
    """

    exit_code = 1

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice


class UsageError(JourneymanError):
    """The command line cannot be understood."""

    exit_code = 2


class ConfigError(JourneymanError):
    """A setting is wrong.  Nothing was started."""

    exit_code = 78


class ArtifactError(JourneymanError):
    """The file of a release is damaged, not signed by a known key, or not for this host."""

    exit_code = 65


class ControlPlaneError(JourneymanError):
    """The control plane said no, or something that we cannot read.

    Args:
        message: one line that says what is wrong.
        advice: what to do about it.
        status: the HTTP status, or 0 where there was none.
        reason: the `reason` of the Kubernetes Status object, or an empty string.
        retry_after_seconds: what the server asked for with Retry-After, or None.
    """

    exit_code = 69

    def __init__(
        self,
        message: str,
        advice: str = "",
        *,
        status: int = 0,
        reason: str = "",
        retry_after_seconds: float | None = None,
    ) -> None:
        super().__init__(message, advice)
        self.status = status
        self.reason = reason
        self.retry_after_seconds = retry_after_seconds


class UnreachableError(ControlPlaneError):
    """No answer came: the connection was refused, timed out, or the name was not found."""


class UnauthorizedError(ControlPlaneError):
    """The credential is missing, wrong or too weak (401, 403)."""

    exit_code = 77


class DeniedError(UnauthorizedError):
    """An administrator has denied the request for a certificate."""


class CertificateError(ControlPlaneError):
    """The signer could not sign, or what it signed is no certificate that this node can use."""


class PendingError(ControlPlaneError):
    """Nobody has approved the request for a certificate in time.  The same command goes on with it."""

    exit_code = 79


class NotFoundError(ControlPlaneError):
    """The object does not exist (404)."""

    exit_code = 66


class ConflictError(ControlPlaneError):
    """Somebody else wrote first, or the name is taken (409)."""

    exit_code = 75


class ExpiredError(ControlPlaneError):
    """The resourceVersion is too old (410): list again and watch from there."""


class InvalidError(ControlPlaneError):
    """The object breaks its schema (400, 422), or is too large (413)."""

    exit_code = 65


class HostError(JourneymanError):
    """This machine cannot do what is asked: disk, port, permission, missing program."""

    exit_code = 71


class AlreadyRunningError(HostError):
    """Another agent owns this state root."""

    exit_code = 73


class DownloadError(HostError):
    """The server of a model did not answer as it has to, or could not be reached.  A later try may help."""

    exit_code = 69


class NameTakenError(HostError):
    """Another machine beats under our node name."""

    exit_code = 76


class WorkerError(JourneymanError):
    """A worker could not be started, or died."""

    exit_code = 70


class ModelFault(StrEnum):
    """What is wrong with a model, as programs read it."""

    UNKNOWN = "Unknown"
    MISSING = "Missing"
    PART_MISSING = "PartMissing"
    EMPTY = "Empty"
    WEB_PAGE = "WebPage"
    OLD_FORMAT = "OldFormat"
    NOT_GGUF = "NotGguf"
    NOT_SAFETENSORS = "NotSafetensors"
    OFFSETS_WRONG = "OffsetsWrong"
    CONFIG_MISSING = "ConfigMissing"
    WRONG_RUNTIME = "WrongRuntime"
    UNSUPPORTED_VERSION = "UnsupportedVersion"
    HEADER_CUT = "HeaderCut"
    DATA_CUT = "DataCut"
    HASH_MISMATCH = "HashMismatch"
    NAME_TAKEN = "NameTaken"
    IN_USE = "InUse"


class ModelError(WorkerError):
    """A model is missing, corrupt or does not load.

    Args:
        message: one line that says what is wrong.
        advice: what to do about it.
        fault: the same for programs.
    """

    exit_code = 74

    def __init__(self, message: str, advice: str = "", *, fault: ModelFault = ModelFault.UNKNOWN) -> None:
        super().__init__(message, advice)
        self.fault = fault
