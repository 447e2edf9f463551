"""The HTML pages of the broker: the front page, the templates of all pages, and their styles."""
