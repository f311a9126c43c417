"""What `journeyman install` does: checks, a state root, credentials, a release, a service, and the proof.

All that can be known beforehand is looked at before anything is written, and what a failed run has made is
taken back.  The programs, units and users are the updater's, see `journeyman_updater/installation.py`.
"""

from journeyman.installation.checks import check
from journeyman.installation.making import install, plan
from journeyman.installation.model import Report, Request, explained

__all__ = ["Report", "Request", "check", "explained", "install", "plan"]
