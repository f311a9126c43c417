"""A big Linux laptop as a tree of files: 40 zones with ten trips, 20 chips, 3 batteries, and one program."""

from __future__ import annotations

import os
from pathlib import Path

from journeyman.adapters.sensors.catalogue import Host, host_facts, sensors_for
from journeyman.core.gates.host_class import host_class
from journeyman.ports import Sensor
from tests.support.host_tree import Programs, Ticker, host_files


def big_host_sensors(folder: Path, *, on_battery: bool = False) -> list[Sensor]:
    """Its sensors, over files that are made in the folder."""
    files: dict[str, str] = {}
    for zone in range(40):
        place = f"sys/class/thermal/thermal_zone{zone}"
        files |= {f"{place}/type": "x86_pkg_temp", f"{place}/temp": f"{50000 + zone}"}
        for trip in range(10):
            files |= {
                f"{place}/trip_point_{trip}_type": "passive",
                f"{place}/trip_point_{trip}_temp": "90000",
            }
        files |= {f"{place}/trip_point_9_type": "critical", f"{place}/trip_point_9_temp": "105000"}
    for chip in range(20):
        place = f"sys/class/hwmon/hwmon{chip}"
        files |= {
            f"{place}/name": "coretemp",
            f"{place}/temp1_input": "51000",
            f"{place}/temp1_crit": "100000",
        }
    status = "Discharging" if on_battery else "Full"
    for battery in range(3):
        place = f"sys/class/power_supply/BAT{battery}"
        files |= {f"{place}/type": "Battery", f"{place}/status": status, f"{place}/capacity": "90"}
    files["proc/meminfo"] = Path("/proc/meminfo").read_text()
    smi = Programs({"nvidia-smi --help": '"index"', "nvidia-smi --query": "0, 50, 1000, 0\n"})
    host = Host(
        files=host_files(folder, files), run=smi, boot=Ticker(), system="linux", environ={}, uid=os.getuid()
    )
    return sensors_for(host, host_class(host_facts(host)), {"state": str(folder)})
