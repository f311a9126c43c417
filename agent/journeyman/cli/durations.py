"""Amounts as options of the command line."""

from __future__ import annotations

from typing import Any

import click

from journeyman.core.quantities import bytes_from, seconds_from


class Duration(click.ParamType[float]):
    """`90s`, `30m`, `2h` or `1d`, as seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return seconds_from(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Bytes(click.ParamType[int]):
    """`500M`, `2G` or `2Gi`, as bytes."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return bytes_from(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


DURATION = Duration()
BYTES = Bytes()
