"""The conformance kit: the requirements of the backend contract as checks that anyone can run on a device.

    pytest --pyargs polyhal.hal.testing --polyhal-device=NAME

runs all checks; `verify(device)` does the same without pytest, and `certify(device)`, behind `polyhal verify`, also
quarantines kernels that fail. The checks are derived from the contract and the op declarations, so that a new op or
dtype is covered by its declaration. Unlike the rest of `polyhal.hal`, this package may import the public `polyhal`
package: it uses tensors and the tape, like any test.

- `kit`: `cases` lists the checks of `contract`, `forward` and `gradients`; `tolerances` derives the error bounds.
- `certification`: `runner` runs cases, `diagnosis` finds the kernels behind failures, `certificate` is the result.
- `tuning`: `search` and `kernel_check` implement the commands `polyhal tune` and `polyhal kernels`.
- `plugin`: the pytest plug-in.
"""

from polyhal.hal.system.reference.tolerances import ResultError
from polyhal.hal.testing.certification.certificate import Certificate
from polyhal.hal.testing.certification.certify import certify
from polyhal.hal.testing.certification.run_record import ANY, RunRecord
from polyhal.hal.testing.certification.runner import KitReport, Outcome, run_case, select_cases, verify
from polyhal.hal.testing.kit.cases import Case, cases, check, op_cases
from polyhal.hal.testing.kit.expectations import Expectations
from polyhal.hal.testing.kit.failures import failed_call, one_line
from polyhal.hal.testing.kit.isolation import isolated, strict
from polyhal.hal.testing.kit.scope import Scope

__all__ = [
    "ANY", "Case", "Certificate", "Expectations", "KitReport", "Outcome", "ResultError", "RunRecord", "Scope", "cases",
    "certify", "check", "failed_call", "isolated", "one_line", "op_cases", "run_case", "select_cases", "strict", "verify",
]  # fmt: skip
