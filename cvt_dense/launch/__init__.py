"""From a command line to a checked Runner: what runs before a run. Imported by tools only."""
