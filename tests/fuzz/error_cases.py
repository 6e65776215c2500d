"""Programs whose errors differ from PyTorch's on purpose, see known_errors.py in benchmarks/reliability/programs."""

from __future__ import annotations

from known_case import ROWS, Case, X

from benchmarks.reliability.programs.agree import leaf

ERRORS = (
    Case(
        "keeps more for the gradient",
        "v1 = x1 * 1.0\nv2 = F.tanhshrink(v1)\nv1.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X},
    ),
    Case(
        "keeps more for the gradient",
        "v1 = x1 * 1.0\nv2 = F.cross_entropy(v1, x2, reduction='none')\nv1.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X, "x2": leaf([0, 1], "int64")},
    ),
    Case(
        "a write that PyTorch does not notice",
        "v1 = x1 * 1.0\nv2 = torch.kron(v1, x2)\nx2.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X, "x2": leaf([[1.0, 2.0]], "float32")},
    ),
    Case(
        "PyTorch copies",
        "v1 = torch.tensordot(x1, x2, 1)\nx1.exp_()\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[1.0]], "float32"), "x2": leaf([[1.0]], "float32", requires_grad=True)},
    ),
    Case(
        "PyTorch copies",
        "m1 = made(nn.GRU(2, 3, batch_first=True), 1)\nv1 = m1(x1)[0]\nx1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[[0.5, 1.0], [2.0, -1.0]], [[1.5, 1.0], [2.5, -1.0]]], "float32")},
        "torch eager",
    ),
    Case(
        "PyTorch copies",
        "m1 = made(nn.GRU(2, 3), 1)\nv1 = m1(x1)[0]\nv1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[[0.5, 1.0], [2.0, -1.0]], [[1.5, 1.0], [2.5, -1.0]]], "float32")},
        "torch eager",
    ),
    Case(
        "PyTorch copies",
        "v1 = F.linear(x1, x2, x3)\nx1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([[1.0, 2.0]], "float32"), "x3": leaf([1.0], "float32", True)},
        "torch eager",
    ),
    Case(
        "PyTorch copies",
        """
        m1 = made(nn.MultiheadAttention(2, 1, batch_first=True), 57)
        v1 = x1 * 1.0
        v2 = m1(v1, v1, v1, need_weights=False)[0]
        v1.mul_(2.0)
        v3 = v2.sum()
        v3.backward()
        """,
        {"x1": leaf([[[0.5, 1.0], [2.0, -1.0]], [[1.5, 1.0], [2.5, -1.0]]], "float32")},
    ),
    Case(
        "PyTorch copies",
        "v1 = x1 * 1.0\nv2 = F.cross_entropy(v1, x2)\nv1.add_(1.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": X, "x2": leaf([0, 1], "int64")},
        "torch eager",
    ),
    Case(
        "a view in PyTorch",
        "with torch.no_grad():\n    v1 = F.max_pool1d(x1, 2, 1)\nv1.copy_(x2)",
        {"x1": leaf([[[1.0, 1.0]]], "float32"), "x2": leaf([1.0], "float32", requires_grad=True)},
        "torch eager",
    ),
    Case(
        "a gradient is a broadcast",
        "v1 = x1.sum()\nv2 = torch.autograd.grad(v1, x1)[0]\nv2.mul_(2.0)",
        {"x1": X},
    ),
    Case(
        "a gradient that PyTorch does not have",
        "v1 = torch.heaviside(x1, x1).sum()\nv1.backward()",
        {"x1": X},
    ),
    Case(
        "PyTorch copies",
        "v1 = x1.permute([1, 0, 2]) * 1.0\nv2 = torch.matmul(v1, x2)\nv1.mul_(2.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": leaf([[[1.0, 2.0], [3.0, 4.0]]] * 2, "float32"), "x2": leaf([1.0, 2.0], "float32", True)},
    ),
    Case(
        "a checkpoint of changed inputs",
        """
        m1 = made(nn.Linear(2, 2), 1)
        v1 = torch.utils.checkpoint.checkpoint(lambda x1: m1(x1), x1, use_reentrant=False)
        v2 = v1.sum()
        with torch.no_grad():
            m1.weight.mul_(0.5)
        v2.backward()
        """,
        {"x1": X},
    ),
    Case(
        "PyTorch copies",
        "v1 = F.linear(x1, x2, x3).sum()\nv1.backward()\nv2 = v1 * 2.0\nv2.backward()",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([[1.0, 2.0]], "float32"), "x3": leaf([1.0], "float32", True)},
        "torch eager",
    ),
    Case(
        "PyTorch copies",
        "v1 = F.rms_norm(x1, [2], x2)\nx1.mul_(2.0)\nv2 = v1.sum()\nv2.backward()",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([1.0, 2.0], "float32", True)},
        "torch eager",
    ),
    Case(
        "PyTorch copies",
        "v1 = x1.mT\nv2 = F.linear(v1, x2)\nx1.mul_(2.0)\nv3 = v2.sum()\nv3.backward()",
        {"x1": leaf([[[1.0, 2.0], [3.0, 4.0]]] * 2, "float32"), "x2": leaf([[1.0, 2.0]], "float32", True)},
    ),
    Case(
        "second gradients of attention",
        """
        v1 = F.scaled_dot_product_attention(x1, x1, x1, None, is_causal=False)
        v2 = torch.tanh(v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = v3.sin().sum()
        v4.backward()
        """,
        {"x1": ROWS},
        "torch eager",
    ),
    Case(
        "zeros off the tape",
        """
        v1 = torch.tril(x1, 0)
        v1[-1, :, :, None] = 0.3
        v2 = (v1 * v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = (v3 * v3).sum()
        v4.backward()
        """,
        {"x1": leaf([[[1.0]]], "float32", requires_grad=True)},
    ),
)
