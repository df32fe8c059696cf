"""Annotations of other tools: reading, converting and drawing from them."""
