"""One process without torch.distributed: compiled training, a GAN, and DataLoader workers that fork and spawn."""
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return torch.randn(3, 32, 32, generator=generator), index % 10


def train(loader, forward, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 4)
    steps = 0
    for images, labels in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(forward(images), labels)
        loss.backward()
        optimizer.step()
        scheduler.step()
        steps += 1
    model.eval()
    right = 0
    with torch.no_grad():
        for images, labels in DataLoader(Images(), batch_size=64):
            right += (forward(images).argmax(1) == labels).sum().item()
    model.train()
    return steps


def cnn():
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                         nn.MaxPool2d(4), nn.Flatten(), nn.Linear(2048, 10))


def main():
    steps, model = 0, cnn()
    compiled = torch.compile(model, backend=lambda graph, _: graph.forward, fullgraph=True)
    steps += train(DataLoader(Images(), batch_size=32), compiled, model)
    for workers, context in (4, "fork"), (1, "spawn"):
        model = cnn()
        loader = DataLoader(Images(), batch_size=32, shuffle=True, num_workers=workers, multiprocessing_context=context)
        steps += train(loader, model, model)
    # Of two optimizers, the steps of the first one count.
    generator, discriminator = nn.Linear(16, 3072), nn.Linear(3072, 1)
    optimizers = [torch.optim.Adam(net.parameters()) for net in (discriminator, generator)]
    for images, _ in DataLoader(Images(), batch_size=64):
        for sign, optimizer in zip((-1, 1), optimizers):
            optimizer.zero_grad()
            fake = discriminator(generator(torch.randn(64, 16))).mean()
            (sign * fake + (sign < 0) * discriminator(images.flatten(1)).mean()).backward()
            optimizer.step()
        steps += 1
    print(f"steps {steps}")


if __name__ == "__main__":
    main()
