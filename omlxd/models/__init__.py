"""Discovery: folders to model cards."""
