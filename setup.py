"""What setuptools cannot be told in pyproject.toml.

``twisted.plugins`` is a package of Twisted's, to which this project adds one
module; it must stay without an ``__init__.py``, so no finder finds it.  The
explicit ``package_dir`` makes an editable install put the top of the checkout
itself on the path, where ``twistd`` finds ``twisted/plugins``.
"""

from setuptools import find_packages, setup

setup(
    package_dir={"": "."},
    packages=[*find_packages(include=["rsscloud_broker", "rsscloud_broker.*"]), "twisted.plugins"],
    package_data={
        "rsscloud_broker": [
            "py.typed",
            "example.toml",
            "storage/migrations/*.mako",
            "web/*.css",
            "web/*.html",
            "web/*.ico",
            "web/*.svg",
        ]
    },
)
