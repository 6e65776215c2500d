"""Sections and keys of a card's file.

    title = "Radeon RX 480"
    vendor = "AMD"                      # empty if it is not a product
    type = "gpu"                        # a value of `DeviceType`
    family = "amd"                      # the vendor profile that fits its driver
    aliases = ["polaris"]               # other names that open it

    [driver.opencl]                     # properties that the driver reports: see `driver_schemas`

    [performance]                       # times of `sim:` and of forecasts; figures in the units of data sheets
    [performance.peak_tflop_s]          # by dtype; missing dtypes have the rate of float32
    [performance.efficiency]            # fraction of the peak by op family, `memory`: of the bandwidth
    [performance.latency_us]            # minimum times of kernels by op family
    [performance.cache]
    [performance.shapes]                # tiles of products, packing of convolutions
    [performance.overhead]              # times of the driver

    [links.host]                        # link to the host
    [links.peer]                        # link to another such card of the machine; absent: as to the host

A link or an OpenCL driver may have a key `standard`: the name of a table in `links.toml` or `drivers.toml` with values for
absent keys.
"""

from __future__ import annotations

from polyhal.hal.capabilities import DeviceType
from polyhal.hal.core.hardware.driver_schemas import DRIVERS
from polyhal.hal.core.hardware.standards import standard_tables
from polyhal.hal.core.settings.toml_schema import Key, TableSchema

_NUMBER, _TIME, _TEXT, _COUNT = Key(float), Key(float, zero=True), Key(str), Key(int)
_BY_NAME = TableSchema(others=_NUMBER, optional=True)
_LINK: dict[str, Key | TableSchema] = {"kind": _TEXT, "bandwidth_gb_s": _NUMBER, "latency_us": _TIME}
_PERFORMANCE: dict[str, Key | TableSchema] = {
    "compute_units": _COUNT,
    "clock_mhz": Key(int, zero=True),
    "memory_gib": _NUMBER,
    "max_allocation_gib": _NUMBER,
    "local_memory_kib": Key(int, zero=True),
    "bandwidth_gb_s": _NUMBER,
    "peak_tflop_s": TableSchema({"float32": _NUMBER}, others=_NUMBER),
    "efficiency": TableSchema({"default": _NUMBER, "memory": _NUMBER}, others=_NUMBER),
    "latency_us": _BY_NAME,
    "cache": TableSchema({"size_mib": _NUMBER, "bandwidth_gb_s": _NUMBER}, optional=True),
    "shapes": TableSchema(
        {
            "tile_outputs": _BY_NAME,
            "split_depth": Key(int, optional=True),
            "sliced_flops": _BY_NAME,
            "fill_depth": _BY_NAME,
            "half_row": Key(float, optional=True, zero=True),
            "packing_gb_s": _BY_NAME,
        },
        optional=True,
    ),
    "overhead": TableSchema(
        {
            "launch_us": _TIME,
            "submit_us": _TIME,
            "replay_us": Key(float, optional=True, zero=True),
            "sync_us": _TIME,
            "watchdog_s": _NUMBER,
        }
    ),
}
DRIVER_APIS = tuple(DRIVERS)
CARD = TableSchema(
    {
        "title": _TEXT,
        "vendor": _TEXT,
        "type": Key(str, choices=tuple(DeviceType)),
        "family": Key(str, optional=True),
        "aliases": Key(str, many=True, optional=True),
        "driver": TableSchema(DRIVERS, optional=True),
        "performance": TableSchema(_PERFORMANCE, optional=True),
        "links": TableSchema(
            {
                "host": TableSchema(
                    {**_LINK, "dma_engines": _COUNT, "unified_memory": Key(bool)}, standards=standard_tables("links")
                ),
                "peer": TableSchema(_LINK, optional=True, standards=standard_tables("links")),
            },
            optional=True,
        ),
    }
)
