"""Whatever starts the guard on this host, one file each."""
