"""Programs whose values or facts differ from PyTorch's on purpose, see known_values.py in benchmarks/reliability/programs."""

from __future__ import annotations

from known_case import ROWS, Case, X

from benchmarks.reliability.programs.agree import INF, NAN, leaf

CANCELLING = [
    [
        [[-1.0, 2.0, 1.0, -1.0], [-1.0, 0.0, 1.0, 1.0], [0.0, -2.0, -1.0, -1.0], [2.0, 1.0, 0.0, 2.0]],
        [[-1.0, -1.0, -1.0, -1.0], [1.0, 0.0, 0.0, 2.0], [-2.0, 1.0, 0.0, 1.0], [2.0, 0.0, 1.0, -2.0]],
        [[2.0, 0.0, 2.0, 0.0], [0.0, 0.0, 1.0, -2.0], [-1.0, 2.0, -1.0, 2.0], [0.0, 1.0, -1.0, -2.0]],
        [[1.0, 0.0, 0.0, -1.0], [-2.0, 1.0, -2.0, 1.0], [0.0, -2.0, 0.0, 0.0], [-1.0, -1.0, 1.0, 1.0]],
    ]
]
VALUES = (
    Case(
        "the gradient of padding",
        "v1 = F.pad(x1, (1, 0), mode='replicate')\nv2 = torch.autograd.grad(v1.sum(), x1, create_graph=True)[0]",
        {"x1": ROWS},
    ),
    Case("at infinities and NaN", "v1 = torch.sign(x1)", {"x1": leaf([NAN, 1.0], "float32")}),
    Case(
        "at infinities and NaN",
        "v1 = F.softsign(x1).sum()\nv1.backward()",
        {"x1": leaf([INF, 1.0], "float32", requires_grad=True)},
    ),
    Case(
        "at infinities and NaN",
        """
        v1 = torch.copysign(x1, x2).sum()
        v2 = torch.autograd.grad(v1, x1, create_graph=True)[0]
        v3 = (v2 * v2).sum()
        v3.backward()
        """,
        {"x1": leaf([1.0, 0.0], "float32", True), "x2": leaf([1.0, 1.0], "float32")},
    ),
    Case(
        "at infinities and NaN",
        "v1 = torch.linalg.matrix_power(x1, 3)",
        {"x1": leaf([[-0.482, -0.045], [-0.482, INF]], "float32")},
    ),
    Case(
        "at infinities and NaN",
        "v1 = torch.searchsorted(x1, x2)",
        {"x1": leaf([0.0, NAN], "float32"), "x2": leaf([0.5, 0.25], "float32")},
    ),
    Case(
        "a hook of a view",
        """
        v1 = p1.permute([1, 0])
        v1.register_hook(lambda g: -g)
        with torch.no_grad():
            p1.mul_(0.9)
        v2 = torch.tanh(v1).sum()
        v2.backward()
        """,
        {"p1": X},
    ),
    Case(
        "one of several zeros",
        "v1 = torch.topk(x1, 2)[0].sum()\nv1.backward()",
        {"x1": leaf([[0.0, 1.0, 1.0, 0.0], [-1.0, 0.0, 0.0, 0.0], [0.0] * 4], "float32", requires_grad=True)},
    ),
    Case(
        "the joint of prelu",
        """
        m1 = made(nn.PReLU(), 606)
        v1 = m1(x1).sum()
        v2 = torch.autograd.grad(v1, x1, create_graph=True)[0]
        v3 = torch.tanh(v2).sum()
        v3.backward()
        """,
        {"x1": leaf([0.0], "float32", requires_grad=True)},
    ),
    Case(
        "the sign of a zero",
        "v1 = F.layer_norm(x1, [3], eps=0.5)\nv2 = torch.atan2(x2, v1)",
        {"x1": leaf([[-0.0, 0.0, 0.0]], "float32"), "x2": leaf([[0.0, 0.0, 2.0]], "float32")},
    ),
    Case(
        "the sign of a zero",
        "v1, v2 = torch.aminmax(x1, dim=1)\nv3 = torch.atan2(v2, x2)",
        {"x1": leaf([[-0.0, 0.0], [0.0, -0.0]], "float32"), "x2": leaf([-2.0, -2.0], "float32")},
    ),
    Case(
        "PyTorch is less exact",
        "v1 = torch.special.airy_ai(x1)",
        {"x1": leaf([-2.2431305755109308], "float64")},
    ),
    Case(
        "PyTorch is less exact",
        "v1 = torch.tanh(F.hardsigmoid(x1)).sum()\nv1.backward()",
        {"x1": leaf([1.0], "float64", requires_grad=True)},
    ),
    Case(
        "windows that overlap",
        "v1 = x1.unfold(0, 2, 1)\nv2 = torch.select_scatter(v1, x2, 0, 0)",
        {"x1": leaf([1.0, 2.0, 3.0], "float32"), "x2": leaf([4.0, 5.0], "float32")},
    ),
    Case(
        "differences of nothing",
        "v1 = torch.diff(x1, dim=0)\nv1[:] = x2",
        {"x1": leaf([], "float32"), "x2": leaf([1.0], "float32", True)},
    ),
    Case(
        "differences of nothing",
        "v1 = torch.diff(x1, dim=0)\nv2 = x1.sum()\nv3 = torch.autograd.grad(v2, v1)[0]",
        {"x1": leaf([], "float32", True)},
    ),
    Case(
        "a layout of PyTorch",
        """
        v1 = torch.einsum('ij,jk->ik', x1, x2)
        v1.register_hook(lambda g: torch.clamp(g, -0.3, 0.3))
        v1.index_add_(0, torch.tensor([0, 1]), x1[:, :1].detach())
        v2 = v1.sum()
        v2.backward()
        """,
        {"x1": X, "x2": leaf([[1.0], [2.0]], "float32")},
    ),
    Case(
        "a layout of PyTorch",
        "v1 = x1.sum()\nv2 = torch.autograd.grad(v1, x1)[0]\nv2[1:, 1:].mul_(-1.5)",
        {"x1": X},
    ),
    Case(
        "a hook of a view",
        """
        v1 = x1[:1]
        v1.register_hook(lambda g: g * 0.5)
        v1.backward(torch.ones_like(v1), retain_graph=True)
        v2 = x1.detach()
        v2[:] = 1.0
        v3 = (v1 * 2.0).sum()
        v3.backward()
        """,
        {"x1": X},
    ),
    Case(
        "a hook of a view",
        """
        v1 = x1[:1]
        v2 = v1[:]
        with torch.no_grad():
            x1.add_(1.0)
        v1.register_hook(lambda g: g * 0.5)
        v3 = (v2 * 2.0).sum()
        v3.backward()
        """,
        {"x1": X},
    ),
    Case(
        "the sign of a zero",
        "v1 = F.mish(x1)\nv2 = torch.copysign(x2, v1)",
        {"x1": leaf([-INF], "float32"), "x2": leaf([1.0], "float32")},
    ),
    Case(
        "rounding decides",
        "v1 = F.batch_norm(x1, None, None, None, None, True)\nv2 = v1.mean()\nv2 *= v2\nv3 = torch.floor_divide(v2, v1)",
        {"x1": leaf([[1.0], [2.0], [3.0], [4.0]], "float32")},
    ),
    Case(
        "second gradients through a result",
        """
        v1 = torch.logcumsumexp(x1 * 1.0, 0)
        v2 = (v1 * v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = (v3 * v3).sum()
        v5 = torch.autograd.grad(v4, v1)[0]
        """,
        {"x1": X},
    ),
    Case(
        "second gradients through a result",
        """
        v1 = F.scaled_dot_product_attention(x1, x1, x1)
        v1.register_hook(lambda g: g * 0.5)
        v2 = torch.tanh(v1).sum()
        v3 = torch.autograd.grad(v2, x1, create_graph=True)[0]
        v4 = (v3 * v3).sum()
        v4.backward()
        """,
        {"x1": ROWS},
    ),
    Case(
        "a linear layer of a device",
        "v1 = F.linear(x1, x2).sum()\nv2 = torch.autograd.grad(v1, x2, create_graph=True)[0]",
        {"x1": leaf([[1.0, 2.0]], "float32"), "x2": leaf([[1.0, 2.0]], "float32", True)},
        "torch eager",
    ),
    Case(
        "rounding decides",
        "v1 = torch.linalg.cross(x1, x1)\nv2 = torch.argwhere(v1)\nv3 = torch.where(x2, v2, v2)",
        {
            "x1": leaf([[-0.2590000033378601, 1.8279999494552612, 0.7760000228881836]], "float32"),
            "x2": leaf([[True]] * 2, "bool"),
        },
    ),
    Case(
        "rounding decides",  # PyTorch computes the last of 33 numbers without vectors, and rounds it differently
        "v1 = torch.atan2(x1, x1)\nv2 = torch.unique(v1)\nv2[:] = x2",
        {"x1": leaf([0.137 * k for k in range(1, 34)], "float32"), "x2": leaf([1.0, 1.0], "float32")},
    ),
    Case(
        "rounding decides",
        "v1 = torch.logaddexp2(x1, x1)\nv2 = torch.argwhere(v1)",
        {"x1": leaf([-1.0, -1.0, -1.0, -1.0], "float32")},
    ),
    Case("a layout of PyTorch", "v1 = torch.tanh(x1.mT)\nv2 = v1.contiguous()\nv2.mul_(2.0)", {"x1": X}),
    Case(
        "a layout of PyTorch",
        "v1 = torch.linalg.cholesky(x1 @ x1.mT).unfold(0, 2, 1)\nv2 = v1.flatten()\nv2[:-1] = -1.0",
        {"x1": X},
    ),
    Case(
        "at infinities and NaN",
        "v1 = torch.hypot(x1, x1).sum()\nv1.backward()",
        {"x1": leaf([1.0, 0.0], "float32", requires_grad=True)},
    ),
    Case(
        "at infinities and NaN",
        """
        v1 = torch.sinc(x1).sum()
        v2 = torch.autograd.grad(v1, x1, create_graph=True)[0]
        v3 = v2.sum()
        v3.backward()
        """,
        {"x1": leaf([0.0, 0.5], "float32", requires_grad=True)},
    ),
    Case(
        "at infinities and NaN",
        "v1 = torch.nanmean(x1, 1).sum()\nv1.backward()",
        {"x1": leaf([[1.0], [NAN]], "float32", requires_grad=True)},
    ),
    Case(
        "at infinities and NaN",
        "v1 = torch.scatter_reduce(x1, 0, x2, x1, 'amax').sum()\nv1.backward()",
        {"x1": leaf([NAN, 1.0], "float32", requires_grad=True), "x2": leaf([1, 1], "int64")},
    ),
    Case(
        "at infinities and NaN",
        "v1 = F.soft_margin_loss(x1, x2, reduction='none').sum()\nv1.backward()",
        {"x1": leaf([-60000.0, 1.0], "float32", requires_grad=True), "x2": leaf([1.0, 1.0], "float32")},
    ),
    Case("at infinities and NaN", "v1 = torch.sign(x1)\nv2 = torch.isnan(v1)", {"x1": leaf([NAN, 1.0], "float32")}),
    Case(
        "at infinities and NaN",
        "v1 = F.l1_loss(x1, x2, reduction='sum')\nv1.backward()\nv2 = x1.grad.clone()",
        {"x1": leaf([INF, 1.0], "float32", requires_grad=True), "x2": leaf([INF, 0.5], "float32")},
    ),
    Case(
        "at infinities and NaN",
        "v1 = torch.logcumsumexp(x1, 0)\nv2 = (v1 * x2).sum()\nv2.backward()",
        {"x1": leaf([0.5, -INF], "float32", requires_grad=True), "x2": leaf([1.0, NAN], "float32")},
    ),
    Case(
        "at infinities and NaN",
        "v1 = torch.addmv(x1, x2, x3)",
        {"x1": leaf([-INF], "float16"), "x2": leaf([[2.0, 3.0]], "float16"), "x3": leaf([60000.0, 2.0], "float16")},
    ),
    Case(
        "the sign of a zero",
        "v1 = torch.relu(x1)\nv2 = torch.atan2(v1, x2)",
        {"x1": leaf([-0.0, 1.0], "float32"), "x2": leaf([-2.0, 1.0], "float32")},
    ),
    Case(
        "gradients that cancel",
        """
        v1 = x1[:, :]
        v2 = torch.sin(torch.linalg.cross(v1, x1)).mean().to(torch.float32)
        v1.backward(torch.ones_like(v1))
        v2.backward()
        """,
        {"x1": leaf([[2.0, 2.0, 60000.0]], "bfloat16", requires_grad=True)},
    ),
    Case(
        "gradients that cancel",
        """
        v1 = F.group_norm(x1, 2)
        v2 = torch.index_fill(v1, 0, torch.tensor([0]), 0.5) + v1.sum()
        v3 = torch.tanh(v2).sum() + torch.tanh(v2).sum() + v1.mean()
        v3.backward()
        """,
        {"x1": leaf(CANCELLING, "float32", requires_grad=True)},
    ),
    Case(
        "attention to one key",
        """
        v1 = F.scaled_dot_product_attention(x1, x1, x2, None, is_causal=False)
        v2 = torch.scatter(x2, 2, torch.argsort(x2, dim=2, stable=True), v1)
        v3 = (v2 * v2).sum() + v2.sum()
        v3.backward()
        """,
        {
            "x1": leaf([[[1.0, 2.0, 3.0, 4.0, 5.0]], [[21.0, 22.0, 23.0, 24.0, 25.0]]], "float32", requires_grad=True),
            "x2": leaf([[[1.045, -0.814, -1.065, 1.402, -0.317]], [[3.452, 1.201, -0.608, -0.577, 0.724]]], "float32"),
        },
    ),
    Case(
        "statistics of a checkpoint",
        """
        m1 = made(nn.BatchNorm1d(2, eps=0.1), 15)
        v1 = torch.utils.checkpoint.checkpoint(lambda m1, x1: m1(x1), m1, x1, use_reentrant=False)
        """,
        {"x1": leaf([[1.0, 2.0], [3.0, 5.0]], "float32")},
        "captured forward",
    ),
    Case(
        "rounding decides",
        "v1 = F.group_norm(x1, 1)\nv2 = torch.logical_not(v1)",
        {
            "x1": leaf(
                [
                    [
                        [
                            [-1.0, 0.0, 0.0, 1.0, 2.0],
                            [1.0, 2.0, -2.0, 2.0, 0.0],
                            [-1.0, 1.0, 0.0, -2.0, 1.0],
                            [1.0, 0.0, 1.0, 0.0, 2.0],
                        ],
                        [
                            [-1.0, 0.0, 1.0, -1.0, -2.0],
                            [1.0, 1.0, -1.0, 1.0, 2.0],
                            [-1.0, -2.0, 0.0, 0.0, -2.0],
                            [1.0, -1.0, -2.0, 0.0, -2.0],
                        ],
                    ]
                ],
                "float32",
            )
        },
    ),
)
