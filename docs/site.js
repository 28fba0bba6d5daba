// For the site of tools/build_site.py: wide tables and code scroll with the keyboard, too.
for (const region of document.querySelectorAll(".md-typeset__scrollwrap, .highlight pre > code, pre > code")) region.tabIndex = 0;
