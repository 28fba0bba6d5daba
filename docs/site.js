// For the site of tools/build_site.py: wide tables and code scroll with the keyboard, too. The theme wraps tables later.
const reach = () => document.querySelectorAll(".md-typeset__scrollwrap, pre > code").forEach((region) => (region.tabIndex = 0));
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
reach();
