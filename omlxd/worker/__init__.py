"""The child process that runs one engine; the only code that imports MLX."""
