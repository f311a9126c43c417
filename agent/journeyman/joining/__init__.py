"""What `journeyman join` and `leave` do: a machine gets a node of a control plane, and gives it back.

What a join leaves in the state root is all that the agent and the updater need: credential, CA, the key that
signs releases, a few lines of `config.toml`, and `node.json`.  It proves itself before anything is written.
"""

from journeyman.joining.entering import join
from journeyman.joining.files import give_to_agent
from journeyman.joining.invitations import Invitation, invite, revoke
from journeyman.joining.leaving import Left, leave
from journeyman.joining.model import Joined, JoinRequest

__all__ = [
    "Invitation",
    "JoinRequest",
    "Joined",
    "Left",
    "give_to_agent",
    "invite",
    "join",
    "leave",
    "revoke",
]
