"""Models that tests train with farandole fit after torch.export, with their tables and their training in PyTorch."""
import numpy
import torch
from torch import nn
from torch.nn import functional as F


class Mlp(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 3))


class Cnn(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout2d(0.25),
                         nn.Flatten(), nn.Dropout(0.5), nn.Linear(8 * 7 * 7, 3))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        y += x if self.downsample is None else self.downsample(x)
        return self.relu(y)


class ResNet18(nn.Module):
    def __init__(self, width=64, classes=3):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        sizes = [width, width, 2 * width, 4 * width, 8 * width]
        self.layers = nn.Sequential(*(Block(sizes[i + (j > 0)], sizes[i + 1], 1 if i == 0 or j else 2)
                                      for i in range(4) for j in range(2)))
        self.fc = nn.Linear(8 * width, classes)

    def forward(self, x):
        x = self.layers(self.maxpool(F.relu(self.bn1(self.conv1(x)))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Bottleneck(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        def conv(i, o, k, s=1):
            return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o))
        self.conv1, self.conv2, self.conv3 = conv(inputs, width, 1), conv(width, width, 3, stride), conv(width, 4 * width, 1)
        self.downsample = conv(inputs, 4 * width, 1, stride) if stride != 1 or inputs != 4 * width else nn.Identity()

    def forward(self, x):
        return F.relu(self.conv3(F.relu(self.conv2(F.relu(self.conv1(x))))) + self.downsample(x))


class ResNet50(nn.Sequential):
    def __init__(self):
        layers, inputs = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
        for stage, blocks in enumerate((3, 4, 6, 3)):
            for block in range(blocks):
                layers.append(Bottleneck(inputs, 64 * 2**stage, 2 if stage and not block else 1))
                inputs = 256 * 2**stage
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.qkv, self.out, self.heads = nn.Linear(width, 3 * width), nn.Linear(width, width), heads

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (part.view(b, t, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(c, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Gpt(nn.Module):
    def __init__(self, words=17, length=8, width=16, heads=2, layers=2):
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(nn.ModuleDict({
            "ln1": nn.LayerNorm(width), "attention": Attention(width, heads), "ln2": nn.LayerNorm(width),
            "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))})
            for _ in range(layers))
        self.ln = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = x + block["attention"](block["ln1"](x))
            x = x + block["mlp"](block["ln2"](x))
        return self.head(self.ln(x)).transpose(1, 2)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.fc = nn.LSTM(4, 8, 2, batch_first=True, dropout=0.1), nn.Linear(8, 1)

    def forward(self, x):
        return self.fc(self.lstm(x)[0][:, -1])


class UNet(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        def double(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(2, outputs), nn.ReLU(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU())
        self.down1, self.down2, self.middle = double(1, width), double(width, 2 * width), double(2 * width, 4 * width)
        self.up2, self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.left2, self.left1 = double(4 * width, 2 * width), double(2 * width, width)
        self.out = nn.Conv2d(width, 1, 1)

    def forward(self, x):
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        x = self.middle(F.max_pool2d(two, 2))
        x = self.left2(torch.cat([two, self.up2(x)], 1))
        x = self.left1(torch.cat([one, self.up1(x)], 1))
        return self.out(x)


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.out = nn.Linear(12, 8), nn.Linear(12, 8), nn.Linear(8, 3)

    def forward(self, x):
        y = torch.cond(x.sum() > 0, lambda x: torch.tanh(self.a(x)), lambda x: torch.sin(self.b(x)), (x,))
        return self.out(y)


class Two(nn.Module):
    """Two inputs, two outputs, and sizes that depend on the batch."""
    def __init__(self):
        super().__init__()
        self.words, self.fc, self.other = nn.Embedding(7, 12), nn.Linear(24, 3), nn.Linear(12, 1)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("scale", torch.full((12,), 0.5), persistent=False)

    def forward(self, x, ids):
        rows = x.shape[0]
        if self.training:
            self.calls.add_(1)
        with torch.no_grad():
            shift = x.mean(1, keepdim=True).expand(rows, 12) / 2
        word = self.words(ids).reshape(rows * 2, 6).reshape(rows, 12) * self.scale
        return self.fc(torch.cat([x - shift, word], 1)), self.other(x * word) + torch.tensor([0.25])


class Fourier(nn.Module):
    """Complex weights, a buffer with two names, an output that is None, and noise that no operator tells from the model."""
    def __init__(self):
        super().__init__()
        self.lift, self.out = nn.Linear(1, 3), nn.Linear(36, 3)
        self.weight = nn.Parameter(torch.randn(3, 3, 4, dtype=torch.cfloat) / 3)
        self.register_buffer("phase", torch.polar(torch.ones(4), torch.arange(4.0)))
        self.register_buffer("window", torch.hann_window(12))
        self.register_buffer("same", self.window)

    def forward(self, x):
        x = torch.fft.rfft(self.lift(x.unsqueeze(2)).transpose(1, 2) * self.window)
        x = torch.einsum("bix,iox->box", x[..., :4], self.weight) * self.phase
        x = torch.fft.irfft(x, n=12) + self.same
        if self.training:
            x = x + 0.1 * torch.randn_like(x)
        return self.out(x.flatten(1)), None


class Autocast(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 16), nn.Linear(16, 3)

    def forward(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.a(x))
            with torch.autocast("cpu", enabled=False):
                y = y.float() * 2
            y = self.b(y)
        return y.float()


def real(*shape):
    return lambda random, rows: random.normal(size=(rows, *shape)).astype("f4")


def whole(below, *shape):
    return lambda random, rows: random.integers(0, below, (rows, *shape))


def bits(*shape):
    return lambda random, rows: random.integers(0, 2, (rows, *shape)).astype("f4")


# Of each model: its columns of features, and its columns of labels with their losses.
CASES = {
    "mlp": (Mlp, {"x": real(12)}, {"digit": (whole(3), "cross_entropy")}),
    "cnn": (Cnn, {"image": real(3, 16, 16)}, {"digit": (whole(3), "cross_entropy")}),
    "resnet18": (lambda: ResNet18(8), {"image": real(3, 32, 32)}, {"digit": (whole(3), "cross_entropy")}),
    "gpt": (Gpt, {"tokens": whole(17, 8)}, {"next": (whole(17, 8), "cross_entropy")}),
    "lstm": (Lstm, {"x": real(5, 4)}, {"value": (real(1), "mse")}),
    "unet": (UNet, {"image": real(1, 16, 16)}, {"mask": (bits(1, 16, 16), "bce_with_logits")}),
    "cond": (Cond, {"x": real(12)}, {"digit": (whole(3), "cross_entropy")}),
    "two": (Two, {"x": real(12), "ids": whole(7)}, {"digit": (whole(3), "cross_entropy"), "value": (real(1), "mse")}),
    "fourier": (Fourier, {"x": real(12)}, {"digit": (whole(3), "cross_entropy")}),
    "autocast": (Autocast, {"x": real(12)}, {"digit": (whole(3), "cross_entropy")}),
}
LOSSES = {"cross_entropy": F.cross_entropy, "mse": F.mse_loss, "bce_with_logits": F.binary_cross_entropy_with_logits}


def table(name, rows):
    """The columns of a case, with the same rows in each call."""
    random = numpy.random.default_rng(1)
    _, features, labels = CASES[name]
    columns = {column: draw(random, rows) for column, draw in features.items()}
    columns |= {column: draw(random, rows) for column, (draw, _) in labels.items()}
    return columns


def net(name):
    torch.manual_seed(1)
    return CASES[name][0]()


def example(name, rows=4):
    columns = table(name, rows)
    return tuple(torch.from_numpy(columns[column]) for column in CASES[name][1])


def export(model, inputs):
    return torch.export.export(model, inputs, dynamic_shapes=({0: torch.export.Dim.DYNAMIC},) * len(inputs))


def options(name):
    """The columns and losses for the command line of farandole fit."""
    _, features, labels = CASES[name]
    kinds = table(name, 1)
    given = [column + (":int64" if kinds[column].dtype.kind == "i" else "") for column in features]
    return ["--features", ",".join(given), "--label", ",".join(labels), "--loss", ",".join(loss for _, loss in labels.values())]


def mean_loss(name, model, columns, rows):
    """The mean loss of these rows, as PyTorch's functions give it, added over the labels."""
    _, features, labels = CASES[name]
    outputs = model(*(torch.from_numpy(columns[column][rows]) for column in features))
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    total = None
    for output, (column, (_, loss)) in zip(outputs, labels.items()):
        mean = LOSSES[loss](output.float(), torch.from_numpy(columns[column][rows]))
        total = mean if total is None else total + mean
    return total
