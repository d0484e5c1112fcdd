"""Networks for images of PyTorch, as models/ has them."""
import torch
from torch import nn
from torch.nn import functional as F


class Unit(nn.Sequential):
    """A convolution without bias and its batch norm."""

    def __init__(self, cin, cout, size, stride=1):
        super().__init__(nn.Conv2d(cin, cout, size, stride, size // 2, bias=False), nn.BatchNorm2d(cout))


class Bottleneck(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        self.one, self.two, self.three = Unit(cin, width, 1), Unit(width, width, 3, stride), Unit(width, 4 * width, 1)
        self.shortcut = Unit(cin, 4 * width, 1, stride) if cin != 4 * width else nn.Identity()

    def forward(self, x):
        y = self.three(F.relu(self.two(F.relu(self.one(x)))))
        return F.relu(y + self.shortcut(x))


def resnet50():
    layers, cin = [Unit(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            layers.append(Bottleneck(cin, width, stride if block == 0 else 1))
            cin = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, 1000))


class Basic(nn.Module):
    def __init__(self, cin, width, stride):
        super().__init__()
        self.one, self.two = Unit(cin, width, 3, stride), Unit(width, width, 3)
        self.shortcut = Unit(cin, width, 1, stride) if cin != width else nn.Identity()

    def forward(self, x):
        return F.relu(self.two(F.relu(self.one(x))) + self.shortcut(x))


def small_resnet(widths, blocks, classes=10):
    """A ResNet for images of 32 x 32, with a number of blocks for each width."""
    layers, cin = [Unit(3, widths[0], 3), nn.ReLU()], widths[0]
    for stage, (width, count) in enumerate(zip(widths, blocks)):
        for block in range(count):
            layers.append(Basic(cin, width, 2 if stage > 0 and block == 0 else 1))
            cin = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(cin, classes))


def small_vgg19(classes=10):
    layers, cin = [], 3
    for width, convs in ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4)):
        for _ in range(convs):
            layers += [Unit(cin, width, 3), nn.ReLU()]
            cin = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(cin, classes))


class WideBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        conv = lambda a, b, size, step: nn.Conv2d(a, b, size, step, size // 2, bias=False)
        self.norm1, self.conv1 = nn.BatchNorm2d(cin), conv(cin, cout, 3, stride)
        self.norm2, self.conv2 = nn.BatchNorm2d(cout), conv(cout, cout, 3, 1)
        self.shortcut = conv(cin, cout, 1, stride) if cin != cout else None

    def forward(self, x):
        normed = F.relu(self.norm1(x))
        y = self.conv2(F.relu(self.norm2(self.conv1(normed))))
        return y + (x if self.shortcut is None else self.shortcut(normed))


def wide_resnet28(widen=10, classes=10):
    layers, cin = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)], 16
    for stage, width in enumerate((16 * widen, 32 * widen, 64 * widen)):
        for block in range(4):
            layers.append(WideBlock(cin, width, 2 if stage > 0 and block == 0 else 1))
            cin = width
    return nn.Sequential(*layers, nn.BatchNorm2d(cin), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(cin, classes))


class UNet(nn.Module):
    """Gives a class for each pixel."""

    def __init__(self, channels=32, levels=3, classes=5):
        super().__init__()
        double = lambda a, b: nn.Sequential(Unit(a, b, 3), nn.ReLU(), Unit(b, b, 3), nn.ReLU())
        widths = [channels << level for level in range(levels + 1)]
        self.down = nn.ModuleList(double(a, b) for a, b in zip([3, *widths], widths[:-1]))
        self.bottom = double(widths[-2], widths[-1])
        self.rise = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(double(2 * w, w) for w in reversed(widths[:-1]))
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x):
        levels = []
        for convs in self.down:
            levels.append(convs(x))
            x = F.max_pool2d(levels[-1], 2)
        x = self.bottom(x)
        for rise, convs in zip(self.rise, self.up):
            x = convs(torch.cat([levels.pop(), rise(x)], 1))
        return self.head(x)


def vit_tiny():
    from torchvision.models import VisionTransformer
    return VisionTransformer(224, 16, 12, 3, 192, 768)


def of_torchvision(name):
    def make():
        import torchvision
        return getattr(torchvision.models, name)()
    return make
