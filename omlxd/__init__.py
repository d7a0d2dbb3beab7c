"""A declarative daemon that serves local MLX models."""

__version__ = "0.1.0"
