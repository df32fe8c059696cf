"""Build the documentation with `make docs`."""
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import make_tables

import cvt_dense

project = 'cvt_dense'
release = cvt_dense.__version__
copyright = 'the cvt_dense authors'
extensions = ['myst_parser', 'sphinx.ext.autodoc', 'sphinx.ext.napoleon', 'sphinxarg.ext']
highlight_language = 'none'  # of code blocks that name none
html_theme = 'furo'
html_title = f'cvt_dense {release}'
html_copy_source = False
html_static_path = ['_static']
html_css_files = ['site.css']
exclude_patterns = ['generated']  # the pages include these tables
myst_enable_extensions = ['colon_fence']
myst_heading_anchors = 3
autodoc_typehints = 'none'  # signatures of the backbone would be longer than their documentation
autodoc_member_order = 'bysource'
napoleon_google_docstring = True
napoleon_attr_annotations = False
suppress_warnings = ['config.cache']


def setup(app):
    app.connect('builder-inited', lambda app: make_tables.write_all(Path(__file__).parent / 'generated'))
