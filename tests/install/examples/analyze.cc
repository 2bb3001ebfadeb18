// Prints the figures of one or several runs, and the whole report as JSON: analyze RUN...
#include <farandole/analyzer.h>
#include <iostream>

int main(int argc, char** argv) {
  try {
    const std::vector<std::filesystem::path> runs(argv + 1, argv + argc);
    const farandole::Analysis analysis(runs);
    for (const auto& figure : analysis.figures()) {
      std::cerr << figure.name << ": ";
      if (figure.value)
        std::cerr << *figure.value << "\n";
      else
        std::cerr << "unknown: " << figure.unknown << "\n";
    }
    std::cout << analysis.json();
  } catch (const farandole::Error& error) {
    std::cerr << "analyze: " << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  }
}
