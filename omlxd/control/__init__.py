"""The control socket: what omlxctl talks to."""
