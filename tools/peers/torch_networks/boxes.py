"""YOLOv3 and its loss in PyTorch."""
import math

import torch
from torch import nn
from torch.nn import functional as F

from torch_networks.images import Unit

ANCHORS = ((116, 90, 156, 198, 373, 326), (30, 61, 62, 45, 59, 119), (10, 13, 16, 30, 33, 23))
TINY_ANCHORS = ((81, 82, 135, 169, 344, 319), (10, 14, 23, 27, 37, 58))


class Leaky(nn.Sequential):
    """Units with a leaky ReLU each, given as (in, out, size) or (in, out, size, stride)."""

    def __init__(self, *shapes):
        super().__init__(*(part for shape in shapes for part in (Unit(*shape), nn.LeakyReLU(0.1))))


class Darknet(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convs = Leaky((channels, channels // 2, 1), (channels // 2, channels, 3))

    def forward(self, x):
        return x + self.convs(x)


class YoloV3(nn.Module):
    """Gives rows of 5 + classes numbers, of the coarsest scale first."""

    def __init__(self, classes=80):
        super().__init__()
        self.stem, self.numbers = Leaky((3, 32, 3)), 5 + classes
        self.stages = nn.ModuleList(nn.Sequential(Leaky((32 << s, 64 << s, 3, 2)), *(Darknet(64 << s) for _ in range(n)))
                                    for s, n in enumerate((1, 2, 8, 8, 4)))
        self.narrow, self.convs, self.last = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for c in (1024, 512, 256):
            h, joined = c // 2, c if c == 1024 else c + c // 2
            self.narrow.append(nn.Identity() if c == 1024 else Leaky((c, h, 1)))
            self.convs.append(Leaky((joined, h, 1), (h, c, 3), (c, h, 1), (h, c, 3), (c, h, 1)))
            self.last.append(nn.Sequential(Leaky((h, c, 3)), nn.Conv2d(c, 3 * self.numbers, 1)))

    def forward(self, x):
        features, rows, x = [], [], self.stem(x)
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        for s, (narrow, convs, last) in enumerate(zip(self.narrow, self.convs, self.last)):
            if s > 0:
                x = torch.cat([F.interpolate(narrow(x), scale_factor=2), features[4 - s]], 1)
            x = convs(x)
            rows.append(last(x).permute(0, 2, 3, 1).reshape(len(x), -1, self.numbers))
        return torch.cat(rows, 1)


class YoloV3Tiny(nn.Module):
    """The same of two scales."""

    def __init__(self, classes=80, channels=16):
        super().__init__()
        c = channels
        self.numbers, widths = 5 + classes, [3, *(c << i for i in range(7))]
        self.convs = nn.ModuleList(Leaky((a, b, 3)) for a, b in zip(widths, widths[1:]))
        self.squeeze, self.narrow = Leaky((64 * c, 16 * c, 1)), Leaky((16 * c, 8 * c, 1))
        self.last = nn.ModuleList(nn.Sequential(Leaky((a, b, 3)), nn.Conv2d(b, 3 * self.numbers, 1))
                                  for a, b in ((16 * c, 32 * c), (24 * c, 16 * c)))

    def forward(self, x):
        for i, conv in enumerate(self.convs[:5]):
            x = conv(F.max_pool2d(x, 2) if i > 0 else x)
        y = self.convs[5](F.max_pool2d(x, 2))
        y = self.convs[6](F.max_pool2d(F.pad(y, (0, 1, 0, 1), value=-math.inf), 2, 1))
        y = self.squeeze(y)
        finer = torch.cat([F.interpolate(self.narrow(y), scale_factor=2), x], 1)
        rows = [last(z).permute(0, 2, 3, 1).reshape(len(x), -1, self.numbers) for last, z in zip(self.last, (y, finer))]
        return torch.cat(rows, 1)


class BoxLoss:
    """YOLOv3's loss with generalised IoU, as nn/task_detection.cpp has it, summed over images."""

    def __init__(self, anchors, boxes, classes, device, side=416):
        """`anchors`: widths and heights of three for each scale, the coarsest first. Targets: boxes (N, M, 5) of a label,
        centre, width and height in shares of the image; a label of -1 is padding."""
        cells = []
        for s, of_scale in enumerate(anchors):
            g = side // 32 << s
            y, x = torch.meshgrid(torch.arange(g), torch.arange(g), indexing="ij")
            place = torch.stack([x, y], -1).reshape(-1, 1, 2).expand(-1, 3, 2)
            sides = (torch.tensor(of_scale) / side).reshape(1, 3, 2).expand(g * g, 3, 2)
            cells.append(torch.cat([place.float(), torch.full_like(sides, g), sides], -1).reshape(-1, 6))
        self.cells = torch.cat(cells).to(device)
        self.truth, n = self.corners(boxes[..., 1:3], boxes[..., 3:5]).to(device), len(boxes)
        sides = torch.tensor(anchors).reshape(-1, 2) / side
        shapes = self.corners(torch.zeros_like(sides), sides)
        best = self.iou(self.corners(torch.zeros_like(boxes[..., 3:5]), boxes[..., 3:5])[..., None, :], shapes)[0].argmax(-1)
        g = torch.tensor(side // 32) << best // 3
        before = 3 * (side // 32) ** 2 * torch.tensor([0, 1, 5])[best // 3]
        cell = (boxes[..., 1:3] * g[..., None]).long()
        row = before + 3 * (cell[..., 1] * g + cell[..., 0]) + best % 3
        self.row = row.to(device)
        present = (boxes[..., 0] >= 0).float()
        self.present = present.to(device)
        self.sought = torch.zeros(n, len(self.cells)).scatter_reduce(1, row, present, "amax").to(device)
        self.labels = F.one_hot(boxes[..., 0].long().clamp(min=0), classes).float().to(device)

    @staticmethod
    def corners(centre, sides):
        return torch.cat([centre - sides / 2, centre + sides / 2], -1)

    @staticmethod
    def iou(a, b):
        """Intersections over unions, and the share of the hull that the union leaves."""
        area = lambda low, high: (high - low).clamp(min=0).prod(-1)
        both = area(torch.maximum(a[..., :2], b[..., :2]), torch.minimum(a[..., 2:], b[..., 2:]))
        either = area(a[..., :2], a[..., 2:]) + area(b[..., :2], b[..., 2:]) - both
        hull = area(torch.minimum(a[..., :2], b[..., :2]), torch.maximum(a[..., 2:], b[..., 2:]))
        return both / either, (hull - either) / hull

    def boxes(self, rows, cells):
        centre = (rows[..., :2].sigmoid() + cells[..., :2]) / cells[..., 2:4]
        return self.corners(centre, rows[..., 2:4].clamp(max=4.135).exp() * cells[..., 4:])

    def __call__(self, rows):
        rows = rows.float()
        with torch.no_grad():
            overlap = self.iou(self.boxes(rows, self.cells)[:, None], self.truth[:, :, None])[0]
            near = (overlap * self.present[..., None]).amax(1) > 0.5
        counted = (self.sought > 0) | ~near
        own = rows.gather(1, self.row[..., None].expand(-1, -1, rows.shape[2]))
        iou, free = self.iou(self.boxes(own, self.cells[self.row]), self.truth)
        objectness = F.binary_cross_entropy_with_logits(rows[..., 4], self.sought, reduction="none")
        classes = F.binary_cross_entropy_with_logits(own[..., 5:], self.labels, reduction="none").sum(-1)
        return ((2 * (1 - iou + free) + classes) * self.present).sum() + (objectness * counted).sum()
