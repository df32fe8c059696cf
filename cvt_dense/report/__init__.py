"""The report of a network's errors (``tools/diagnose.py``), and the pictures of ``tools/predict.py``.

A report is a folder with ``report.html``, which opens from disk without a server, the same content as
``report.json``, and the pictures. pycocotools and supervision measure detections, and scikit-learn classifications.
"""
