// The estimator on MNIST: fit, transform, evaluate. `estimator MODEL.pt TRAIN TEST [EPOCHS]`, where TRAIN and
// TEST are tables with the columns pixels and digit.
#include <cstdlib>
#include <farandole/estimator.h>
#include <filesystem>
#include <iostream>

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: estimator MODEL.pt TRAIN TEST [EPOCHS]\n";
    return 64;
  }
  farandole::EstimatorOptions options;
  options.num_proc = 3;
  options.model = argv[1];
  options.losses = {"nll"};
  options.features = {"pixels"};
  options.input_shapes = {{1, 28, 28}};
  options.labels = {"digit"};
  options.optimizer = "sgd";
  options.lr = 0.01;  // of one rank: the estimator multiplies it by the number of ranks
  options.momentum = 0.5;
  options.batch = 128;
  options.epochs = argc > 4 ? std::atoi(argv[4]) : 3;
  options.validation = 0.1;
  options.run = "mnist";
  try {
    const auto model = farandole::Estimator(options).fit(argv[2]);
    model.transform(argv[3], "predictions.h5", {.num_proc = 3, .argmax = true});  // adds digit__prediction
    const auto result = model.evaluate(argv[3], {.num_proc = 3});
    std::cout << "accuracy " << 100 * result.metrics.at("accuracy") << " % of " << result.rows << " digits\n";
    std::filesystem::remove("predictions.h5");
  } catch (const farandole::Error& error) {
    std::cerr << "estimator: " << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  }
}
