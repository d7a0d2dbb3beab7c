"""What the user wants: omlx.toml and its drop-ins, read, checked, merged and compared."""
