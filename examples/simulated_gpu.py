"""The work of a driver, step by step on a simulated GPU: allocate, write, submit, read back with a callback, verify, free."""

import numpy as np

import polyhal as ph
from polyhal.hal.layout import Ref, contiguous

gpu = ph.Device("sim").backend
rng = np.random.default_rng(0)
a, b = rng.standard_normal((1, 64, 32), np.float32), rng.standard_normal((1, 32, 16), np.float32)
c = np.empty((1, 64, 16), np.float32)
shapes, arrived = [a.shape, b.shape, c.shape], []

with gpu.record_events() as log:
    # Allocate: a handle is an address in the memory of the device.
    addresses = [gpu.allocate(array.nbytes) for array in (a, b, c)]
    # Write: the DMA engine copies from the host's memory over the link.
    gpu.copy_to_device(memoryview(a).cast("B"), addresses[0], 0)
    gpu.copy_to_device(memoryview(b).cast("B"), addresses[1], 0)
    # Submit: a packet in the ring buffer refers to the kernel and its arguments. The host does not wait.
    gpu.matmul(*[Ref(address, contiguous(ph.float32, shape)) for address, shape in zip(addresses, shapes, strict=True)])
    # Read back: an interrupt runs the callback when the bytes have arrived. The host could do other work until then.
    event = gpu.copy_from_device_async(addresses[2], 0, memoryview(c).cast("B"))
    event.add_callback(lambda error: arrived.append(error or "the product has arrived"))
    event.wait()
    # Free: the allocator merges released ranges with free neighbours.
    for address in addresses:
        gpu.deallocate(address)

print(log.text())
print("callback:", *arrived)
print("equal to NumPy's result:", np.array_equal(c, a @ b))
