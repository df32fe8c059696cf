"""Annotation files: one reading of COCO's format, and conversion from and to other formats."""
