"""Small models, each with an input: every layer that has a rule, in more than one shape."""

import torch
from torch import nn

EXAMPLES = 6


class Mean(nn.Module):
    """Over positions, which come after the examples."""

    def forward(self, x):
        return x.mean(1)


class Pooled(nn.Module):
    """Over positions, which come after the channels."""

    def forward(self, x):
        return x.flatten(2).mean(2)


class First(nn.Module):
    def forward(self, x):
        return x[0]


class Attention(nn.Module):
    def __init__(self, *, crossed, **options):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True, **options)
        self.crossed = crossed

    def forward(self, x):
        hidden = torch.zeros(x.shape[:2], dtype=torch.bool)
        hidden[:, -1] = True
        other = x.flip(1) if self.crossed else x
        causal = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return (
            self.attend(x, other, other, key_padding_mask=hidden)[0]
            + self.attend(x, x, x, need_weights=False, attn_mask=causal)[0]
        )


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.look = nn.Embedding(11, 8)
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.look.weight

    def forward(self, x):
        return self.out(self.look(x)).mean(1)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 5)

    def forward(self, x):
        return self.layer(self.layer(x).tanh())


def reals(*shape):
    return torch.randn(EXAMPLES, *shape)


def tokens(length=9):
    return torch.randint(0, 11, (EXAMPLES, length))


def small(*layers):
    return nn.Sequential(*layers)


MODELS = {
    "Linear": lambda: (small(nn.Linear(5, 7), nn.ReLU(inplace=True), nn.Linear(7, 3, bias=False)), reals(5)),
    "Linear, many positions": lambda: (
        small(nn.Linear(5, 7), nn.Tanh(), Mean(), nn.Linear(7, 3)),
        reals(9, 5),
    ),
    "Linear, few positions": lambda: (
        small(nn.Linear(50, 70), nn.ReLU(), Mean(), nn.Linear(70, 3)),
        reals(2, 50),
    ),
    "Conv1d": lambda: (
        small(nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2, groups=2), Pooled(), nn.Linear(6, 3)),
        reals(4, 20),
    ),
    "Conv2d": lambda: (
        small(
            nn.Conv2d(2, 6, (3, 2), padding="same", padding_mode="reflect"),
            nn.ReLU(inplace=True),
            nn.Conv2d(6, 5, 3, 2),
            Pooled(),
        ),
        reals(2, 9, 8),
    ),
    "Conv2d, few positions": lambda: (
        small(nn.Conv2d(20, 60, 3), Pooled(), nn.Linear(60, 3)),
        reals(20, 3, 4),
    ),
    "Conv2d, by channel": lambda: (small(nn.Conv2d(4, 8, 3, groups=4, padding=1), Pooled()), reals(4, 5, 5)),
    "Conv3d": lambda: (small(nn.Conv3d(2, 4, 2, padding=1), Pooled(), nn.Linear(4, 3)), reals(2, 4, 5, 4)),
    "Embedding": lambda: (small(nn.Embedding(11, 8, padding_idx=0), Mean(), nn.Linear(8, 3)), tokens()),
    "LayerNorm": lambda: (small(nn.LayerNorm((4, 5)), nn.Flatten(), nn.Linear(20, 3)), reals(4, 5)),
    "LayerNorm, positions": lambda: (small(nn.LayerNorm(5), nn.Linear(5, 3), Mean()), reals(4, 5)),
    "GroupNorm": lambda: (small(nn.GroupNorm(2, 4), Pooled(), nn.Linear(4, 3)), reals(4, 5, 3)),
    "RMSNorm": lambda: (small(nn.RMSNorm(5), nn.Linear(5, 3), Mean()), reals(4, 5)),
    "MultiheadAttention": lambda: (small(Attention(crossed=False), Mean(), nn.Linear(8, 3)), reals(5, 8)),
    "MultiheadAttention, crossed": lambda: (small(Attention(crossed=True, bias=False), Mean()), reals(5, 8)),
    "TransformerEncoder": lambda: (
        small(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True),
                2,
                enable_nested_tensor=False,
            ),
            Mean(),
        ),
        reals(5, 8),
    ),
    "LSTM": lambda: (
        small(nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True), First(), Mean()),
        reals(7, 5),
    ),
    "GRU": lambda: (small(nn.GRU(5, 4, 2, batch_first=True), First(), Mean()), reals(7, 5)),
    "RNN": lambda: (small(nn.RNN(5, 4, bias=False, batch_first=True), First(), Mean()), reals(7, 5)),
    "tied weights": lambda: (Tied(), tokens()),
    "a layer used twice": lambda: (Twice(), reals(5)),
}
UNLISTED = {
    "Bilinear": lambda: (Squared(), reals(5)),
    "PReLU": lambda: (small(nn.Linear(5, 4), nn.PReLU(4), nn.Linear(4, 3)), reals(5)),
    "ConvTranspose2d": lambda: (small(nn.ConvTranspose2d(2, 3, 2), Pooled()), reals(2, 4, 4)),
}


class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.both = nn.Bilinear(5, 5, 3)

    def forward(self, x):
        return self.both(x, x)
