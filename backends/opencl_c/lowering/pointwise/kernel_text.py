"""Generated parts of elementwise kernels (parameters, loads, expressions, stores) for a kernel file's macros."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from polyhal.backends.common.codegen.elementwise import ElementwiseOperand
from polyhal.backends.common.codegen.expressions import register_class
from polyhal.backends.common.codegen.statements import RegisterValue
from polyhal.backends.common.launching.launch import Scalar, ScalarType, Tensor
from polyhal.backends.opencl_c.dialect import passed_type, type_name
from polyhal.backends.opencl_c.lowering.support.statement_text import StatementText
from polyhal.hal import dtypes
from polyhal.hal.dtypes import DType
from polyhal.hal.layout import ScalarSpec
from polyhal.hal.protocol import InputSpec


@dataclass(slots=True)
class KernelText(StatementText):
    """Text of a kernel and the arguments that it needs. Its struct is `geometry`."""

    parameters: list[str] = field(default_factory=list)
    locate: list[str] = field(default_factory=list)
    registers: list[str] = field(default_factory=list)
    load: list[str] = field(default_factory=list)
    load_part: list[str] = field(default_factory=list)
    store: list[str] = field(default_factory=list)
    store_part: list[str] = field(default_factory=list)

    def tensor(self, operand: ElementwiseOperand, const: str = "const ") -> None:
        """Add the parameters of an operand: memory p<position> and p<position>_offset."""
        n = operand.position
        self.parameters.append(f"__global {const}STORAGE({operand.dtype.name}) *p{n}, const ulong p{n}_offset")
        self.args[f"p{n}"] = Tensor(n)

    def runtime_scalar(self, name: str, type_: ScalarType, index: int) -> None:
        """Add a parameter for input `index`, a number that may differ between calls."""
        self.parameters.append(f"const {type_} {name}")
        self.args[name] = Scalar(index)

    def signature(self) -> dict[str, str]:
        """Return the definitions of the kernel's parameters, of its struct, and of variables for the struct's members."""
        return {
            "PARAMETERS": ", ".join(self.parameters),
            "GEOMETRY": self.members(),
            "UNPACK_GEOMETRY": self.unpack("geometry"),
        }

    def body(self) -> dict[str, str]:
        """Return the definitions of the kernel's code for whole vectors and for the last elements."""
        return {
            "LOCATE": "\n".join(self.locate),
            "REGISTERS": "\n".join(self.registers),
            "LOAD_FULL": "\n".join(self.load),
            "LOAD_PART": "\n".join(self.load_part),
            "COMPUTE_ALL": "\n".join(self.compute),
            "STORE_FULL": "\n".join(self.store),
            "STORE_PART": "\n".join(self.store_part),
        }

    def inputs(self, inputs: Sequence[InputSpec | None], operands: Sequence[ElementwiseOperand]) -> list[RegisterValue]:
        """Load each input into a register: tensors from pointers q<position>, numbers from parameters."""
        values = []
        for i, spec in enumerate(inputs):
            if isinstance(spec, ScalarSpec):
                values.append(self.number(i, spec.dtype))
            elif spec is None:
                values.append(RegisterValue("", dtypes.float32))
            else:
                values.append(self.load_operand(next(o for o in operands if o.position == i)))
        return values

    def number(self, position: int, dtype: DType) -> RegisterValue:
        """Load an input that is a number into a register."""
        self.runtime_scalar(f"x{position}", passed_type(dtype), position)
        return self.number_in_register(position, dtype, f"x{position}")

    def number_in_register(self, position: int, dtype: DType, variable: str) -> RegisterValue:
        """Copy a variable of the type in which numbers are passed to all elements of a register."""
        register = type_name(register_class(dtype))
        self.compute.append(f"const VEC({register}) r{position} = (VEC({register}))(({register}){variable});")
        return RegisterValue(f"r{position}", dtype)

    def load_operand(self, operand: ElementwiseOperand) -> RegisterValue:
        """Load the elements of a tensor from its pointer q<position> into a register."""
        position, name = operand.position, operand.dtype.name
        self.registers.append(f"VEC(COMPUTE({name})) r{position};")
        access, stride = operand.access.upper(), f", t{position}" if operand.access == "strided" else ""
        arguments = f"({name}, r{position}, q{position}{stride})"
        self.load.append(f"LOAD_{access}{arguments}")
        # A broadcast reads one element, whether or not the vector is whole.
        self.load_part.append(f"LOAD_{access}{'' if access == 'BROADCAST' else '_PART'}{arguments}")
        return RegisterValue(f"r{position}", operand.dtype)

    def write(self, operand: ElementwiseOperand, expression: str) -> None:
        """Store an expression to an output."""
        # The address of the register is taken for partial stores, so it must be a variable.
        position, name = operand.position, operand.dtype.name
        self.compute.append(f"VEC({type_name(register_class(operand.dtype))}) w{position} = {expression};")
        if operand.access == "contiguous":
            access, stride = "CONTIGUOUS", ""
        else:
            # An output of one element may have "broadcast" access: its stride is meaningless.
            access, stride = "STRIDED", f", t{position}" if operand.access == "strided" else ", 0"
        arguments = f"({name}, w{position}, q{position}{stride})"
        self.store.append(f"STORE_{access}{arguments}")
        self.store_part.append(f"STORE_{access}_PART{arguments}")
