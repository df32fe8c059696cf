"""The subcommands of tools/benchmark.py, one file each, and their common functions."""
