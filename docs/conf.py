"""Build the documentation with `make docs`. The pages are plain Markdown; this adds what only the site needs."""
import re
from pathlib import Path

import cvt_dense

DOCS = Path(__file__).parent
CONTENTS = {  # the navigation: captions, and pages in the order of the index
    'Get started': 'get_started/', 'Guides': 'guides/', 'Reference': '(generated|reference)/',
    'Results': '(results/|model_card)',
    'The project': '(design|questions)'}
OUTSIDE = ('configs', 'tools')

project = 'cvt_dense'
release = cvt_dense.__version__
copyright = 'the cvt_dense authors'
extensions = ['myst_parser']
highlight_language = 'none'  # of code blocks that name none
html_theme = 'furo'
html_title = f'cvt_dense {release}'
html_copy_source = False
html_static_path = ['_static']
html_css_files = ['site.css']
myst_heading_anchors = 3
suppress_warnings = ['config.cache']


def copy_pages(app):
    """Copy the pages outside of this folder to which others link, since Sphinx does not read them there."""
    (DOCS / 'generated').mkdir(exist_ok=True)
    for folder in OUTSIDE:
        page = (DOCS.parent / folder / 'README.md').read_text()
        (DOCS / f'generated/{folder}.md').write_text(page.replace('](../docs/', '](../'))


def adapt_page(app, docname, source):
    """Lead links to these copies, and add the navigation to the index."""
    source[0] = re.sub(rf'\]\((\.\./)+({"|".join(OUTSIDE)})/README\.md', r'](/generated/\2.md', source[0])
    if docname == 'index':
        pages = dict.fromkeys(re.findall(r'\]\(/?([\w/]+)\.md\)', source[0]))
        for caption, pattern in CONTENTS.items():
            listed = '\n'.join(page for page in pages if re.match(pattern, page))
            source[0] += f'\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{listed}\n```\n'


def setup(app):
    app.connect('builder-inited', copy_pages)
    app.connect('source-read', adapt_page)
