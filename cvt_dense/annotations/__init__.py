"""Check COCO files, convert the annotations of other tools, and write predictions as annotations."""
