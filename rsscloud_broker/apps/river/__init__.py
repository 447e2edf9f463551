"""The river: a reading list for each account, and the items of its feeds, newest first.

``model``          feeds and items, as the page and programs see them
``river``          what an account can do: follow feeds, read items, import and export OPML
``app``            makes the application
"""
