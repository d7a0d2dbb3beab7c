"""The pure core of the daemon: plan(desired, observed, now) → actions."""
