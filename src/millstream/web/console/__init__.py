"""The console: an application and its broker as pages for people, live.

    pages.py, app_pages.py   which pages there are, and what each one asks
    page_serving.py          a page, and the same page as a stream of its parts that changed
    tails.py                 records of a topic and changes of a view, as they come
    actions.py               what changes something; sessions.py says who may
    watch.py                 samples counters, for rates and for figures over time
    ports.py, facts.py       what pages are made of; commands/console/ gives it

Rendered here, escaped by default (templates/), with no script that pages cannot do without. PURE:
facts, figures, flow_layout, record_text, sessions. docs/guides/console.md.
"""
