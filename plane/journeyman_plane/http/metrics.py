"""The plane's own figures in the text format of Prometheus."""

from __future__ import annotations

from journeyman_plane.http.api import Api


def exposition(api: Api) -> str:
    """All metrics, as https://prometheus.io/docs/instrumenting/exposition_formats/ has it."""
    lines = [
        "# HELP journeyman_plane_requests_total Requests for objects since the plane started.",
        "# TYPE journeyman_plane_requests_total counter",
    ]
    lines += [
        f'journeyman_plane_requests_total{{verb="{verb}",resource="{resource}"}} {count}'
        for (verb, resource), count in sorted(api.requests.items())
    ]
    for direction, count in (("received", api.received_bytes), ("sent", api.sent_bytes)):
        name = f"journeyman_plane_{direction}_bytes_total"
        lines += [
            f"# HELP {name} Bytes {direction} with requests for objects, heads included.",
            f"# TYPE {name} counter",
            f"{name} {count}",
        ]
    lines += [
        "# HELP journeyman_plane_resource_version The resourceVersion of the last write.",
        "# TYPE journeyman_plane_resource_version gauge",
        f"journeyman_plane_resource_version {api.store.version()}",
        "",
    ]
    return "\n".join(lines)
