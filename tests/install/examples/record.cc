// Records what a program without MPI and LibTorch does, and merges it into a trace for Perfetto: record [RUN]
#include <cmath>
#include <farandole/timeline.h>
#include <iostream>

int main(int argc, char** argv) {
  const std::filesystem::path run = argc > 1 ? argv[1] : "runs/record";
  try {
    {
      farandole::Timeline timeline(farandole::run_timeline(run));
      timeline.name_thread("training");
      const auto residual = timeline.intern("residual");
      double value = 1;
      for (int step = 0; step < 50; ++step) {
        timeline.set_step(step);
        const farandole::Span whole(timeline, farandole::Category::step, "step");
        {
          const farandole::Span span(timeline, farandole::Category::forward, "solve");
          for (int i = 0; i < 20000; ++i) value = std::cos(value);
        }
        timeline.counter(residual, std::cos(value) - value);
      }
      timeline.set_step(-1);
    }  // here the recorder's file is complete
    const auto merged = farandole::merge_run(run);
    std::cout << merged.trace.string() << ": " << merged.events << " events\n";
  } catch (const farandole::Error& error) {
    std::cerr << "record: " << error.what() << "\n";
    return static_cast<int>(error.exit_code());
  }
}
