#include "tools/training/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "tools/cli/standard_streams.h"

namespace elinvar {

std::string duration_text(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60) return fmt::format("{}s", s);
  if (s < 3600) return fmt::format("{}m{:02}s", s / 60, s % 60);
  return fmt::format("{}h{:02}m", s / 3600, s / 60 % 60);
}

std::string rate_text(double per_second, const std::string& unit) {
  if (per_second >= 9.995e6) return fmt::format("{:.4g} M {}/s", per_second / 1e6, unit);
  if (per_second >= 9999.5) return fmt::format("{:.4g} k {}/s", per_second / 1e3, unit);
  return fmt::format("{:.4g} {}/s", per_second, unit);
}

Progress::Progress(int64_t first_step, int64_t steps, int64_t log_every, std::string unit)
    : steps_(steps),
      log_every_(log_every),
      step_(first_step),
      unit_(std::move(unit)),
      terminal_(isatty(STDERR_FILENO)),
      last_(std::chrono::duration<double>(Clock::now().time_since_epoch()).count()) {
  if (terminal_ && first_step < steps) say(stderr, "\r\033[Kstep {}/{}", first_step, steps);
}

Progress::~Progress() { clear(); }

void Progress::step(int64_t step, double loss, double lr, int64_t items, double when) {
  const double seconds = std::max(0.0, when - std::exchange(last_, when));
  step_ = step;
  evaluation_shown_ = Clock::now();
  // The mean of all steps at first, then an exponential average with weight 1/50 for each new step.
  const double weight = 1.0 / static_cast<double>(std::min<int64_t>(++measured_, 50));
  step_seconds_ += weight * (seconds - step_seconds_);
  step_items_ += weight * (static_cast<double>(items) - step_items_);

  if (terminal_) {
    const auto now = Clock::now();
    if (now - last_drawn_ < std::chrono::milliseconds(200) && step != steps_) return;
    last_drawn_ = now;
    draw(fmt::format(" {}/{} loss {:.4f} lr {:.3g} {} left {}", step, steps_, loss, lr,
                     rate_text(items_per_second(), unit_), duration_text(seconds_left())),
         step, steps_);
  } else if (step % log_every_ == 0 || step == steps_) {
    say(stderr, "step {}/{} loss {:.4f} lr {:.3g} {} left {}\n", step, steps_, loss, lr,
        rate_text(items_per_second(), unit_), duration_text(seconds_left()));
  }
}

void Progress::evaluation(int64_t part, int64_t parts, double seconds_left) {
  constexpr std::chrono::seconds kEvery{30};
  const std::string text = fmt::format(" evaluation: batch {} of {}{}", part, parts,
                                       seconds_left < 1e9 ? ", left " + duration_text(seconds_left) : "");
  if (terminal_) return draw(text, std::max<int64_t>(part, 1) - 1, parts);
  const auto now = Clock::now();
  if (now - evaluation_shown_ < kEvery) return;
  evaluation_shown_ = now;
  say(stderr, "step {}/{}{}\n", step_, steps_, text);
}

double Progress::items_per_second() const { return step_seconds_ > 0 ? step_items_ / step_seconds_ : 0; }

double Progress::seconds_left() const { return step_seconds_ * static_cast<double>(steps_ - step_); }

void Progress::line(const std::string& text) {
  clear();
  say(stdout, "{}\n", text);
}

void Progress::draw(const std::string& what, int64_t done, int64_t all) {
  winsize size{};
  const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  std::string text = what;
  const int width = std::clamp(columns - static_cast<int>(text.size()) - 3, 0, 40);
  const double share = all > 0 ? std::clamp(static_cast<double>(done) / static_cast<double>(all), 0.0, 1.0) : 0;
  const int filled = static_cast<int>(width * share);
  if (width >= 8) text = fmt::format("[{:#<{}}{:.<{}}]{}", "", filled, "", width - filled, text);
  say(stderr, "\r\033[K{}", text.substr(0, static_cast<size_t>(std::max(1, columns - 1))));
}

void Progress::clear() {
  if (terminal_) say(stderr, "\r\033[K");
}

}  // namespace elinvar
