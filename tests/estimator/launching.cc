// Calls farandole::launch in the way that its first argument names.
#include <csignal>
#include <cstdlib>
#include <farandole/farandole.h>
#include <fstream>
#include <iostream>
#include <sstream>
#include <thread>

#include "train/torch_program.h"

namespace {

int greet(farandole::Session& session, const std::vector<std::string>& arguments) {
  auto ranks = torch::ones({1});
  session.allreduce_(ranks, farandole::ReduceOp::sum);
  std::ostringstream line;
  line << "rank " << session.rank() << " of " << ranks.item<float>() << ": " << arguments.back() << "\n";
  std::cout << line.str() << std::flush;
  return arguments.back() == "fail" && session.rank() == 1 ? 3 : 0;
}

// Multiplies the argument, a number, by the number of ranks.
std::string multiply(farandole::Session& session, const std::string& arguments) {
  std::cout << "multiplying " + arguments + "\n" << std::flush;
  return std::to_string(std::stoi(arguments) * session.size());
}

std::string fail(farandole::Session& session, const std::string& arguments) {
  if (arguments == "\"together\"")
    session.together([&] {
      if (session.rank() == 1) throw farandole::UserError("rank 1 has no data");
    });
  if (arguments == "\"exit\"" && session.rank() == 1) std::_Exit(9);
  if (session.rank() == 1) throw std::runtime_error("the disk is full\nand more");
  session.barrier();
  return "0";
}

// Says on rank 0 that all ranks are here, and stays; if asked to, whatever signal comes.
int stay(farandole::Session& session, const std::vector<std::string>& arguments) {
  if (arguments.front() == "stay") std::signal(SIGTERM, SIG_IGN);
  session.barrier();
  if (session.rank() == 0) std::ofstream(arguments.back() + ".part") << "here\n";
  if (session.rank() == 0) std::rename((arguments.back() + ".part").c_str(), arguments.back().c_str());
  for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
}

void fail_and_show(const std::string& how) {
  try {
    farandole::launch({.np = 2}, fail, how);
  } catch (const farandole::Error& error) {
    std::cout << "caught " << static_cast<int>(error.exit_code()) << ": " << error.what() << std::endl;
  }
}

int run(const std::string& way) {
  if (way == "calls") {
    const auto first = farandole::launch({.np = 2}, multiply, "5");
    fail_and_show("\"plain\"");
    std::cout << farandole::launch({.np = 2}, multiply, first) << std::endl;
  } else if (way == "direct") {
    std::cout << "result " + farandole::launch({.np = 7}, multiply, "5") + "\n" << std::flush;
  } else if (way == "streams") {
    std::ostringstream out, err;
    farandole::launch({.np = 2, .prefix_output_with_timestamp = true, .out = &out, .err = &err}, multiply,
                      "5");
    std::cerr << out.str();
  } else {
    fail_and_show("\"" + way + "\"");
  }
  return 0;
}

}  // namespace

int launching(int argc, char** argv) {
  const std::string way = argv[1];
  if (way == "main") return farandole::launch(argc, argv, {.np = std::atoi(argv[2])}, greet);
  if (way == "stay" || way == "obey") return farandole::launch(argc, argv, {.np = 2}, stay);
  return run(way);
}
