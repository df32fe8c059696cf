"""Reports of a training's data (``tools/browse.py``) and of a network's errors (``tools/diagnose.py``).

A report is a folder with ``report.html``, which opens from disk without a server, the same content as
``report.json``, and the pictures. pycocotools and supervision measure detections, and scikit-learn classifications.
"""
