"""Muon: momentum, made orthogonal by five Newton-Schulz steps. It learns from fewer tokens than Adam does."""

import torch

# The coefficients of Keller Jordan's Muon: they lift small singular values as fast as possible.
A, B, C = 3.4445, -4.7750, 2.0315
STEPS = 5


class Muon(torch.optim.Optimizer):
    def __init__(self, weights, lr, momentum=0.95, decay=0.01):
        super().__init__(weights, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            by_shape = {}
            for weight in group["params"]:
                average = self.state[weight].setdefault("average", torch.zeros_like(weight))
                average.lerp_(weight.grad, 1 - group["momentum"])
                update = weight.grad.lerp(average, group["momentum"])
                by_shape.setdefault(tuple(weight.shape), []).append((weight, update))
            for (rows, columns), pairs in by_shape.items():
                updates = orthogonal(torch.stack([update / (update.norm() + 1e-7) for _, update in pairs]))
                for (weight, _), update in zip(pairs, updates):
                    weight.mul_(1 - group["lr"] * group["decay"])
                    weight.add_(update.float(), alpha=-group["lr"] * max(1, rows / columns) ** 0.5)


def orthogonal(stack):
    """Brings the singular values of each matrix near one. All matrices have one shape. Uses bf16, which is exact enough."""
    x = stack.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.transpose(1, 2).contiguous()
    for _ in range(STEPS):
        square = x @ x.transpose(1, 2)
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=B, alpha=C), x, beta=A)
    return x.transpose(1, 2) if tall else x
