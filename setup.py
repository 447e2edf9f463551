"""The packages of the distribution, which pyproject.toml cannot describe to setuptools.

``twisted.plugins`` is a package of Twisted, to which this project adds one module.  The directory
must have no ``__init__.py``, so setuptools does not find it by itself.  The explicit
``package_dir`` makes an editable install put the top of the checkout on Python's path, where
``twistd`` finds ``twisted/plugins``.
"""

from setuptools import find_packages, setup

setup(
    package_dir={"": "."},
    packages=[*find_packages(include=["rsscloud_broker", "rsscloud_broker.*"]), "twisted.plugins"],
    package_data={
        "rsscloud_broker": [
            "py.typed",
            "example.toml",
            "apps/*/*.css",
            "apps/*/*.html",
            "apps/*/*.js",
            "storage/migrations/*.mako",
            "web/*.css",
            "web/admin/*.html",
            "web/*.html",
            "web/*.ico",
            "web/*.js",
            "web/*.svg",
        ]
    },
)
