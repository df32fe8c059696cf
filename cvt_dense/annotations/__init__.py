"""Check COCO files, and convert the annotations of other tools."""
