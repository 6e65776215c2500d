"""Devices by name and by backend, and the figures of cards and links, for plans of machines that are not installed."""

from polyhal.hal.core.hardware.catalogue import is_known as is_card
from polyhal.hal.core.hardware.links import IDEAL, Link, standard_links
from polyhal.hal.core.hardware.profile import DeviceProfile, load_profile, profile_names
from polyhal.hal.core.plugins.entry_points import describe as describe_error
from polyhal.hal.core.plugins.probing import hardware_type
from polyhal.hal.system.diagnostics.doctor import distributions
from polyhal.hal.system.diagnostics.measurements import (
    DriverTimes,
    LinkTimes,
    MeasuredCall,
    MeasuredDevice,
    MeasuredSample,
    Measurements,
)
from polyhal.hal.system.discovery.device_list import open_devices
from polyhal.hal.system.discovery.processor import model as processor_model
from polyhal.hal.system.discovery.registry import registry
from polyhal.parallel.device_rates import DeviceRates, device_rates

__all__ = [
    "IDEAL", "DeviceProfile", "DeviceRates", "DriverTimes", "Link", "LinkTimes", "MeasuredCall", "MeasuredDevice",
    "MeasuredSample", "Measurements", "describe_error", "device_rates", "distributions", "hardware_type", "is_card",
    "load_profile", "open_devices", "processor_model", "profile_names", "registry", "standard_links",
]  # fmt: skip
