"""Reports of a training's data (``tools/browse.py``) and of a network's errors (``tools/diagnose.py``).

A report is a folder with ``report.html``, which opens from disk without a server, the same content as
``report.json``, and the pictures. The measurements are those of pycocotools, scikit-learn and supervision.
"""
