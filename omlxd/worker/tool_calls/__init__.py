"""Tool calls read from what a model writes."""
