"""The console of administrators: pages at ``/admin``, and a JSON API at ``/api/v1``.

Both call the verbs of ``IAdministration``, and so do the commands ``rsscloud-broker admin``, which
use the API of a running broker.

``door``        the front door: all routes
``table``       all operations of the API; the document and the commands are made from it
``operations``  what each operation takes, and what it does
``shapes``      the values that the API answers, as JSON
``openapi``     the document at ``/api`` that describes the API
``api``         answers requests to the API
"""
