"""The conformance kit: what a device must do to be a Polyhal backend, as checks that anyone can run on their own.

    pytest --pyargs polyhal.hal.testing --polyhal-device=NAME

runs everything; `verify(device)` does the same without pytest. The checks are derived from the contract and from the op
declarations, so that a new op or a new dtype is covered the moment it is declared. Unlike the rest of `polyhal.hal`,
this package may import the public `polyhal` package: it is a client of tensors and of the tape, like any test.

Rooms: `cases` lists the checks; `contract`, `forward` and `gradients` are the checks; `arrangements` lays inputs out in
memory; `values` makes samples concrete; `tolerances` says how much error is allowed, and why; `failures` is what a failed
check says; `bare` reduces a device to the required members, `isolation` keeps it apart from the program's;
`expectations` holds what is known to be missing; `plugin` is the pytest side.

What users get is `examine`, behind `polyhal verify`: `verification` runs the cases and fills a `record`, `diagnosis` finds
the kernels behind failures, `examination` has them passed over and checks again, `findings` writes it all into a
`certificate`. `journal` remembers what took the process with it, `survey` asks how ops run, and `coverage` writes the page
about that.
"""

from polyhal.hal.testing.certification.certificate import Certificate
from polyhal.hal.testing.certification.examination import examine
from polyhal.hal.testing.certification.verification import Outcome, Report, verify
from polyhal.hal.testing.kit.cases import Case, cases
from polyhal.hal.testing.kit.expectations import Expectations
from polyhal.hal.testing.kit.scope import Scope

__all__ = ["Case", "Certificate", "Expectations", "Outcome", "Report", "Scope", "cases", "examine", "verify"]
