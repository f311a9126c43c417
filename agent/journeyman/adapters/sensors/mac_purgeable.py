"""macOS: what Finder calls available, which counts what the system would purge at need.

Not free money: the system purges when it likes.  It is a second number beside statvfs, never instead of it.
Source: CFURL.h, kCFURLVolumeAvailableCapacityForImportantUsageKey.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from journeyman.model.readings import Measurement, Quality, missing

FRAMEWORK = "/System/Library/Frameworks/CoreFoundation.framework/CoreFoundation"
NUMBER_SINT64 = 4  # kCFNumberSInt64Type, CFNumber.h.


class MacPurgeable:
    """`disk.<label>.important_usage` of each work directory.

    Args:
        directories: absolute paths by label.
        important_usage: asks CoreFoundation; another one in tests.
    """

    name = "mac_purgeable"
    period_seconds = 60.0

    def __init__(
        self, directories: Mapping[str, str], important_usage: Callable[[str], int | None] | None = None
    ) -> None:
        self._directories = dict(directories)
        self._important_usage = important_usage or core_foundation_important_usage

    def read(self) -> list[Measurement]:
        """See `Sensor.read`."""
        return [
            self._measure(f"disk.{label}.important_usage", path) for label, path in self._directories.items()
        ]

    def _measure(self, name: str, path: str) -> Measurement:
        try:
            found = self._important_usage(path)
        except (OSError, AttributeError) as error:
            return missing(name, "bytes", self.name, Quality.UNSUPPORTED, str(error))
        if found is None:
            return missing(name, "bytes", self.name, Quality.ERROR, "CoreFoundation gave no number")
        return Measurement(name, found, "bytes", self.name)


def core_foundation_important_usage(path: str) -> int | None:
    """Bytes available for important usage on the volume of `path`.

    Raises:
        OSError, AttributeError: there is no CoreFoundation, or it lacks the key.
    """
    library = ctypes.CDLL(FRAMEWORK)
    pointer = ctypes.c_void_p
    make = library.CFURLCreateFromFileSystemRepresentation
    make.restype, make.argtypes = pointer, [pointer, ctypes.c_char_p, ctypes.c_long, ctypes.c_bool]
    copy = library.CFURLCopyResourcePropertyForKey
    copy.restype, copy.argtypes = ctypes.c_bool, [pointer, pointer, ctypes.POINTER(pointer), pointer]
    value_of = library.CFNumberGetValue
    value_of.restype, value_of.argtypes = ctypes.c_bool, [pointer, ctypes.c_long, pointer]
    library.CFRelease.argtypes = [pointer]
    key = pointer.in_dll(library, "kCFURLVolumeAvailableCapacityForImportantUsageKey")
    encoded = path.encode()
    url = make(None, encoded, len(encoded), True)
    number, result = pointer(), ctypes.c_int64()
    try:
        if not copy(url, key, ctypes.byref(number), None) or number.value is None:
            return None
        told = value_of(number, NUMBER_SINT64, ctypes.byref(result))
        library.CFRelease(number)
        return result.value if told else None
    finally:
        library.CFRelease(url)
