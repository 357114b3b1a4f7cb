"""What we are measured against: competent plain PyTorch, tensors in memory, nothing copied without need."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch.nn import functional as F


@dataclass
class DenseLoop:
    """Algorithm 2 (docs/method.md) as the paper and the released code write it: batches of 100, every product dense,
    autograd, SGD with momentum, dropout on the codes, rows normalised and projected after every step."""

    dictionary: torch.Tensor
    classes: int
    threshold: float
    radius: float = 0.1
    batch: int = 100
    dropout: float = 0.5
    one_sided: bool = True

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.center = self.dictionary.clone()
        self.D = self.dictionary.clone().requires_grad_()
        self.head = torch.nn.Linear(len(self.D), self.classes)
        groups = [{"params": [self.D], "lr": 1e-4}, {"params": list(self.head.parameters()), "lr": 1.0}]
        self.optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9, foreach=True)

    def codes(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ self.D.T
        sizes = scores.detach() if self.one_sided else scores.detach().abs()
        return scores * (sizes > self.threshold)

    def epoch(self, X: torch.Tensor, y: torch.Tensor, order: torch.Tensor) -> None:
        for rows in order.split(self.batch):
            self.optimizer.zero_grad(set_to_none=True)
            logits = self.head(F.dropout(self.codes(X[rows]), self.dropout))
            F.cross_entropy(logits, y[rows]).backward()
            self.optimizer.step()
            self.project()

    @torch.no_grad()
    def project(self) -> None:
        """Normalise, then the nearest point of the cap (Algorithm 4, docs/method.md)."""
        self.D /= self.D.norm(dim=1, keepdim=True)
        outside = ((self.D - self.center).norm(dim=1) > self.radius).nonzero()[:, 0]
        if len(outside):
            c, v = self.center[outside], self.D[outside]
            across = F.normalize(v - (v * c).sum(dim=1, keepdim=True) * c, dim=1)
            r = self.radius
            self.D[outside] = (1 - r * r / 2) * c + r * math.sqrt(1 - r * r / 4) * across

    @torch.no_grad()
    def accuracy(self, X: torch.Tensor, y: torch.Tensor) -> float:
        return float((self.head(self.codes(X)).argmax(dim=1) == y).float().mean())


@torch.no_grad()
def project_with_matrices(X: torch.Tensor, D: torch.Tensor, length: int) -> torch.Tensor:
    """IP-OMP (Information pursuit, docs/method.md) with the projector of every image as a (d, d) matrix: supports (b,
    length)."""
    b, d = X.shape
    P = torch.eye(d).repeat(b, 1, 1)
    chosen = torch.empty(b, length, dtype=torch.long)
    for step in range(length):
        left = D @ P  # (b, n, d)
        rest = torch.bmm(P, X[:, :, None])
        pick = _best(torch.bmm(left, rest)[:, :, 0], left.norm(dim=2))
        chosen[:, step] = pick
        q = F.normalize(left[torch.arange(b), pick], dim=1)
        P -= q[:, :, None] * q[:, None, :]
    return chosen


@torch.no_grad()
def project_by_basis(X: torch.Tensor, D: torch.Tensor, length: int) -> torch.Tensor:
    """IP-OMP with all rows projected afresh in every step, by an orthonormal basis of the selected ones."""
    b = len(X)
    chosen = torch.empty(b, length, dtype=torch.long)
    left, rest = D.expand(b, -1, -1), X
    for step in range(length):
        pick = _best(torch.bmm(left, rest[:, :, None])[:, :, 0], left.norm(dim=2))
        chosen[:, step] = pick
        Q = torch.linalg.qr(D[chosen[:, : step + 1]].transpose(1, 2))[0]  # (b, d, step + 1)
        left = D - torch.bmm(D.expand(b, -1, -1) @ Q, Q.transpose(1, 2))
        rest = X - torch.bmm(Q, torch.bmm(Q.transpose(1, 2), X[:, :, None]))[:, :, 0]
    return chosen


def _best(scores: torch.Tensor, left: torch.Tensor) -> torch.Tensor:
    return torch.where(left > 1e-4, scores.abs() / left, 0.0).argmax(dim=1)
