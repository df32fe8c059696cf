"""Build the documentation with `make docs`. The pages are plain Markdown; this adds what only the site needs."""
import json
import re
from base64 import b64decode
from pathlib import Path

import cvt_dense

DOCS = Path(__file__).parent
CONTENTS = {  # the navigation: captions, and pages in the order of the index
    'Get started': '(get_started/|generated/first)', 'Guides': 'guides/', 'Reference': '(generated|reference)/',
    'Results': '(results/|model_card)',
    'The project': '(design|questions)'}
OUTSIDE = ('configs', 'tools', 'cvt_dense/weights')

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
    for folder in map(Path, OUTSIDE):
        page = (DOCS.parent / folder / 'README.md').read_text()
        (DOCS / f'generated/{folder.name}.md').write_text(re.sub(r'\]\((\.\./)+docs/', '](../', page))


def write_notebook(app):
    """Write the notebook with its outputs as a page."""
    parts = []
    for cell in json.loads((DOCS / 'get_started/first_detector.ipynb').read_text())['cells']:
        text = ''.join(cell['source'])
        parts.append(text if cell['cell_type'] == 'markdown' else f'```python\n{text}\n```')
        for output in cell.get('outputs', ()):
            if image := output.get('data', {}).get('image/jpeg'):
                picture = f'{cell["id"]}.jpg'
                (DOCS / f'generated/{picture}').write_bytes(b64decode(image))
                parts.append(f'![The output of this cell]({picture})')
            elif printed := output.get('text') or output.get('data', {}).get('text/plain'):
                parts.append(f'```\n{"".join(printed).rstrip()}\n```')
    (DOCS / 'generated/first_detector.md').write_text('\n\n'.join(parts))


def adapt_page(app, docname, source):
    """Lead links to these copies, and add the navigation to the index."""
    source[0] = re.sub(r'\]\(([\w./]+/)?first_detector\.ipynb', '](/generated/first_detector.md', source[0])
    for folder in map(Path, OUTSIDE):
        source[0] = re.sub(rf'\]\((\.\./)+{folder}/README\.md', f'](/generated/{folder.name}.md', source[0])
    if docname == 'index':
        pages = dict.fromkeys(re.findall(r'\]\(/?([\w/]+)\.md\)', source[0]))
        for caption, pattern in CONTENTS.items():
            listed = '\n'.join(page for page in pages if re.match(pattern, page))
            source[0] += f'\n```{{toctree}}\n:caption: {caption}\n:hidden:\n\n{listed}\n```\n'


def setup(app):
    app.connect('builder-inited', copy_pages)
    app.connect('builder-inited', write_notebook)
    app.connect('source-read', adapt_page)
