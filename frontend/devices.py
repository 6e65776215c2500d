"""Devices by name, and the published figures of cards and links, for plans of machines that are not installed."""

from polyhal.hal.discovery.device_list import open_devices
from polyhal.hal.hardware.catalogue import is_known as is_card
from polyhal.hal.hardware.links import IDEAL, Link, standard_links
from polyhal.hal.hardware.profile import DeviceProfile, load_profile, profile_names

__all__ = ["IDEAL", "DeviceProfile", "Link", "is_card", "load_profile", "open_devices", "profile_names", "standard_links"]
