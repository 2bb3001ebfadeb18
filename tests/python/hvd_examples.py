"""EXAMPLES DATA SAMPLES EPOCHS {NAME RANKS FILE}...: examples have saved the parameters that one process gets."""
import importlib.util
import sys

import torch


def batches(samples, ranks, size, epoch):
    """[rank]: of each step, the samples that DistributedSampler gives this rank."""
    order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
    return zip(*(order[rank::ranks].split(size) for rank in range(ranks)))


def horovod_runner(module, images, labels, ranks, epochs):
    """One process on all samples of each step. It adds gradients in the order of the ranks, because Adam makes large
    steps of the rounding of small gradients."""
    torch.manual_seed(1)
    model = module.Net()
    optimizer = torch.optim.Adam(model.parameters(), 0.001 * ranks)
    for epoch in range(epochs):
        for parts in batches(len(labels), ranks, 64, epoch):  # of equal sizes
            optimizer.zero_grad()
            for rows in parts:
                torch.nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            for parameter in model.parameters():
                parameter.grad /= ranks
            optimizer.step()
    return model


def averaged_weights(module, images, labels, ranks, epochs):
    """One model for each rank, one after the other."""
    torch.manual_seed(1)
    model = module.Net()
    for epoch in range(epochs):
        trained = []
        for parts in zip(*batches(len(labels), ranks, 32, epoch)):
            own = module.Net()
            own.load_state_dict(model.state_dict())
            optimizer = torch.optim.SGD(own.parameters(), 0.05)
            for rows in parts:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(own(images[rows]), labels[rows]).backward()
                optimizer.step()
            trained.append(own.state_dict())
        model.load_state_dict({name: sum(state[name] for state in trained) / ranks for name in trained[0]})
    return model


def main(folder, data, samples, epochs, *trained):
    for name, ranks, file in zip(*(trained[place::3] for place in range(3))):
        spec = importlib.util.spec_from_file_location("example", f"{folder}/{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        images, labels = module.read_mnist(data, "train", int(samples)).tensors
        train = {"horovod_runner": horovod_runner, "averaged_weights": averaged_weights}[name]
        alone, parameters = train(module, images, labels, int(ranks), int(epochs)), torch.load(file)
        for key, value in alone.state_dict().items():
            worst = (parameters[key] - value).abs().max().item()
            assert worst <= 1e-6, f"{name} on {ranks} ranks: {key} differs by {worst}"


if __name__ == "__main__":
    main(*sys.argv[1:])
