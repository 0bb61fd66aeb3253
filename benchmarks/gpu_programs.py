"""Training programs of the kinds that the published throughput matrix has, in PyTorch, for the GPU of this machine.

The models are of the classes of Gavel (OSDI '20, table 2): image classification, translation, language modelling,
recommendation, reinforcement learning and image-to-image translation; a decoder-only language model in half precision
is added, which is what many clusters train today. They learn from random data, as speed does not depend on it.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import (
    binary_cross_entropy_with_logits,
    cross_entropy,
    mse_loss,
    relu,
    scaled_dot_product_attention,
)

Step = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Setting:
    """On which device a program trains; `is_tiny`: with models small enough for a CPU, to see that it runs at all."""

    device: str
    is_tiny: bool = False

    def size(self, full: int, tiny: int) -> int:
        """Return one of two sizes."""
        return tiny if self.is_tiny else full

    def normal(self, *shape: int) -> Tensor:
        """Return random numbers of this shape."""
        return torch.randn(*shape, device=self.device)

    def below(self, limit: int, *shape: int) -> Tensor:
        """Return random integers of this shape."""
        return torch.randint(limit, shape, device=self.device)


def training(model: nn.Module, loss: Callable[[], Tensor]) -> Step:
    """Return one step of stochastic gradient descent."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()

    return step


# --- image classification (He et al., 2016) ---------------------------------------------------------------------------


class Block(nn.Module):
    """A residual block: two 3x3 convolutions, or with a bottleneck 1x1, 3x3 and 1x1."""

    def __init__(self, inputs: int, width: int, stride: int, expansion: int) -> None:
        super().__init__()
        outputs = width * expansion
        sizes = [(inputs, width, 3, stride), (width, outputs, 3, 1)]
        if expansion > 1:
            sizes = [(inputs, width, 1, 1), (width, width, 3, stride), (width, outputs, 1, 1)]
        self.layers = nn.Sequential(*[each for size in sizes for each in self._layer(*size)][:-1])
        self.short = nn.Sequential(*self._layer(inputs, outputs, 1, stride)[:-1])

    @staticmethod
    def _layer(inputs: int, outputs: int, side: int, stride: int) -> list[nn.Module]:
        convolution = nn.Conv2d(inputs, outputs, side, stride, side // 2, bias=False)
        return [convolution, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    def forward(self, images: Tensor) -> Tensor:
        return relu(self.layers(images) + self.short(images))


def resnet(depths: tuple[int, ...], expansion: int, first: list[nn.Module], width: int, classes: int) -> nn.Module:
    """Return a residual network with four stages behind its first layers, which give `width` channels."""
    layers, inputs = [*first], width
    for stage, depth in enumerate(depths):
        for number in range(depth):
            layers.append(Block(inputs, width << stage, 2 if stage and number == 0 else 1, expansion))
            inputs = (width << stage) * expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))


def resnet18(setting: Setting, batch: int) -> Step:
    """Small images of ten classes."""
    width = setting.size(64, 4)
    first = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    model = resnet((2, 2, 2, 2), 1, first, width, 10).to(setting.device)
    images, labels = setting.normal(batch, 3, 32, 32), setting.below(10, batch)
    return training(model, lambda: cross_entropy(model(images), labels))


def resnet50(setting: Setting, batch: int) -> Step:
    """Photographs of a thousand classes."""
    width, side = setting.size(64, 4), setting.size(224, 32)
    first = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    model = resnet((3, 4, 6, 3), 4, first, width, 1000).to(setting.device)
    images, labels = setting.normal(batch, 3, side, side), setting.below(1000, batch)
    return training(model, lambda: cross_entropy(model(images), labels))


# --- language ---------------------------------------------------------------------------------------------------------


def translation(setting: Setting, batch: int) -> Step:
    """A transformer of an encoder and a decoder, base size (Vaswani et al., 2017)."""
    width, words, length, layers = setting.size(512, 32), setting.size(32_000, 100), 64, setting.size(6, 1)
    embed = nn.Embedding(words, width)
    body = nn.Transformer(width, 8, layers, layers, 4 * width, batch_first=True)
    model = nn.ModuleList([embed, body, nn.Linear(width, words)]).to(setting.device)
    source, target = setting.below(words, batch, length), setting.below(words, batch, length)

    def loss() -> Tensor:
        states = model[1](model[0](source), model[0](target))
        return cross_entropy(model[2](states).flatten(0, 1), target.flatten())

    return training(model, loss)


def lstm(setting: Setting, batch: int) -> Step:
    """A recurrent language model of two layers (Zaremba et al., 2014)."""
    width, words, length = setting.size(650, 32), setting.size(33_278, 100), 35
    parts = [nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, words)]
    model = nn.ModuleList(parts).to(setting.device)
    text = setting.below(words, batch, length)
    return training(model, lambda: cross_entropy(model[2](model[1](model[0](text))[0]).flatten(0, 1), text.flatten()))


class Decoder(nn.Module):
    """A layer of a decoder-only language model: causal attention, then a feed-forward network."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads = max(1, width // 64)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, states: Tensor) -> Tensor:
        parts = self.attend(self.norm_1(states)).unflatten(-1, (3, self.heads, -1)).movedim(-3, 0).transpose(2, 3)
        mixed = scaled_dot_product_attention(parts[0], parts[1], parts[2], is_causal=True)
        states = states + self.out(mixed.transpose(1, 2).flatten(-2))
        return states + self.feed(self.norm_2(states))


def gpt(setting: Setting, batch: int) -> Step:
    """A decoder-only language model of 124 million parameters, in bfloat16 (Radford et al., 2019)."""
    width, words, length = setting.size(768, 64), setting.size(50_304, 100), setting.size(1024, 32)
    layers = [Decoder(width) for _ in range(setting.size(12, 1))]
    model = nn.Sequential(nn.Embedding(words, width), *layers, nn.LayerNorm(width), nn.Linear(width, words))
    model = model.to(setting.device, torch.bfloat16)
    text = setting.below(words, batch, length)
    return training(model, lambda: cross_entropy(model(text).flatten(0, 1), text.flatten()))


# --- the others -------------------------------------------------------------------------------------------------------


def recommender(setting: Setting, batch: int) -> Step:
    """An autoencoder of which of 20,000 items a user likes (as in Gavel's own table)."""
    items = setting.size(20_000, 200)
    layers = [nn.Linear(items, 600), nn.Tanh(), nn.Linear(600, 200), nn.Tanh(), nn.Linear(200, 600), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(600, items)).to(setting.device)
    liked = (torch.rand(batch, items, device=setting.device) < 0.01).float()
    return training(model, lambda: binary_cross_entropy_with_logits(model(liked), liked))


def actor_critic(setting: Setting, batch: int) -> Step:
    """A small network that plays `batch` games of a grid at a time; the games run on the CPU (Mnih et al., 2016)."""
    side, length = 16, 8
    body = nn.Sequential(nn.Conv2d(2, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 64, 128), nn.ReLU())
    model = nn.ModuleList([body, nn.Linear(128, 4), nn.Linear(128, 1)]).to(setting.device)
    places = [[random.randrange(side) for _ in range(4)] for _ in range(batch)]

    def seen() -> Tensor:
        grid = torch.zeros(batch, 2, side, side)
        for game, (row, column, goal_row, goal_column) in enumerate(places):
            grid[game, 0, row, column] = grid[game, 1, goal_row, goal_column] = 1
        return grid.to(setting.device)

    def play(actions: list[int]) -> Tensor:
        gains = []
        for place, action in zip(places, actions, strict=True):
            before = abs(place[0] - place[2]) + abs(place[1] - place[3])
            place[action % 2] = (place[action % 2] + (1 if action > 1 else -1)) % side
            gains.append(float(before - abs(place[0] - place[2]) - abs(place[1] - place[3])))
        return torch.tensor(gains, device=setting.device)

    def loss() -> Tensor:
        total = torch.zeros((), device=setting.device)
        for _ in range(length):
            states = model[0](seen())
            choice = torch.distributions.Categorical(logits=model[1](states))
            actions = choice.sample()
            gain = play(actions.tolist()) - model[2](states).squeeze(-1)
            total = total + gain.pow(2).mean() - (choice.log_prob(actions) * gain.detach()).mean()
        return total

    return training(model, loss)


def image_translation(setting: Setting, batch: int) -> Step:
    """A generator with nine residual blocks against a discriminator of patches (Zhu et al., 2017), one direction."""
    side, wide = setting.size(256, 32), setting.size(64, 8)
    down = [nn.Conv2d(3, wide, 7, 1, 3), nn.ReLU(), nn.Conv2d(wide, 2 * wide, 3, 2, 1), nn.ReLU()]
    down += [nn.Conv2d(2 * wide, 4 * wide, 3, 2, 1), nn.ReLU()]
    blocks = [Block(4 * wide, 4 * wide, 1, 1) for _ in range(setting.size(9, 1))]
    up = [nn.ConvTranspose2d(4 * wide, 2 * wide, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(2 * wide, 3, 4, 2, 1)]
    judge = nn.Sequential(nn.Conv2d(3, wide, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(wide, 1, 4, 2, 1))
    model = nn.ModuleList([nn.Sequential(*down, *blocks, *up), judge]).to(setting.device)
    images = setting.normal(batch, 3, side, side)

    def loss() -> Tensor:
        made = model[0](images)
        return mse_loss(made, images) + model[1](made).pow(2).mean() + (model[1](images) - 1).pow(2).mean()

    return training(model, loss)


PROGRAMS: dict[str, tuple[Callable[[Setting, int], Step], tuple[int, ...]]] = {
    "ResNet-18": (resnet18, (64, 256)),
    "ResNet-50": (resnet50, (32, 64)),
    "Transformer": (translation, (16, 64)),
    "LSTM": (lstm, (20, 80)),
    "GPT": (gpt, (1, 4)),
    "Recommendation": (recommender, (512, 4096)),
    "A3C": (actor_critic, (4,)),
    "CycleGAN": (image_translation, (1,)),
}
"""Each program with its batch sizes: a kind for each."""

KINDS: dict[str, tuple[Callable[[Setting, int], Step], int]] = {
    f"{name} (batch size {batch})": (build, batch) for name, (build, batches) in PROGRAMS.items() for batch in batches
}
"""Program and batch size by the name of the kind, written as in the published matrix."""


def built(kind: str, setting: Setting) -> Step:
    """Return the step of a kind, which ends when the GPU has done it."""
    torch.manual_seed(0)
    build, batch = KINDS[kind]
    step = build(setting, setting.size(batch, 2))
    wait: Any = torch.cuda.synchronize if setting.device == "cuda" else (lambda: None)

    def finished() -> None:
        step()
        wait()

    return finished
