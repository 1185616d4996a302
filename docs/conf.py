"""How the site is built: `make docs`. Nothing is downloaded, and a warning is an error."""

import sys
from importlib.metadata import version as installed
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

project = "infermax-opt"
author = "the authors of infermax-opt"
project_copyright = author
version = release = installed("infermax-opt")

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_click",
    # The site's own, in docs/_ext.
    "site_api",
    "site_escape",
    "site_formats",
    "site_pages",
    "site_tables",
    "site_theory",
]
exclude_patterns = ["_ext", "_static", "**/.ipynb_checkpoints"]
nitpicky = True
# Options begin with two hyphens.
smartquotes = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4

# Notebooks show what they really printed.
nb_execution_mode = "force"
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
# What they print where errors go is a warning, and so ends the build.
nb_output_stderr = "warn"

default_role = "code"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
python_maximum_signature_line_length = 100
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
add_module_names = False
toc_object_entries = False

highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "monokai"

html_theme = "furo"
html_title = "infermax-opt"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["sort.js"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}

# `make linkcheck`, which needs a network; all other links are checked by every build.
linkcheck_timeout = 20
linkcheck_retries = 2
