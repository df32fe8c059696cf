"""Read configs, and answer questions about their settings before anything is built."""
