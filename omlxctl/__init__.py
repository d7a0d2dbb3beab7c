"""The command line of omlxd."""
