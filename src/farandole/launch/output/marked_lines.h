// How the supervisors of all ranks and mpirun or srun share one stream, the standard error of mpirun or srun.
// What a supervisor sends is in marked lines. Everything else are the words of mpirun or srun.
// Thread safety: none; use from one thread at a time.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace farandole {

// A marked line is '\x1e', the word of this launch, the rank, a letter, and text up to a '\n'. The word is
// random: srun and slurmstepd may cut a line, so that what a rank prints stands at the begin of the next
// one, and without the word it could look like a record. The letter is lower-case if the '\n' belongs to the
// text, and upper-case if the text goes on in the next line of this rank and letter. Marked lines are short:
// mpirun forwards 4096 bytes at a time, and Slurm's slurmstepd 1024, and both may put the output of another
// rank after that.
enum class LineKind : char {
  out = 'o',     // The program's standard output.
  err = 'e',     // The program's standard error, and messages of the supervisor.
  start = 's',   // The supervisor can take signals; the text is its process id and its host.
  record = 'r',  // A rank_record.h, if the launcher's folder is not available.
  end = 'x',     // The supervisor is about to exit; the text is "failed" if its rank has failed by itself.
};

// Returns a word of 48 random bits for one launch. It is short, because the lines are.
std::string random_word();

struct LineMark {
  std::string word;  // Of the launch.
  int rank = 0;
  LineKind kind = LineKind::out;
};

std::string mark_lines(const LineMark& mark, std::string_view text);

// Takes a stream of marked lines and words apart.
class MarkedLines {
 public:
  // The text of a line of a rank, with its '\n' if it has one.
  using Take = std::function<void(int rank, LineKind kind, std::string_view text)>;
  // The words of mpirun or srun, a line or the rest of one.
  using TakeWords = std::function<void(std::string_view words)>;

  // `word`: lines with the mark of another launch, or with none, are words of mpirun or srun.
  MarkedLines(const std::string& word, Take take, TakeWords take_words)
      : mark_('\x1e' + word), take_(std::move(take)), take_words_(std::move(take_words)) {}

  void feed(std::string_view bytes);
  void finish();  // At the end of the stream.

 private:
  void take_line(std::string_view line);

  const std::string mark_;
  Take take_;
  TakeWords take_words_;
  std::string pending_;  // The begin of a line.
};

}  // namespace farandole
