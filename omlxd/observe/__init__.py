"""Logs, events and metrics."""
