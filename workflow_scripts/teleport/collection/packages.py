"""Versions of the packages that a collection or checkpoint comes from."""

from importlib import metadata

DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # where the name that is imported is not the name that is installed


def package_version(name):
    """The installed public version of the distribution of package `name`, for example sklearn → 1.9.1.

    The local part is dropped: torch 2.13.0+cpu and 2.13.0+cu130 are built from the same sources.
    """
    try:
        return metadata.version(DISTRIBUTIONS.get(name, name)).split("+")[0]
    except metadata.PackageNotFoundError:
        remedy = "install it, or take it out of the list."
        raise ValueError(f"the package {name!r} of the configuration is not installed: {remedy}") from None
