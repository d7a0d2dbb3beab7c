"""Tool servers: which there are, the processes and connections to them, and the loop of a reply."""
