#pragma once
// The progress of a run on stderr: a bar that is redrawn if stderr is a terminal, else a line every `log_every` steps.
#include <chrono>
#include <cstdint>
#include <string>

namespace elinvar {

// Returns a rate to four digits: "187.3 samples/s", "110.4 k tokens/s", "12.3 M tokens/s".
std::string rate_text(double per_second, const std::string& unit);

class Progress {
 public:
  // `unit` is what is counted besides steps: "samples" or "tokens".
  Progress(int64_t first_step, int64_t steps, int64_t log_every, std::string unit);
  ~Progress();

  // Reports a step that processed `items` and completed at `when`, in seconds of the monotonic clock. Prints a line, or
  // redraws the bar a few times a second.
  void step(int64_t step, double loss, double lr, int64_t items, double when);
  // Shows that an evaluation is at one of its `parts`: at once on a terminal, else about every half minute.
  void evaluation(int64_t part, int64_t parts, double seconds_left);
  double items_per_second() const;
  double seconds_left() const;
  const std::string& unit() const { return unit_; }
  // Prints a separate line on stdout, above the bar.
  void line(const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  void draw(const std::string& text, int64_t done, int64_t all);
  void clear();

  int64_t steps_, log_every_, step_;
  std::string unit_;
  bool terminal_;
  double last_;
  Clock::time_point last_drawn_{}, evaluation_shown_ = Clock::now();  // the latter also of a step
  double step_seconds_ = 0, step_items_ = 0;                          // moving averages
  int64_t measured_ = 0;
};

std::string duration_text(double seconds);  // "12s", "3m05s", "2h04m"

}  // namespace elinvar
