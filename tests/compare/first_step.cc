// A program that trains one step, for tests/compare/nodes: `first_step farandole` is written with Farandole,
// and `first_step plain` does the same with MPI alone. Rank 0 prints when the step was complete.
#include <chrono>
#include <farandole/farandole.h>
#include <fmt/format.h>
#include <mpi.h>
#include <string_view>

namespace {

torch::nn::Sequential make_net() {
  torch::manual_seed(1);
  return torch::nn::Sequential(torch::nn::Linear(784, 500), torch::nn::Tanh(), torch::nn::Linear(500, 10));
}

torch::Tensor loss_of(torch::nn::Sequential& net) {
  return torch::cross_entropy_loss(net->forward(torch::randn({64, 784})),
                                   torch::randint(10, {64}, torch::kInt64));
}

void print_time() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  fmt::print("first step {}\n", std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
  std::fflush(stdout);
}

void train_with_farandole(int argc, char** argv) {
  farandole::Session session(argc, argv);
  auto net = make_net();
  torch::optim::SGD sgd(net->parameters(), 0.01);
  farandole::DistributedOptimizer optimizer(session, sgd, net->named_parameters());
  session.broadcast(*net);
  optimizer.zero_grad();
  loss_of(net).backward();
  optimizer.step();
  if (session.rank() == 0) print_time();
}

void train_with_mpi(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  auto net = make_net();
  torch::optim::SGD sgd(net->parameters(), 0.01);
  const auto for_each = [&](const auto& work) {
    const torch::NoGradGuard without_graph;
    for (auto& parameter : net->parameters()) work(parameter);
  };
  for_each([](torch::Tensor& parameter) {
    MPI_Bcast(parameter.data_ptr(), static_cast<int>(parameter.numel()), MPI_FLOAT, 0, MPI_COMM_WORLD);
  });
  sgd.zero_grad();
  loss_of(net).backward();
  for_each([&](torch::Tensor& parameter) {
    auto& gradient = parameter.mutable_grad();
    MPI_Allreduce(MPI_IN_PLACE, gradient.data_ptr(), static_cast<int>(gradient.numel()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    gradient.div_(size);
  });
  sgd.step();
  if (rank == 0) print_time();
  MPI_Finalize();
}

}  // namespace

int main(int argc, char** argv) {
  const bool plain = argc > 1 && std::string_view(argv[1]) == "plain";
  plain ? train_with_mpi(argc, argv) : train_with_farandole(argc, argv);
}
