"""Pure scheduling decisions of one engine."""
