"""What the proxy decides: where a request goes, what it may hold, and what a stream says."""
