"""The console of administrators: pages at ``/admin``, and a JSON API at ``/api/v1``.

Both call the verbs of ``IAdministration``, and so do the commands ``rsscloud-broker admin``, which
use the API of a running broker.

``door``        the front door: all routes
``page``        what all pages share: who may see them, forms, notices and questions
``elements``    the elements that the pages share
``overview``    the first page, and the page with the changes
``subscriptions``, ``topics``, ``accounts``, ``lists``
                the other pages; their templates have the names of the pages
``operations``, ``account_operations``
                what each operation takes, and what it does; the API, its document, the commands and
                the forms are made from them
``shapes``      the values that the API answers, as JSON
``openapi``     the document at ``/api`` that describes the API
``api``         answers requests to the API
"""
