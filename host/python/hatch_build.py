"""The wheel's tag: one wheel for every Python from 3.10 on, on this platform and its C library."""

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags


class Tag(BuildHookInterface):
    """Sets the tag of a wheel with compiled code."""

    PLUGIN_NAME = "custom"

    def initialize(self, version, build_data):
        # The newest C library that this system has: what was linked against it runs on it. Indexes refuse a plain `linux`.
        platform = next(tag for tag in platform_tags() if not tag.startswith("linux"))
        build_data["tag"] = f"cp310-abi3-{platform}"
        build_data["pure_python"] = False
